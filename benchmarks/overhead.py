"""What gate, journal and monitor cost a micro-batch that sheds nothing.

A streaming job with gate, journal and monitor and a controller that keeps everything, against the same job without
them: batches of 200,000 rows (``rate-micro-batch``), a count by key and 10-second window. Both forms: ``foreach_batch``
against plain ``foreachBatch``, and ``start`` by arrival against a plain ``writeStream``, all into the ``noop`` sink.

The four arms run in turn in one session, in many short rounds, so that a slow minute of the machine falls on all of them.
Each arm has one DataFrame, and so one gate, for all rounds: its code is as warm as that of a job that has run for a while.
What the first rounds took, while the JVM compiled it, is shown beside the rest. The time of an arm in a round is the median of
what Spark reports for its batches (``triggerExecution``), without the first ones after the start of the query. A round of
Penstock's arm minus that of the plain arm beside it is a difference; the median of the differences counts. The bar of a form
holds if it is at most 15 ms, or 0.05 of the plain time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run"]

_ROWS = 200_000
_BATCHES, _STARTING = 30, 10
_WARM_UP, _ROUNDS, _QUICK_ROUNDS = 4, 13, 3
_MAX_RATIO, _MAX_DIFFERENCE_MS = 1.05, 15.0
_FORMS = ("foreachBatch", "writeStream")


def run(*, quick: bool, say: Say) -> Result:
    """Run the four arms in turn, many times."""
    rounds = _WARM_UP + (_QUICK_ROUNDS if quick else _ROUNDS)
    times_ms: dict[str, list[float]] = {}
    with fresh_session("overhead", 2, **{"spark.sql.streaming.numRecentProgressUpdates": "100"}) as (spark, scratch):
        arms = _build_arms(spark, scratch)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            order = list(arms.items())
            for name, arm in order if number % 2 else reversed(order):  # so that no arm always has the warmer machine
                times_ms.setdefault(name, []).append(_time_batches(arm))
    forms = {form: _compare(form, times_ms[form], times_ms[f"{form}, Penstock"]) for form in _FORMS}
    return Result("overhead", list(forms.values()), [_bar(form, row) for form, row in forms.items()])


def _compare(form: str, plain_ms: Sequence[float], ours_ms: Sequence[float]) -> Row:
    differences = [ours - plain for plain, ours in zip(plain_ms, ours_ms, strict=True)]
    judged = sorted(differences[_WARM_UP:])
    return {
        "form": form,
        "plain ms": statistics.median(plain_ms[_WARM_UP:]),
        "with Penstock ms": statistics.median(ours_ms[_WARM_UP:]),
        "difference ms": statistics.median(judged),
        "middle half of the rounds": f"{judged[len(judged) // 4]:.0f} to {judged[-1 - len(judged) // 4]:.0f}",
        f"first {_WARM_UP} rounds": ", ".join(f"{each:.0f}" for each in differences[:_WARM_UP]),
        "rounds": len(judged),
    }


def _bar(form: str, row: Mapping[str, object]) -> Bar:
    """Return the ratio, or the difference if only the difference holds."""
    plain, difference = float(str(row["plain ms"])), float(str(row["difference ms"]))
    ratio = Bar.at_most(f"{form}: batch time with Penstock / without", 1.0 + difference / plain, _MAX_RATIO)
    absolute = Bar.at_most(f"{form}: batch time with Penstock - without, ms", difference, _MAX_DIFFERENCE_MS)
    return absolute if absolute.holds and not ratio.holds else ratio


def _build_arms(spark: SparkSession, scratch: Path) -> dict[str, Callable[[], StreamingQuery]]:
    """Return the job in its four forms, each a function that starts it once more."""
    from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

    numbers = count()

    def checkpoint() -> str:
        return str(scratch / f"checkpoint{next(numbers)}")

    def rows() -> DataFrame:
        options = {"rowsPerBatch": _ROWS, "numPartitions": 2, "advanceMillisPerBatch": 100}  # batches take longer
        return (
            spark.readStream.format("rate-micro-batch").options(**options).option("startTimestamp", int(time.time() * 1e3)).load()
        )

    def gate(shedder: Shedder) -> DataFrame:
        return _count_by_key(shedder.gate(rows(), arrival="timestamp", identity="value"))

    plain = _count_by_key(rows())
    batches, arrivals = Shedder("1 min", controller="keep-all"), Shedder("1 min", controller="keep-all")
    by_batch, by_arrival = gate(batches), gate(arrivals)

    def start_plain_function() -> StreamingQuery:
        writer = plain.writeStream.foreachBatch(_to_noop).outputMode("update")
        return writer.option("checkpointLocation", checkpoint()).start()

    def start_function() -> StreamingQuery:
        return batches.foreach_batch(by_batch, _to_noop, checkpoint=checkpoint(), output_mode="update")

    def start_plain_sink() -> StreamingQuery:
        writer = plain.writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", checkpoint()).start()

    def start_sink() -> StreamingQuery:
        writer = by_arrival.writeStream.format("noop").outputMode("update")
        return arrivals.start(writer.option("checkpointLocation", checkpoint()), by="arrival")

    arms = (start_plain_function, start_function, start_plain_sink, start_sink)
    return dict(zip([f"{form}{suffix}" for form in _FORMS for suffix in ("", ", Penstock")], arms, strict=True))


def _count_by_key(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    return rows.groupBy(F.window("timestamp", "10 seconds"), (F.col("value") % 100).alias("key")).count()


def _to_noop(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - foreachBatch's signature
    batch.write.format("noop").mode("overwrite").save()


def _time_batches(start: Callable[[], StreamingQuery]) -> float:
    """Run a query for some batches; return the median of their milliseconds."""
    query = start()
    try:
        # Not query.recentProgress: it converts every report so far to Python objects, with thousands of calls each time.
        while (last := query._jsq.lastProgress()) is None or last.batchId() < _BATCHES - 1:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.1)
        reports = query.recentProgress[_STARTING:_BATCHES]
        return statistics.median(float(report.durationMs["triggerExecution"]) for report in reports)
    finally:
        query.stop()
