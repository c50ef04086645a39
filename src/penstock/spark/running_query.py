"""Spark's side of a query while it runs batches: its checkpoint, its plans and its reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint, parse_offsets
from penstock.spark.hadoop_store import open_session_store
from penstock.spark.kafka_source import KafkaTopics
from penstock.spark.offsets import read_rows_per_s
from penstock.spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RunningQuery"]

_UNKNOWN_BYTES = 1 << 60
"""Spark's own default for what it does not know is larger."""


class RunningQuery:
    """Spark's side of a query that has begun to run batches."""

    def __init__(self, spark: SparkSession, df: DataFrame, label: str) -> None:
        # The batch's own session is a copy that knows no queries.
        self.id = str(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        streams = [query._jsq.streamingQuery() for query in spark.streams.active if query.id == self.id]
        if not streams:
            raise PenstockError(f"query {label!r} runs without being known to Spark's query manager")
        self._stream = streams[0]
        self._tracker = spark._jsc.sc().statusTracker()
        self._run_id = str(self._stream.runId().toString())
        self._spark = spark
        self.topics = KafkaTopics(spark, self._stream)
        self._progress: Progress | None = None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Its checkpoint, as the session sees it."""
        return Checkpoint(open_session_store(self._spark, str(self._stream.resolvedCheckpointRoot()), "the checkpoint"))

    def offsets(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the end of the running batch, as JSON.

        Far away, a file costs requests that the batch would wait for, and Spark still has in memory what it has just written.
        """
        if not self.checkpoint.store.is_remote:
            return self.checkpoint.offsets(batch_id)
        logged = self._stream.offsetLog().get(batch_id)
        if not logged.isDefined():
            return self.checkpoint.offsets(batch_id)
        jvm: Any = self._spark._jvm
        stream = jvm.java.io.ByteArrayOutputStream()
        self._stream.offsetLog().serialize(logged.get(), stream)
        return parse_offsets(str(stream.toString("UTF-8")))

    def earliest_offsets(self) -> dict[str, str]:
        """Return the offsets of the first rows that each Kafka source still has, by its name, as JSON."""
        return self.topics.earliest()

    @cached_property
    def rows_per_s(self) -> list[int | None]:
        """How many rows each source makes per second, for those of Spark's that make up rows."""
        sources = self._stream.sources()
        return [read_rows_per_s(str(sources.apply(number).toString())) for number in range(sources.size())]

    def file_bytes(self) -> list[int | None]:
        """Return how many bytes the files have that the running batch takes from each source; ``None`` for one without files."""
        leaves = self.analyzed_plan().collectLeaves()
        nodes = [leaves.apply(position) for position in range(leaves.size())]
        if len(nodes) != len(self.rows_per_s):  # the query also reads tables that are no streams
            nodes = [node for node in nodes if node.isStreaming()]
        if len(nodes) != len(self.rows_per_s):  # sources and leaves can't be told apart
            return [None] * len(self.rows_per_s)
        return [_read_bytes(node) for node in nodes]

    def plan(self) -> Any:
        """Return the executed plan of the batch that is running."""
        return self._stream.lastExecution().executedPlan()

    def analyzed_plan(self) -> Any:
        """Return the logical plan of the batch that is running, with the rows that its sources give it."""
        return self._stream.lastExecution().analyzed()

    def progress(self, batch_id: int) -> Progress | None:
        """Return Spark's report of a batch, which is there by the time the next one starts."""
        if self._progress is None or self._progress.batch_id != batch_id:
            report = self._stream.lastProgress()
            self._progress = None if report is None else Progress.parse(report.json(), partial(self.checkpoint.starts, 0))
        return self._progress if self._progress is not None and self._progress.batch_id == batch_id else None

    def job_ids(self) -> Sequence[int]:
        """Return the Spark jobs of this run that Spark still remembers. Each element read is a call to the JVM."""
        jobs: Sequence[int] = self._tracker.getJobIdsForGroup(self._run_id)
        return jobs


def _read_bytes(node: Any) -> int | None:
    """Return the bytes of the files behind a leaf of a batch's plan; one that has no rows in this batch is made of none."""
    name = str(node.nodeName())
    if name != "LogicalRelation":
        return 0 if name == "LocalRelation" else None
    total = int(node.relation().sizeInBytes())
    return total if total < _UNKNOWN_BYTES else None
