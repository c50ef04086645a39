"""Kafka as a source: what its topics hold, how its batches are cut, and what its failures mean, in one line."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.progress import source_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "KafkaTopics",
    "SPARSE",
    "clip_starts",
    "explain_failure",
    "find_silent_brokers",
    "read_layout",
    "read_options",
]

SPARSE = (
    "fewer rows were read than the offsets of Kafka span, as in topics that are compacted, cut by retention or written in "
    "transactions: the size of a batch known before it runs is an upper bound; the ledger counts the rows that were read"
)
_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
_CONNECT_S = 2.0
_LAYOUT = ("minPartitions", "maxRecordsPerPartition")
"""Options that say how a batch is cut into partitions."""


class KafkaTopics:
    """The Kafka sources of a running query, asked through the client that the query itself uses."""

    def __init__(self, spark: SparkSession, stream: Any) -> None:
        self._jvm: Any = spark._jvm
        self._stream = stream
        self._readers: dict[str, Any] | None = None
        """The client of each source; ``None`` until Spark has made its sources."""

    def latest(self) -> dict[str, str]:
        """Return the offsets behind the last row of each source, by its name, as JSON."""
        return {name: self._to_json(reader.fetchLatestOffsets(self._nothing)) for name, reader in self._find_readers().items()}

    def earliest(self) -> dict[str, str]:
        """Return the offsets of the first rows that each source still has, by its name, as JSON."""
        return {name: self._to_json(reader.fetchEarliestOffsets()) for name, reader in self._find_readers().items()}

    def _find_readers(self) -> dict[str, Any]:
        if self._readers is None:
            sources = self._stream.sources()
            streams = {source_name(number): sources.apply(number) for number in range(sources.size())}
            readers = {name: one.kafkaOffsetReader() for name, one in streams.items() if one.getClass().getName() == _STREAM}
            self._readers = readers if streams else None
            return readers
        return self._readers

    def _to_json(self, offsets: Any) -> str:
        return str(self._json.partitionOffsets(offsets))

    # To find a class takes longer than to call it.

    @cached_property
    def _nothing(self) -> Any:
        return self._jvm.scala.Option.empty()

    @cached_property
    def _json(self) -> Any:
        return self._jvm.org.apache.spark.sql.kafka010.JsonUtils


def read_options(df: DataFrame, *names: str) -> list[dict[str, str]]:
    """Return options of each Kafka source of a streaming DataFrame, as far as they are set."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    options = []
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.nodeName() == "StreamingRelationV2" and leaf.sourceName() == "kafka":
            values = {name: leaf.extraOptions().get(name) for name in names}
            options.append({name: str(value) for name, value in values.items() if value is not None})
    return options


def read_layout(df: DataFrame) -> str:
    """Return how the Kafka sources of a DataFrame cut a batch into partitions: the ranks of rows depend on it.

    Empty if nothing is set, where every partition of a topic is one of the batch.
    """
    return ", ".join(f"{name}={value}" for source in read_options(df, *_LAYOUT) for name, value in sorted(source.items()))


def find_silent_brokers(df: DataFrame) -> list[str]:
    """Return a line for each Kafka source none of whose servers takes a connection."""
    servers = {options["kafka.bootstrap.servers"] for options in read_options(df, "kafka.bootstrap.servers")}
    return [
        f"no Kafka broker takes a connection at {each}: Spark waits for one and then fails; check kafka.bootstrap.servers"
        for each in sorted(servers)
        if not any(_is_open(address) for address in each.split(","))
    ]


def _is_open(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            return True
    except (OSError, ValueError, OverflowError):
        return False


_FAILURES = (
    (
        r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|Some data may have been lost",
        "rows that the checkpoint points at are gone from the topic: retention removed them, or the topic was deleted and "
        "created again; set failOnDataLoss=false to go on with what is there, or start with a new checkpoint",
    ),
    (
        r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION|not present in metadata",
        "a topic does not exist, or no longer: create it, or check subscribe",
    ),
    (r"(Sasl|Ssl)?AuthenticationException|TopicAuthorizationException|GroupAuthorizationException", "Kafka refuses access"),
    (
        r"org\.apache\.kafka\.common\.errors\.(TimeoutException|DisconnectException|NetworkException)"
        r"|No resolvable bootstrap urls|Failed to create new KafkaAdminClient|Failed to construct kafka consumer",
        "Kafka did not answer in time: no broker is there, or a topic was just deleted; when they are back, start the query "
        "again: it goes on from its checkpoint",
    ),
)


def explain_failure(text: str) -> str | None:
    """Return what a failure of Kafka means and what to do; ``None`` for failures of anything else.

    >>> explain_failure("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host it")
    'a topic does not exist, or no longer: create it, or check subscribe'
    >>> explain_failure("ZeroDivisionError") is None
    True
    """
    return next((meaning for pattern, meaning in _FAILURES if re.search(pattern, text)), None)


def clip_starts(starts: Sequence[str | None], earliest: Mapping[str, str]) -> list[str | None]:
    """Return the offsets at which sources start, without what retention has removed.

    >>> clip_starts(['{"t": {"0": 5, "1": 9}}', None], {"source0": '{"t": {"0": 7, "1": 2, "2": 4}}'})
    ['{"t": {"0": 7, "1": 9, "2": 4}}', None]
    """
    clipped = list(starts)
    for number, start in enumerate(starts):
        first = earliest.get(source_name(number))
        if start is None or first is None:
            continue
        offsets = json.loads(start)
        for topic, partitions in json.loads(first).items():
            known = offsets.setdefault(topic, {})
            known |= {partition: max(offset, known.get(partition, 0)) for partition, offset in partitions.items()}
        clipped[number] = json.dumps(offsets)
    return clipped
