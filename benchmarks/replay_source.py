"""How many rows per second the replay source plays on one core.

A streaming query from ``penstock-replay`` into the ``noop`` sink under ``local[1]``, with this process, and so the JVM
and the Python workers that it starts, pinned to one core where the system can do that. All rows are due when the query
starts; batches of one size follow each other, and the median batch counts, without the first ones. Two sources: a
generator (arrival, sequence number, key, cost and 16 bytes of payload) and a trace file in Parquet (arrival, sequence
number, key and two columns of the file).
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result
from benchmarks.support.timing import pin_to_one_core
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run"]

_BATCH_ROWS = 1_000_000
_BATCHES, _QUICK_BATCHES, _WARM_UP = 10, 5, 2
_MIN_ROWS_PER_S = 500_000.0


def run(*, quick: bool, say: Say) -> Result:
    """Play a generator and a trace file."""
    batches = _QUICK_BATCHES if quick else _BATCHES
    with pin_to_one_core() as pinned, fresh_session("replay", 1) as (spark, scratch):
        from penstock.spark.replay import register_replay  # noqa: PLC0415 - needs Spark

        register_replay(spark)
        total_rows = _BATCH_ROWS * batches
        generator = {"generator": "constant", "rate": str(total_rows), "duration": "1s"}
        trace = {"path": str(_write_trace(scratch / "trace.parquet", _BATCH_ROWS)), "loop": "true"}
        rates = {}
        for name, source in (("generator", generator), ("trace file", trace)):
            say(f"{name}: {batches} batches of {_BATCH_ROWS:,} rows")
            rates[name] = _measure_rows_per_s(spark, source, batches)
    rows = [
        {"source": name, "rows/s on one core": rate, "us per row": 1e6 / rate, "pinned": "yes" if pinned else "no"}
        for name, rate in rates.items()
    ]
    return Result("replay", rows, [Bar.at_least(f"rows/s, {name}", rate, _MIN_ROWS_PER_S) for name, rate in rates.items()])


def _measure_rows_per_s(spark: SparkSession, source: dict[str, str], batches: int) -> float:
    options = {"partitions": "1", "max_rows_per_batch": str(_BATCH_ROWS), "start": f"{time.time() - 3600.0:.6f}", **source}
    stream = spark.readStream.format("penstock-replay").options(**options).load()
    query = stream.writeStream.format("noop").start()
    try:
        while sum(1 for report in query.recentProgress if report.numInputRows) < batches:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.2)
        reports = [report for report in query.recentProgress if report.numInputRows == _BATCH_ROWS]
    finally:
        query.stop()
    return _BATCH_ROWS / statistics.median(report.durationMs["triggerExecution"] / 1e3 for report in reports[_WARM_UP:batches])


def _write_trace(path: Path, rows: int) -> Path:
    """Write a trace of one second, with a number and a short text per row."""
    import pyarrow as pa  # noqa: PLC0415 - only for the trace
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {
        "t": np.arange(rows) / rows,
        "bytes": np.arange(rows) % 1500,
        "host": [f"host{number % 100}" for number in range(rows)],
    }
    pq.write_table(pa.table(columns), path)
    return path
