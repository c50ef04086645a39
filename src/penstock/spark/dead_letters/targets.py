"""Where shed rows go: a directory of Parquet files, a Kafka topic, or only a note of where they lie."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import BinaryType, StringType

from penstock.drop.tables import ALWAYS
from penstock.errors import PenstockError
from penstock.shed.shed_log import OffsetRange, ShedLog, ShedRecord
from penstock.spark.columns import column_named
from penstock.spark.dead_letters.shed_rows import check_replayable, list_leaves, read_offered, to_batch, walk
from penstock.spark.kafka_source import KafkaTopics, read_options
from penstock.spark.sinks.batch_identity import BatchIdentity
from penstock.spark.sinks.connectors import check_connector
from penstock.spark.sinks.kafka_sink import HEADERS_TYPE, add_headers, check_topic, kafka_options
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.gates import Gate, GateSpecification

__all__ = ["REASON", "ShedBatch", "ShedTarget", "parse_target"]

REASON = "penstock_reason"
"""The column that says why a row was shed."""
_COORDINATES = ("topic", "partition", "offset")
_LOSS = "failOnDataLoss"


@dataclass(frozen=True, slots=True)
class ShedBatch:
    """What one gate was offered in one batch."""

    identity: BatchIdentity
    gate: Gate
    offered: Any
    """The part of the batch's plan in front of the gate."""
    session: SparkSession
    """The session that the batch runs in."""
    checkpoint: Store
    topics: KafkaTopics
    """The Kafka sources of the query."""

    def rows(self) -> DataFrame:
        """Return the rows that were shed, with the reason."""
        return to_batch(self.gate.shed(read_offered(self.session, self.offered), REASON))


class ShedTarget(ABC):
    """Takes what a gate sheds, batch by batch."""

    @abstractmethod
    def check(self, df: DataFrame, gate: GateSpecification) -> None:
        """Raise if rows of this gate can't go here; called before the query starts."""

    @abstractmethod
    def write(self, batch: ShedBatch) -> None:
        """Take the rows of one batch; those of the same batch again if it is replayed."""


class ParquetTarget(ShedTarget):
    """A directory per query, gate and batch. A batch that is replayed replaces its own."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")

    def check(self, df: DataFrame, gate: GateSpecification) -> None:
        """Create the directory."""
        check_replayable(df, gate.name)
        _check_reason(df, gate)
        jvm: Any = df.sparkSession._jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(self._path)
            filesystem = path.getFileSystem(df.sparkSession._jsc.hadoopConfiguration())
            filesystem.mkdirs(path)
            probe = jvm.org.apache.hadoop.fs.Path(path, ".penstock-probe")
            filesystem.create(probe, True).close()
            filesystem.delete(probe, False)
        except Exception as error:  # Java's, by filesystem
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise PenstockError(f"gate {gate.name!r}: shed_to {self._path} can't be written: {reason}") from None

    def write(self, batch: ShedBatch) -> None:
        """Write the directory of the batch."""
        identity = batch.identity
        place = (
            f"penstock_query={identity.query}/penstock_gate={quote(batch.gate.name, safe=' ')}/penstock_batch={identity.number}"
        )
        batch.rows().write.mode("overwrite").parquet(f"{self._path}/{place}")


class KafkaTarget(ShedTarget):
    """A topic. The headers of a row say where it comes from; rows of a batch that is replayed come again, with another run."""

    def __init__(self, options: Mapping[str, object]) -> None:
        self._options = kafka_options("shed_to", options)
        if "topic" not in self._options:
            raise PenstockError("shed_to to Kafka needs a topic: {'format': 'kafka', 'topic': ..., 'servers': ...}")

    def check(self, df: DataFrame, gate: GateSpecification) -> None:
        """Ask the broker for the topic."""
        check_replayable(df, gate.name)
        _check_reason(df, gate)
        check_connector(df.sparkSession, "kafka")
        check_topic(df.sparkSession, f"gate {gate.name!r}: shed_to", self._options["topic"], self._options)

    def write(self, batch: ShedBatch) -> None:
        """Write the rows: key, value and headers as they were read from Kafka, or else all columns as JSON."""
        rows, identity = batch.rows(), batch.identity
        headers = {
            "gate": F.lit(batch.gate.name),
            "batch": F.lit(str(identity.number)),
            "query": F.lit(identity.query),
            "run": F.lit(identity.run),
            "reason": F.col(REASON),
        }
        if set(_COORDINATES) <= set(rows.columns):
            headers |= {name: F.col(name).cast("string") for name in _COORDINATES}
            if "timestamp" in rows.columns:
                headers["timestamp"] = F.unix_millis("timestamp").cast("string")
        marked = add_headers(rows if _has_headers(rows) else rows.drop("headers"), headers)
        if _is_message(rows):
            columns = [F.col(name) for name in ("key", "value", "headers") if name in marked.columns]
        else:
            fields = [column_named(name) for name in rows.columns if name != REASON]
            columns = [F.to_json(F.struct(*fields)).alias("value"), F.col("headers")]
        marked.select(*columns).write.format("kafka").options(**self._options).save()


class OffsetsTarget(ShedTarget):
    """Notes where the rows of a batch lie, and the table that judged them; the rows stay where they are, in Kafka."""

    def __init__(self) -> None:
        self._logs: dict[str, ShedLog] = {}  # by checkpoint; each knows what it wrote last
        self._may_lose = False

    def check(self, df: DataFrame, gate: GateSpecification) -> None:
        """Refuse a gate whose decisions can't be found again from coordinates and timestamps alone."""
        if gate.unit is not None or gate.priorities is not None or gate.buckets is not None or gate.clocked is not None:
            raise _refuse(gate, "needs a gate of single rows without priorities, whose table depends on nothing else")
        if set(gate.identity_columns(df.schema)) != set(_COORDINATES) or gate.identity not in (None, _COORDINATES):
            raise _refuse(gate, "needs rows that are told apart by Kafka's topic, partition and offset")
        plan = df._jdf.queryExecution().analyzed()
        for node in walk(plan):
            name, has_children = str(node.nodeName()), node.children().size() > 0
            if has_children and name not in ("Project", "SubqueryAlias", "EventTimeWatermark"):
                raise _refuse(gate, f"needs a gate right behind Kafka, and {name} stands between")
            if not has_children and (name != "StreamingRelationV2" or node.sourceName() != "kafka"):
                raise _refuse(gate, "needs rows from Kafka")
        wanted = {*_COORDINATES} if gate.arrival is None else {*_COORDINATES, gate.arrival}
        ids = dict(_list_columns(plan))
        in_source = {number: name for leaf in list_leaves(plan) for name, number in _list_columns(leaf)}
        for name in wanted:
            if in_source.get(ids[name]) != ("timestamp" if name == gate.arrival else name):
                raise _refuse(gate, f"needs Kafka's own columns, and {name!r} was computed")
        self._may_lose = any(one.get(_LOSS, "").lower() == "false" for one in read_options(df, _LOSS))

    def write(self, batch: ShedBatch) -> None:
        """Note the batch."""
        (table,) = batch.gate.tables
        older, fresh = float(table.keeps[0, 0]), float(table.keeps[-1, 0])
        has_ages = table.oldest != ALWAYS and older != fresh
        # Where Spark passes over what retention has removed, the batch was not offered it; otherwise it would have failed.
        earliest = list(map(json.loads, batch.topics.earliest().values())) if self._may_lose else []
        record = ShedRecord(
            batch.identity.number,
            batch.gate.name,
            fresh,
            tuple(part for leaf in list_leaves(batch.offered) for part in _read_ranges(leaf, earliest)),
            older if has_ages else None,
            table.oldest if has_ages else None,
        )
        place = batch.checkpoint.location
        if place not in self._logs:
            self._logs[place] = ShedLog(batch.checkpoint)
        self._logs[place].add(record)


def parse_target(shed_to: object) -> ShedTarget:
    """Return where a gate's rows go.

    Raises
    ------
    PenstockError
        If it is none of ``"offsets"``, a path, ``{"format": "parquet", "path": ...}`` and
        ``{"format": "kafka", "topic": ..., "servers": ...}``.
    """
    if shed_to == "offsets":
        return OffsetsTarget()
    if isinstance(shed_to, str | Path) and str(shed_to):
        return ParquetTarget(str(shed_to))
    if isinstance(shed_to, Mapping):
        options = dict(shed_to)
        kind = options.pop("format", None)
        if kind == "parquet" and set(options) == {"path"}:
            return ParquetTarget(str(options["path"]))
        if kind == "kafka":
            return KafkaTarget(options)
    raise PenstockError(
        "shed_to must be 'offsets', the path of a directory, or {'format': 'kafka', 'topic': ..., 'servers': ...}, "
        f"got {shed_to!r}"
    )


def _refuse(gate: GateSpecification, why: str) -> PenstockError:
    return PenstockError(f"gate {gate.name!r}: shed_to='offsets' {why}; take a directory or a topic instead")


def _check_reason(df: DataFrame, gate: GateSpecification) -> None:
    if REASON in df.columns:
        raise PenstockError(f"gate {gate.name!r}: shed_to adds a column {REASON!r}, and there is one already")


def _is_message(rows: DataFrame) -> bool:
    """Whether rows have a value that Kafka can take as it is."""
    return "value" in rows.columns and all(
        isinstance(rows.schema[name].dataType, StringType | BinaryType) for name in ("key", "value") if name in rows.columns
    )


def _has_headers(rows: DataFrame) -> bool:
    return "headers" in rows.columns and rows.schema["headers"].dataType.simpleString() == HEADERS_TYPE.simpleString()


def _list_columns(plan: Any) -> Iterator[tuple[str, int]]:
    output = plan.output()
    for position in range(output.size()):
        column = output.apply(position)
        yield str(column.name()), int(column.exprId().id())


def _read_ranges(leaf: Any, earliest: Sequence[Mapping[str, Mapping[str, int]]]) -> Iterator[OffsetRange]:
    """Yield what a batch reads from Kafka: nothing from before the first offsets that topics have, if these are given."""
    start, end = (json.loads(offset.get().json()) for offset in (leaf.startOffset(), leaf.endOffset()))
    for topic, partitions in end.items():
        for partition, last in partitions.items():
            there = (source.get(topic, {}).get(partition, 0) for source in earliest)
            first = max(start.get(topic, {}).get(partition, 0), *there, 0)
            if last > first:
                yield OffsetRange(topic, int(partition), int(first), int(last))
