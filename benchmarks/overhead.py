"""What gate, journal and monitor cost a micro-batch that sheds nothing.

A streaming job with gate, journal and monitor and a controller that keeps everything, against the same job without
them: batches of 200,000 rows (``rate-micro-batch``), a count by key and 10-second window. Both forms: ``foreach_batch``
against plain ``foreachBatch``, and ``start`` by arrival against a plain ``writeStream``, all into the ``noop`` sink.
The four arms run in turn in one session, several times. The time of an arm in a round is the median, over the last 50 of
its 100 batches, of the time that Spark reports for a batch (``triggerExecution``). Those before are shown beside it: the
plan of a new gate is new code, which the JVM compiles and optimises meanwhile, while that of the plain job is warm from the
rounds before. The median round of each arm counts, and all are shown, because they differ. The bar of a form holds if the
ratio is at most 1.05 or the difference at most 15 ms.
"""

from __future__ import annotations

import statistics
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.shedder import Shedder

__all__ = ["run"]

_ROWS = 200_000
_BATCHES, _WARM_UP = 100, 50
_ROUNDS, _QUICK_ROUNDS = 5, 2
_MAX_RATIO, _MAX_DIFFERENCE_MS = 1.05, 15.0


def run(*, quick: bool, say: Say) -> Result:
    """Run the four arms in turn, several times."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    medians_ms: dict[str, list[float]] = {}
    early_ms: dict[str, list[float]] = {}
    with fresh_session("overhead", 2, **{"spark.sql.streaming.numRecentProgressUpdates": "1000"}) as (spark, scratch):
        job = _Job(spark, scratch)
        arms = {
            "foreachBatch": job.plain_by_batch,
            "foreachBatch, Penstock": job.by_batch,
            "writeStream": job.plain_native,
            "writeStream, Penstock": job.native,
        }
        for arm in arms.values():  # the first run of each compiles Spark's own code
            arm()
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            order = list(arms.items())
            for name, arm in order if number % 2 else reversed(order):  # so that no arm always has the warmer machine
                times_ms = arm()
                medians_ms.setdefault(name, []).append(statistics.median(times_ms[_WARM_UP:]))
                early_ms.setdefault(name, []).append(statistics.median(times_ms[:_WARM_UP]))
    batches = rounds * (_BATCHES - _WARM_UP)
    rows: list[Row] = [
        {
            "arm": name,
            "median ms": statistics.median(medians_ms[name]),
            "rounds ms": ", ".join(f"{each:.0f}" for each in medians_ms[name]),
            f"first {_WARM_UP} batches ms": statistics.median(early_ms[name]),
            "batches": batches,
        }
        for name in arms
    ]
    return Result("overhead", rows, [_bar(form, medians_ms) for form in ("foreachBatch", "writeStream")])


def _bar(form: str, medians_ms: dict[str, list[float]]) -> Bar:
    """Return the ratio, or the difference if only the difference holds."""
    plain, ours = statistics.median(medians_ms[form]), statistics.median(medians_ms[f"{form}, Penstock"])
    ratio = Bar.at_most(f"{form}: batch time with Penstock / without", ours / plain, _MAX_RATIO)
    difference = Bar.at_most(f"{form}: batch time with Penstock - without, ms", ours - plain, _MAX_DIFFERENCE_MS)
    return difference if difference.holds and not ratio.holds else ratio


class _Job:
    """The job in its four forms; each runs some batches and returns the milliseconds of each batch."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark = spark
        self._scratch = scratch
        self._runs = count()

    def plain_by_batch(self) -> list[float]:
        counts = _count_by_key(self._rows())
        return _time_batches(
            counts.writeStream.foreachBatch(_to_noop)
            .outputMode("update")
            .option("checkpointLocation", self._checkpoint())
            .start()
        )

    def by_batch(self) -> list[float]:
        shedder = self._shedder()
        counts = _count_by_key(shedder.gate(self._rows(), arrival="timestamp", identity="value"))
        return _time_batches(
            shedder.foreach_batch(counts, _to_noop, checkpoint=self._checkpoint(), output_mode="update"), shedder
        )

    def plain_native(self) -> list[float]:
        counts = _count_by_key(self._rows())
        return _time_batches(
            counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", self._checkpoint()).start()
        )

    def native(self) -> list[float]:
        shedder = self._shedder()
        counts = _count_by_key(shedder.gate(self._rows(), arrival="timestamp", identity="value"))
        writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", self._checkpoint())
        return _time_batches(shedder.start(writer, by="arrival"), shedder)

    def _rows(self) -> DataFrame:
        options = {"rowsPerBatch": _ROWS, "numPartitions": 2, "startTimestamp": int(time.time() * 1e3)}
        return self._spark.readStream.format("rate-micro-batch").options(**options).load()

    def _shedder(self) -> Shedder:
        from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

        return Shedder("1 min", controller="keep-all")

    def _checkpoint(self) -> str:
        return str(self._scratch / f"checkpoint{next(self._runs)}")


def _count_by_key(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    return rows.groupBy(F.window("timestamp", "10 seconds"), (F.col("value") % 100).alias("key")).count()


def _to_noop(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - foreachBatch's signature
    batch.write.format("noop").mode("overwrite").save()


def _time_batches(query: StreamingQuery, shedder: Shedder | None = None) -> list[float]:
    """Wait for the batches, stop the query and return their milliseconds."""
    try:
        # Not query.recentProgress: it converts every report so far to Python objects, with thousands of calls each time.
        while (last := query._jsq.lastProgress()) is None or last.batchId() < _BATCHES - 1:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.1)
        return [float(report.durationMs["triggerExecution"]) for report in query.recentProgress[:_BATCHES]]
    finally:
        query.stop() if shedder is None else shedder.stop()
