"""Many runs of the load-aware shedders: seeds in, the metrics of every shedder and run out.

Full runs are a Spark job over the seeds, in blocks. Finished blocks stay in the system's temporary directory, so that a
benchmark that was stopped continues where it was. Quick runs stay in this process.
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

__all__ = ["METHODS", "Metrics", "MetricsByPoint", "Setting", "build_curves", "build_rows", "draw", "run_one", "run_settings"]

METHODS: tuple[Method, ...] = ("base-line", "straw-man", "full-knowledge", "las", "cost-aware")
_RUNS, _QUICK_RUNS, _BLOCK, _ORDERS, _CORES = 5_000, 20, 500, 50, 2
_HELD_OUT = 1000
"""The first assignment of costs to keys: we used those below it to tune our policy."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure: its differences from the paper's defaults."""

    x: float
    label: str
    under: float = 0.25
    tau_s: float = 6.4e-3
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
    permutation, seed = _HELD_OUT + run // _ORDERS, _HELD_OUT * _ORDERS + run
    options: dict[str, Any] = {"permutation": permutation, "alpha": setting.alpha, "w_max_s": setting.w_max_s}
    options["w_min_s"] = setting.w_max_s / 64
    stream = synthetic(seed=seed, under=setting.under, **options)
    warm = synthetic(seed=seed + 1_000_000, tuples=2048, **options)
    metrics = []
    for method in METHODS:
        share = max(0.0, setting.under)
        outcome = simulate_las(stream, method, setting.tau_s, epsilon=setting.epsilon, seed=seed, warm=warm, share=share)
        metrics.append((outcome.mean_wait_s * 1e3, 100.0 * outcome.dropped))
    return metrics


def run_settings(name: str, settings: Sequence[Setting], *, quick: bool, say: Say, every: int = 1) -> MetricsByPoint:
    """Run every setting: all 5,000 runs or every ``every``-th of them on Spark, or if ``quick`` a few in this process."""
    step = _RUNS // _QUICK_RUNS if quick else every
    tasks = [(index, run) for index in range(len(settings)) for run in range(0, _RUNS, step)]
    if quick:
        rows = [(index, *(value for pair in run_one(settings[index], run) for value in pair)) for index, run in tasks]
    else:
        rows = _run_on_spark(name, settings, tasks, say)
    table = np.array(rows)
    return {
        (setting.label, method): Metrics(table[table[:, 0] == index, 1 + 2 * column], table[table[:, 0] == index, 2 + 2 * column])
        for index, setting in enumerate(settings)
        for column, method in enumerate(METHODS)
    }


def _run_on_spark(name: str, settings: Sequence[Setting], tasks: Sequence[tuple[int, int]], say: Say) -> list[tuple[float, ...]]:
    """Run the tasks block by block as a Spark job, and reuse the blocks of an earlier run."""
    settings_json = json.dumps([asdict(setting) for setting in settings])
    name = f"{name}-{len(tasks)}"
    folder = Path(tempfile.gettempdir()) / "penstock-las" / f"{name}-{hashlib.sha256(settings_json.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    blocks = [tasks[first : first + _BLOCK] for first in range(0, len(tasks), _BLOCK)]
    done = {number for number in range(len(blocks)) if (folder / f"{number}.json").is_file()}
    if done:
        say(f"{len(done)} of {len(blocks)} blocks are there from an earlier run, in {folder.name}")
    if len(done) < len(blocks):
        _run_blocks(blocks, done, folder, settings_json, say)
    rows: list[tuple[float, ...]] = []
    for number in range(len(blocks)):
        rows += [tuple(row) for row in json.loads((folder / f"{number}.json").read_text())]
    return rows


def _run_blocks(blocks: Sequence[Sequence[tuple[int, int]]], done: set[int], folder: Path, settings_json: str, say: Say) -> None:
    from rich.console import Console  # noqa: PLC0415 - only for the progress bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    def work(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        import pandas as pd  # noqa: PLC0415 - on the worker

        known = [Setting(**values) for values in json.loads(settings_json)]
        for batch in batches:
            rows = [
                (index, *(value for pair in run_one(known[index], run) for value in pair))
                for index, run in zip(batch["setting"].tolist(), batch["run"].tolist(), strict=True)
            ]
            yield pd.DataFrame(rows, columns=names)

    names = ["setting"] + [f"{what}{number}" for number in range(len(METHODS)) for what in ("wait", "dropped")]
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
            tasks = spark.createDataFrame(block, "setting int, run int").repartition(_CORES)
            rows = [list(row) for row in tasks.mapInPandas(work, schema).collect()]
            partial = folder / f"{number}.part"
            partial.write_text(json.dumps(rows))
            partial.rename(folder / f"{number}.json")  # complete or absent
            progress.advance(bar, len(block))
        say(f"{total:,} runs done")


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
