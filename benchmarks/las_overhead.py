"""What timing and sketches cost per tuple.

Row functions in Python: a batch of 10,000 rows through the worker with its clock and buckets, or with the paper's two
matrices, against the same calls alone; and the shedder that decides on each row. Batch form: sketch update and lookup
of 100,000 keys with four rows and 54 columns. Also, how many whole simulator runs fit into a second on two threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import best_of, time_call
from penstock.las.countmin import CostSketch
from penstock.las.shedder_state import ShedderState
from penstock.las.task_shedder import TaskShedder
from penstock.simulation.las_queue import LasRun, simulate_las, synthetic

if TYPE_CHECKING:
    from penstock.spark.load_aware_worker import Recorder

__all__ = ["run"]

_ROWS, _KEYS = 10_000, 100_000


class _LastValue:
    """A substitute for an accumulator."""

    def add(self, value: object) -> None:
        self.value = value


def run(*, quick: bool, say: Say) -> Result:
    """Measure both forms."""
    from penstock.spark.load_aware_worker import BucketTimes, SketchTimes  # noqa: PLC0415 - needs PySpark

    rng = np.random.default_rng(1)
    batch = pa.RecordBatch.from_arrays([pa.array(rng.random(_ROWS))], names=["value"])
    buckets, hashes = rng.integers(0, 512, _ROWS).astype(np.int32), rng.integers(-(1 << 62), 1 << 62, _ROWS)
    accumulator: Any = _LastValue()
    by_bucket = _worker(BucketTimes(accumulator, 513), batch, [buckets])
    by_sketch = _worker(SketchTimes(accumulator, CostSketch(0.05, 0.1), 1024), batch, [hashes, np.zeros(_ROWS)])
    arrivals_s = -np.sort(rng.random(_ROWS))[::-1]
    keys, durations, sketch = rng.integers(0, 1 << 30, _KEYS), rng.random(_KEYS), CostSketch(0.05, 0.1)
    say("timing")
    times = best_of(
        {
            "timed": by_bucket,
            "sketched": by_sketch,
            "decided": lambda: _decide(sketch, hashes, arrivals_s),
            "alone": lambda: _drain(_run_untimed(batch)),
            "update": lambda: sketch.add(keys, durations),
            "lookup": lambda: sketch.estimate(keys, weighted=True),
        },
        rounds=5 if quick else 30,
    )
    say("whole runs")
    _run_las(0)  # compiles it
    runs = 100 if quick else 1_000
    with ThreadPoolExecutor(2) as pool:
        _, runs_s = time_call(lambda: list(pool.map(_run_las, range(runs))))
    _, alone_s = time_call(lambda: [_run_las(seed) for seed in range(runs)])
    row_us = (times["timed"] - times["alone"]) / _ROWS * 1e6
    las_us = (times["sketched"] - times["alone"] + times["decided"]) / _ROWS * 1e6
    rows: list[Row] = [
        {"what": "a row function, timed", "us per tuple": times["timed"] / _ROWS * 1e6},
        {"what": "a row function, timed into F and W", "us per tuple": times["sketched"] / _ROWS * 1e6},
        {"what": "the same without timing", "us per tuple": times["alone"] / _ROWS * 1e6},
        {"what": "the shedder of LAS, AVG", "us per tuple": times["decided"] / _ROWS * 1e6},
        {"what": "sketch update, batch", "us per tuple": times["update"] / _KEYS * 1e6},
        {"what": "sketch lookup, batch", "us per tuple": times["lookup"] / _KEYS * 1e6},
        {"what": "a simulated tuple of LAS, including its stream", "us per tuple": alone_s / runs / 32_768 * 1e6},
        {"what": "the same on two threads", "us per tuple": runs_s / runs / 32_768 * 1e6},
    ]
    bars = [
        Bar.at_most("timing and buckets in a row function, us per tuple", row_us, 2.0),
        Bar.at_most("timing, F and W in a row function, and the shedder of LAS, us per tuple", las_us, 2.0),
        Bar.at_most("sketch update, batch form, ns per tuple", times["update"] / _KEYS * 1e9, 100.0),
        Bar.at_most("sketch lookup, batch form, ns per tuple", times["lookup"] / _KEYS * 1e9, 100.0),
        Bar.at_least("whole runs of 32,768 tuples per second, two cores", runs / runs_s, 500.0),
    ]
    return Result("las-overhead", rows, bars=bars)


def _run_las(seed: int) -> LasRun:
    return simulate_las(synthetic(seed=seed), "las", 6.4e-3, seed=seed)


def _identity(value: float) -> float:
    return value


def _worker(recorder: Recorder, batch: pa.RecordBatch, marks: list[np.ndarray]) -> Callable[[], None]:
    """Return a run of the worker's function over one batch."""
    from penstock.spark.load_aware_worker import TimedFunction  # noqa: PLC0415 - needs PySpark

    for name, column in zip(recorder.columns, marks, strict=True):
        batch = batch.append_column(name, pa.array(column))
    types: dict[str, Any] = {"output": "result", "output_type": pa.float64(), "names": tuple(batch.schema.names)}
    timed = TimedFunction(_identity, "row", recorder, columns=("value",), **types)
    return lambda: _drain(timed(iter([batch])))


def _decide(sketch: CostSketch, hashes: np.ndarray, arrivals_s: np.ndarray) -> None:
    state = ShedderState("las", "avg", 0.5, 0.05, "RUN", 0, sketch.mean_s, 1, sketch)
    TaskShedder(state, 0).decide(hashes, arrivals_s)


def _run_untimed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    results = [_identity(value) for value in batch.column("value").to_pylist()]
    yield batch.append_column("result", pa.array(results, pa.float64()))


def _drain(batches: Iterator[pa.RecordBatch]) -> None:
    for _ in batches:
        pass
