"""What a journal in an object store adds to a micro-batch, where each request takes 50 ms.

A streaming job under a shedder, by batch: batches of 50,000 rows (``rate-micro-batch``), a count by key within the
batch, into the ``noop`` sink; another decision in every batch, since one that says the same as the last is not waited
for. S3 is moto's server in a process of its own, behind Hadoop's S3A connector, with 50 ms added to every request. Five
arms in turn in one session, several times:

- checkpoint and journal on the disk;
- the checkpoint on the disk, the journal in S3;
- the same, and everything is kept, so that decisions repeat;
- the job without Penstock, its checkpoint in S3;
- the job with Penstock, checkpoint and journal in S3.

The time of an arm in a round is the median of the times that Spark reports for its batches (``triggerExecution``),
without the first ones. The median round counts. The rows also have the requests per batch for the journal's own files,
which include what is written beside the batch.
"""

from __future__ import annotations

import statistics
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock import Controller, Decision, Observation
from penstock.spark.fresh_session import fresh_session
from penstock.testing.s3 import S3Server, fetch_s3a

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.shedder import Shedder

__all__ = ["run"]

_ROWS = 50_000
_BATCHES, _WARM_UP = 25, 6
_ROUNDS, _QUICK_ROUNDS = 3, 1
_LATENCY_S = 0.05
_MAX_ADDED_MS = 110.0
_DISK, _JOURNAL, _SAME = "all on the disk", "journal in S3", "journal in S3, everything kept"
_PLAIN, _ALL = "checkpoint in S3, without Penstock", "checkpoint and journal in S3"


def run(*, quick: bool, say: Say) -> Result:
    """Run the five arms in turn, several times."""
    rounds = _QUICK_ROUNDS if quick else _ROUNDS
    medians_ms: dict[str, list[float]] = {}
    requests: dict[str, list[float]] = {}
    jars = ":".join(fetch_s3a(_hadoop_version()))
    with (
        S3Server() as s3,
        fresh_session("stores", 2, **s3.settings(), **{"spark.driver.extraClassPath": jars}) as (spark, scratch),
    ):
        job = _Job(spark, scratch, s3)
        job.run(_DISK, 5)  # compiles the code
        s3.set(latency_s=_LATENCY_S)
        for number in range(rounds):
            order = [_DISK, _JOURNAL, _SAME, _PLAIN, _ALL]
            for arm in order if number % 2 else reversed(order):
                say(f"round {number + 1} of {rounds}: {arm}")
                s3.requests()
                medians_ms.setdefault(arm, []).append(statistics.median(job.run(arm, _BATCHES)[_WARM_UP:]))
                journal = [path for _, path in s3.requests() if "/penstock/" in path or "/journal" in path]
                requests.setdefault(arm, []).append(len(journal) / _BATCHES)
    rows: list[Row] = [
        {
            "arm": arm,
            "median ms": statistics.median(medians_ms[arm]),
            "shortest round ms": min(medians_ms[arm]),
            "journal's requests per batch": statistics.median(requests[arm]),
        }
        for arm in (_DISK, _JOURNAL, _SAME, _PLAIN, _ALL)
    ]
    bars = [
        _bar("journal in S3 - on the disk, ms per batch", medians_ms[_JOURNAL], medians_ms[_DISK]),
        _bar("the same where everything is kept", medians_ms[_SAME], medians_ms[_DISK]),
        _bar("checkpoint in S3: with Penstock - without, ms per batch", medians_ms[_ALL], medians_ms[_PLAIN]),
    ]
    return Result("stores", rows, bars)


def _bar(what: str, ours_ms: list[float], plain_ms: list[float]) -> Bar:
    return Bar.at_most(what, statistics.median(ours_ms) - statistics.median(plain_ms), _MAX_ADDED_MS)


def _hadoop_version() -> str:
    import pyspark  # noqa: PLC0415 - needs Spark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.rsplit("-", 1)[-1]


class _Wavering(Controller):
    """Never says the same twice in a row, and keeps nearly everything."""

    def update(self, observation: Observation) -> Decision:
        return Decision(1.0 if observation.batch_id % 2 else 0.999)


class _Job:
    """The job in its five forms; each run returns the milliseconds of its batches."""

    def __init__(self, spark: SparkSession, scratch: Path, s3: S3Server) -> None:
        self._spark, self._scratch, self._s3 = spark, scratch, s3
        self._runs = count()

    def run(self, arm: str, batches: int) -> list[float]:
        number = next(self._runs)
        near, far = str(self._scratch / f"checkpoint{number}"), f"{self._s3.url}/checkpoint{number}"
        checkpoint = far if arm in (_PLAIN, _ALL) else near
        if arm == _PLAIN:
            counted = _count_by_key(self._rows())
            writer = counted.writeStream.foreachBatch(_to_noop).outputMode("update")
            return _time_batches(writer.option("checkpointLocation", checkpoint).start(), batches)
        from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

        journal = f"{self._s3.url}/journal{number}" if arm in (_JOURNAL, _SAME) else None
        shedder = Shedder("1 min", controller="keep-all" if arm == _SAME else _Wavering(60.0), journal=journal)
        counted = _count_by_key(shedder.gate(self._rows(), arrival="timestamp", identity="value"))
        query = shedder.foreach_batch(counted, _to_noop, checkpoint=checkpoint, output_mode="update")
        return _time_batches(query, batches, shedder)

    def _rows(self) -> DataFrame:
        options = {"rowsPerBatch": _ROWS, "numPartitions": 2, "startTimestamp": int(time.time() * 1e3)}
        return self._spark.readStream.format("rate-micro-batch").options(**options).load()


def _count_by_key(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    return rows.select((F.col("value") % 100).alias("key"), "timestamp").where("key >= 0")


def _to_noop(batch: DataFrame, batch_id: int) -> None:  # noqa: ARG001 - foreachBatch's signature
    batch.groupBy("key").count().write.format("noop").mode("overwrite").save()


def _time_batches(query: StreamingQuery, batches: int, shedder: Shedder | None = None) -> list[float]:
    """Wait for the batches, stop the query and return their milliseconds."""
    try:
        while (last := query._jsq.lastProgress()) is None or last.batchId() < batches - 1:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.1)
        return [float(report.durationMs["triggerExecution"]) for report in query.recentProgress[:batches]]
    finally:
        query.stop() if shedder is None else shedder.stop()
