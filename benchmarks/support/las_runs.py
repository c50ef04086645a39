"""Many runs of the load-aware shedders: seeds in, one row of metrics a run and shedder out.

Full experiments are a Spark job over the seeds, in blocks; finished blocks stay in a folder of the system's temporary
directory, so that an experiment that was stopped goes on where it was. Quick ones run in this process.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.protocol import Say
from benchmarks.support.results import Result, Row
from penstock.simulation.las_queue import Method, simulate_las, synthetic
from penstock.simulation.plotting import by_panel, lines
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["METHODS", "Metrics", "Setting", "draw", "lines_of", "rows_of", "run_one", "run_settings"]

METHODS: tuple[Method, ...] = ("base-line", "straw-man", "full-knowledge", "las", "cost-aware")
_RUNS, _QUICK_RUNS, _BLOCK, _ORDERS, _CORES = 5_000, 20, 500, 50, 2
_HELD_OUT = 1000
"""The first association of keys and costs: those below were used to choose what our policy aims at."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure: what differs from the paper's defaults."""

    x: float
    label: str
    under: float = 0.25
    tau_s: float = 6.4e-3
    w_max_s: float = 6.4e-3
    alpha: float | None = 1.0
    epsilon: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Metrics:
    """Of one setting and shedder, over the runs: mean queuing latency in ms, share dropped in percent."""

    wait_ms: NDArray[np.float64]
    dropped: NDArray[np.float64]


def run_one(setting: Setting, run: int) -> list[tuple[float, float]]:
    """Run all shedders on one stream: 100 associations of keys and costs, 50 orders of tuples and hash functions each."""
    permutation, seed = _HELD_OUT + run // _ORDERS, _HELD_OUT * _ORDERS + run
    options: dict[str, Any] = {"permutation": permutation, "alpha": setting.alpha, "w_max_s": setting.w_max_s}
    options["w_min_s"] = setting.w_max_s / 64
    stream = synthetic(seed=seed, under=setting.under, **options)
    warm = synthetic(seed=seed + 1_000_000, tuples=2048, **options)
    found = []
    for method in METHODS:
        share = max(0.0, setting.under)
        outcome = simulate_las(stream, method, setting.tau_s, epsilon=setting.epsilon, seed=seed, warm=warm, share=share)
        found.append((outcome.mean_wait_s * 1e3, 100.0 * outcome.dropped))
    return found


def run_settings(
    name: str, settings: Sequence[Setting], *, quick: bool, say: Say, every: int = 1
) -> dict[tuple[str, Method], Metrics]:
    """Run every setting often enough, here or on Spark: all 5,000 runs, or one of ``every`` so many."""
    step = _RUNS // _QUICK_RUNS if quick else every
    tasks = [(place, run) for place in range(len(settings)) for run in range(0, _RUNS, step)]
    if quick:
        found = [(place, *(value for pair in run_one(settings[place], run) for value in pair)) for place, run in tasks]
    else:
        found = _on_spark(name, settings, tasks, say)
    table = np.array(found)
    return {
        (setting.label, method): Metrics(table[table[:, 0] == place, 1 + 2 * column], table[table[:, 0] == place, 2 + 2 * column])
        for place, setting in enumerate(settings)
        for column, method in enumerate(METHODS)
    }


def _on_spark(name: str, settings: Sequence[Setting], tasks: Sequence[tuple[int, int]], say: Say) -> list[tuple[float, ...]]:
    """Run the tasks block by block as a Spark job, and take what an earlier run has left."""
    described = json.dumps([asdict(setting) for setting in settings])
    name = f"{name}-{len(tasks)}"
    folder = Path(tempfile.gettempdir()) / "penstock-las" / f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [tasks[first : first + _BLOCK] for first in range(0, len(tasks), _BLOCK)]
    done = {number for number in range(len(blocks)) if (folder / f"{number}.json").is_file()}
    if done:
        say(f"{len(done)} of {len(blocks)} blocks are there from an earlier run, in {folder.name}")
    if len(done) < len(blocks):
        _fill(blocks, done, folder, described, say)
    found: list[tuple[float, ...]] = []
    for number in range(len(blocks)):
        found += [tuple(row) for row in json.loads((folder / f"{number}.json").read_text())]
    return found


def _fill(blocks: Sequence[Sequence[tuple[int, int]]], done: set[int], folder: Path, described: str, say: Say) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for the bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    def work(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415 - on the worker

        known = [Setting(**values) for values in json.loads(described)]
        for batch in batches:
            rows = [
                (place, *(value for pair in run_one(known[place], run) for value in pair))
                for place, run in zip(batch["place"].tolist(), batch["run"].tolist(), strict=True)
            ]
            yield pd.DataFrame(rows, columns=names)

    names = ["place"] + [f"{what}{number}" for number in range(len(METHODS)) for what in ("wait", "dropped")]
    schema = ", ".join(f"{column} double" for column in names)
    columns = ("runs", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        fresh_session("las-runs", _CORES) as (spark, _),
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        total = sum(len(block) for block in blocks)
        bar = progress.add_task("runs", total=total, completed=sum(len(blocks[number]) for number in done))
        for number, block in enumerate(blocks):
            if number in done:
                continue
            tasks = spark.createDataFrame(block, "place int, run int").repartition(_CORES)
            rows = [list(row) for row in tasks.mapInPandas(work, schema).collect()]
            part = folder / f"{number}.part"
            part.write_text(json.dumps(rows))
            part.rename(folder / f"{number}.json")  # whole or not at all
            progress.advance(bar, len(block))
        say(f"{total:,} runs done")


def rows_of(settings: Sequence[Setting], found: dict[tuple[str, Method], Metrics], x: str) -> list[Row]:
    """One row a setting and shedder: mean, least and greatest over the runs."""
    rows: list[Row] = []
    for setting in settings:
        base = found[setting.label, "base-line"].dropped.mean()
        for method in METHODS:
            metrics = found[setting.label, method]
            rows.append(
                {
                    x: setting.label,
                    "shedder": method,
                    "Q ms": float(metrics.wait_ms.mean()),
                    "least": float(metrics.wait_ms.min()),
                    "greatest": float(metrics.wait_ms.max()),
                    "Q within tau %": 100.0 * float(np.mean(metrics.wait_ms <= setting.tau_s * 1e3 * (1 + 1e-9))),
                    "dropped %": float(metrics.dropped.mean()),
                    "against Base Line %": 100.0 * float(metrics.dropped.mean() / base - 1.0) if base > 0 else None,
                }
            )
    return rows


def draw(result: Result, path: Path, title: str, x: str, *, log: bool = True) -> None:
    """Draw Q and the dropped share of every shedder over the settings."""
    lines(by_panel(result.lines), path, title=title, x=x, log=["Q, ms"] if log else [])


def lines_of(settings: Sequence[Setting], found: dict[tuple[str, Method], Metrics]) -> dict[str, tuple[list[float], list[float]]]:
    """What ``draw`` draws."""
    xs = [setting.x for setting in settings]
    return {
        f"{method}|{what}": (xs, [float(getattr(found[setting.label, method], name).mean()) for setting in settings])
        for what, name in (("Q, ms", "wait_ms"), ("dropped, %", "dropped"))
        for method in METHODS
    }
