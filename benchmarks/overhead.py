"""What gate, journal and monitor cost a micro-batch that sheds nothing.

A streaming job with gate, journal and monitor and a controller that keeps everything, against the same job without
them: batches of 200,000 rows from Parquet files, a count by key and 10-second window. Both forms: ``foreach_batch``
against plain ``foreachBatch``, and ``start`` by arrival against a plain ``writeStream``, all into the ``noop`` sink.

The four queries run in one session, all the time. They take turns, in an order that changes: a query gets files for one batch
when the one before has ended, so a slow second of the machine falls on all of them. A round is one batch of each. What Spark
reports for a batch (``triggerExecution``) with Penstock, minus that of the plain one in the same round, is a difference; the
median of the differences counts. The first rounds, while the JVM compiles, do not count, and are shown beside the rest. The bar
of a form holds if it is at most 15 ms, or 0.05 of the plain time.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run"]

_ROWS, _FILES = 200_000, 2
_WARM_UP, _ROUNDS, _QUICK_WARM_UP, _QUICK_ROUNDS = 100, 400, 10, 20
_MAX_RATIO, _MAX_DIFFERENCE_MS = 1.05, 15.0
_FORMS = ("foreachBatch", "writeStream")
_CHECKPOINTS = "checkpoints"
_CONF = {
    "spark.sql.streaming.pollingDelay": "50ms",  # queries that wait for their turn look for files, which takes time
    # Without Hadoop's native library, some 25 processes are started per batch to read links and set permissions in a local
    # checkpoint. That takes as long as the batch itself, and varies. These two don't ask for links, nor write checksums.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def run(*, quick: bool, say: Say) -> Result:
    """Let the four queries take turns."""
    warm_up, rounds = (_QUICK_WARM_UP, _QUICK_ROUNDS) if quick else (_WARM_UP, _ROUNDS)
    times_ms: dict[str, list[float]] = {}
    with fresh_session("overhead", 2, **_CONF) as (spark, scratch):
        queries = _start_queries(spark, scratch)
        arms = {name: _Arm(query, scratch / name, scratch / _CHECKPOINTS / name) for name, query in queries.items()}
        files = _write_files(spark, scratch / "files")
        for number in range(warm_up + rounds):
            if number % 50 == 0:
                say(f"round {number + 1} of {warm_up + rounds}")
            # In any order: what a query does after its batch, such as counting it, falls on whoever comes next.
            for name, arm in random.Random(number).sample(list(arms.items()), len(arms)):  # noqa: S311 - no secret
                times_ms.setdefault(name, []).append(arm.run_batch(files))
        for arm in arms.values():
            arm.query.stop()
    forms = {form: _compare(form, times_ms[form], times_ms[_with_penstock(form)], warm_up) for form in _FORMS}
    return Result("overhead", list(forms.values()), [_bar(form, row) for form, row in forms.items()])


class _Arm:
    """One of the queries, which runs a batch when it gets files."""

    def __init__(self, query: StreamingQuery, directory: Path, checkpoint: Path) -> None:
        self.query = query
        self._checkpoint = checkpoint
        self._directory = directory
        self._numbers = itertools.count()
        self._old: list[Path] = []
        self._last_id = -1

    def run_batch(self, files: Sequence[Path]) -> float:
        """Give the query the files of a batch, wait until it has run, and return the milliseconds that Spark reports."""
        number = next(self._numbers)
        hidden = self._directory / f".{number}"
        hidden.mkdir()
        for file in files:
            os.link(file, hidden / file.name)
        hidden.rename(self._directory / str(number))  # all files in one step, else they might become two batches
        # Not query.lastProgress: it converts the report to Python objects, with hundreds of calls.
        stream: Any = self.query
        rows, taken_ms = 0, 0.0
        while rows < _ROWS:  # should Spark make two batches of the files after all, both count
            if (failure := self.query.exception()) is not None:
                raise failure
            if self._old and self._is_running(self._last_id + 1):  # while it runs a batch, it looks for no files
                shutil.rmtree(self._old.pop())  # else it would look through more and more of them
            last = stream._jsq.lastProgress()
            if last is None or last.batchId() <= self._last_id or not last.numInputRows():
                time.sleep(0.02)
                continue
            self._last_id = int(last.batchId())
            rows, taken_ms = rows + int(last.numInputRows()), taken_ms + float(last.durationMs().get("triggerExecution"))
        self._old.append(self._directory / str(number))
        return taken_ms

    def _is_running(self, number: int) -> bool:
        """Whether Spark has logged what is in a batch, and has not committed it."""
        return (self._checkpoint / "offsets" / str(number)).exists() and not (self._checkpoint / "commits" / str(number)).exists()


def _compare(form: str, plain_ms: Sequence[float], ours_ms: Sequence[float], warm_up: int) -> Row:
    differences = [ours - plain for plain, ours in zip(plain_ms, ours_ms, strict=True)]
    judged = sorted(differences[warm_up:])
    # The ranks between which the median lies with 95 %, by the binomial distribution.
    reach = math.ceil(0.98 * math.sqrt(len(judged)))
    middle = len(judged) // 2
    return {
        "form": form,
        "plain ms": statistics.median(plain_ms[warm_up:]),
        "with Penstock ms": statistics.median(ours_ms[warm_up:]),
        "difference ms": statistics.median(judged),
        "95 % of such medians": f"{judged[max(middle - reach, 0)]:.1f} to {judged[min(middle + reach, len(judged) - 1)]:.1f}",
        "middle half of the rounds": f"{judged[len(judged) // 4]:.0f} to {judged[-1 - len(judged) // 4]:.0f}",
        f"first {warm_up} rounds": statistics.median(differences[:warm_up]),
        "rounds": len(judged),
    }


def _bar(form: str, row: Mapping[str, object]) -> Bar:
    """Return the ratio, or the difference if only the difference holds."""
    plain, difference = float(str(row["plain ms"])), float(str(row["difference ms"]))
    ratio = Bar.at_most(f"{form}: batch time with Penstock / without", 1.0 + difference / plain, _MAX_RATIO)
    absolute = Bar.at_most(f"{form}: batch time with Penstock - without, ms", difference, _MAX_DIFFERENCE_MS)
    return absolute if absolute.holds and not ratio.holds else ratio


def _start_queries(spark: SparkSession, scratch: Path) -> dict[str, StreamingQuery]:
    """Start the job in its four forms, each on a directory of its own name."""
    from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

    def rows(name: str) -> DataFrame:
        (scratch / name).mkdir()
        return spark.readStream.schema("value bigint, timestamp timestamp").parquet(str(scratch / name / "*"))

    def checkpoint(name: str) -> str:
        return str(scratch / _CHECKPOINTS / name)

    def gate(shedder: Shedder, name: str) -> DataFrame:
        return _count_by_key(shedder.gate(rows(name), arrival="timestamp", identity="value"))

    function, sink = _FORMS
    queries: dict[str, StreamingQuery] = {}
    shedder = Shedder("1 min", controller="keep-all")
    for name in (function, sink):
        plain = _count_by_key(rows(name)).writeStream.outputMode("update").option("checkpointLocation", checkpoint(name))
        queries[name] = (plain.foreachBatch(_to_noop) if name == function else plain.format("noop")).start()
    name = _with_penstock(function)
    queries[name] = shedder.foreach_batch(
        gate(shedder, name), _to_noop, checkpoint=checkpoint(name), output_mode="update", name="function"
    )
    name = _with_penstock(sink)
    writer = gate(shedder, name).writeStream.format("noop").outputMode("update").queryName("sink")
    queries[name] = shedder.start(writer.option("checkpointLocation", checkpoint(name)), by="arrival")
    return {name: queries[name] for form in _FORMS for name in (form, _with_penstock(form))}


def _with_penstock(form: str) -> str:
    return f"{form}, Penstock"


def _write_files(spark: SparkSession, directory: Path) -> list[Path]:
    """Write the rows of a batch, one file per task."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    first_us = int(time.time() * 1e6)
    rows = spark.range(0, _ROWS, 1, _FILES).select(
        F.col("id").alias("value"), F.timestamp_micros(F.col("id") + F.lit(first_us)).alias("timestamp")
    )
    rows.write.parquet(str(directory))
    return sorted(directory.glob("*.parquet"))


def _count_by_key(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    return rows.groupBy(F.window("timestamp", "10 seconds"), (F.col("value") % 100).alias("key")).count()


def _to_noop(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - foreachBatch's signature
    batch.write.format("noop").mode("overwrite").save()
