"""Many runs of the load-aware shedders: seeds in, the metrics of every shedder and run out.

The runs spread over two threads, and the compiled loops run side by side. Every number is computed when it is asked for: nothing
is kept from one run of a benchmark to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.protocol import Say
from benchmarks.support.results import Result, Row
from penstock.simulation.las_queue import Method, simulate_las, synthetic
from penstock.simulation.plotting import by_panel, lines

__all__ = [
    "HELD_OUT",
    "METHODS",
    "Metrics",
    "MetricsByPoint",
    "Setting",
    "build_curves",
    "build_rows",
    "draw",
    "run_on_threads",
    "run_one",
    "run_settings",
]

Task = TypeVar("Task")
Answer = TypeVar("Answer")
METHODS: tuple[Method, ...] = ("base-line", "straw-man", "full-knowledge", "las", "cost-aware")
_RUNS, _QUICK_RUNS, _BLOCK, _ORDERS, _CORES = 5_000, 20, 500, 50, 2
HELD_OUT = 1000
"""The first assignment of costs to keys: we used those below it to tune our policy."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure: its differences from the paper's defaults."""

    x: float
    label: str
    under: float = 0.25
    tau_s: float = 6.4e-3
    w_min_s: float = 0.1e-3
    w_max_s: float = 6.4e-3
    alpha: float | None = 1.0
    epsilon: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """Metrics of one setting and shedder, one value per run: mean queuing latency in ms, share dropped in percent."""

    wait_ms: NDArray[np.float64]
    dropped: NDArray[np.float64]


MetricsByPoint = dict[tuple[str, Method], Metrics]
"""By the label of a setting and by shedder."""


def run_one(setting: Setting, run: int) -> list[tuple[float, float]]:
    """Run all shedders on one stream. 100 assignments of costs to keys have 50 orders of tuples and hash functions each."""
    permutation, seed = HELD_OUT + run // _ORDERS, HELD_OUT * _ORDERS + run
    options: dict[str, Any] = {"permutation": permutation, "alpha": setting.alpha}
    options |= {"w_min_s": setting.w_min_s, "w_max_s": setting.w_max_s}
    stream = synthetic(seed=seed, under=setting.under, **options)
    warm = synthetic(seed=seed + 1_000_000, tuples=2048, **options)
    metrics = []
    for method in METHODS:
        share = max(0.0, setting.under)
        outcome = simulate_las(stream, method, setting.tau_s, epsilon=setting.epsilon, seed=seed, warm=warm, share=share)
        metrics.append((outcome.mean_wait_s * 1e3, 100.0 * outcome.dropped))
    return metrics


def run_settings(settings: Sequence[Setting], *, quick: bool, say: Say, every: int = 1) -> MetricsByPoint:
    """Run every setting: all 5,000 runs or every ``every``-th of them, or if ``quick`` a few."""
    step = _RUNS // _QUICK_RUNS if quick else every
    tasks = [(index, run) for index in range(len(settings)) for run in range(0, _RUNS, step)]

    def work(task: tuple[int, int]) -> list[float]:
        return [task[0], *(value for pair in run_one(settings[task[0]], task[1]) for value in pair)]

    table = np.array(run_on_threads(work, tasks, say))
    return {
        (setting.label, method): Metrics(table[table[:, 0] == index, 1 + 2 * column], table[table[:, 0] == index, 2 + 2 * column])
        for index, setting in enumerate(settings)
        for column, method in enumerate(METHODS)
    }


def run_on_threads(work: Callable[[Task], Answer], tasks: Sequence[Task], say: Say) -> list[Answer]:
    """Run tasks on two threads, in order, and say how many are done."""
    answers: list[Answer] = [work(task) for task in tasks[:1]]  # compiles, once
    with ThreadPoolExecutor(_CORES) as pool:
        for first in range(1, len(tasks), _BLOCK):
            answers += pool.map(work, tasks[first : first + _BLOCK])
            if len(tasks) > _BLOCK:
                say(f"{len(answers):,} of {len(tasks):,} runs")
    return answers


def build_rows(settings: Sequence[Setting], metrics: MetricsByPoint, x: str) -> list[Row]:
    """Build one row per setting and shedder: mean, minimum and maximum over the runs."""
    rows: list[Row] = []
    for setting in settings:
        base = metrics[setting.label, "base-line"].dropped.mean()
        for method in METHODS:
            values = metrics[setting.label, method]
            rows.append(
                {
                    x: setting.label,
                    "shedder": method,
                    "Q ms": float(values.wait_ms.mean()),
                    "min": float(values.wait_ms.min()),
                    "max": float(values.wait_ms.max()),
                    "Q within tau %": 100.0 * float(np.mean(values.wait_ms <= setting.tau_s * 1e3 * (1 + 1e-9))),
                    "dropped %": float(values.dropped.mean()),
                    "relative to Base Line %": 100.0 * float(values.dropped.mean() / base - 1.0) if base > 0 else None,
                }
            )
    return rows


def draw(result: Result, path: Path, title: str, x: str, *, log: bool = True) -> None:
    """Draw the mean queuing latency Q and the dropped share of every shedder over the settings."""
    lines(by_panel(result.lines), path, title=title, x=x, log=["Q, ms"] if log else [])


def build_curves(settings: Sequence[Setting], metrics: MetricsByPoint) -> dict[str, tuple[list[float], list[float]]]:
    """Build the curves that ``draw`` draws."""
    xs = [setting.x for setting in settings]
    return {
        f"{method}|{what}": (xs, [float(getattr(metrics[setting.label, method], name).mean()) for setting in settings])
        for what, name in (("Q, ms", "wait_ms"), ("dropped, %", "dropped"))
        for method in METHODS
    }
