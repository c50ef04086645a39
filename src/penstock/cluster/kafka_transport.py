"""Arcs of a network as topics of Kafka.

A micro-batch is one transaction: all of its rows become visible at once, and with them the note that the batch is written
(``penstock.kafka.batch_producer``). A batch that is replayed is not written again. Spark reads committed rows only and logs
the offsets of each batch before it runs, so a replay on the reader's side reads the same rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.cluster.row_codec import check_row_types, decode_rows, encode_rows
from penstock.errors import PenstockError
from penstock.kafka.batch_producer import BatchProducer, NoteSlot
from penstock.network.transport_settings import TransportSettings
from penstock.spark.sinks.batch_identity import BatchIdentity
from penstock.spark.sinks.connectors import check_connector

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["KafkaTransport"]


class KafkaTransport:
    """Carries arcs as topics.

    Parameters
    ----------
    settings
        Where Kafka is, and how topics are named.
    arcs
        All arcs of the network that pass through Kafka, in one order for all nodes: each has its partition for notes.
    partitions
        How many partitions the topic of each arc has.
    stop
        Set to stop waiting for a broker.
    """

    def __init__(
        self, settings: TransportSettings, arcs: Sequence[str], partitions: Mapping[str, int], stop: threading.Event
    ) -> None:
        self._settings, self._arcs, self._partitions, self._stop = settings, tuple(arcs), dict(partitions), stop
        self._producers: dict[str, BatchProducer] = {}

    def write(self, arc: str, df: DataFrame, batch_id: int, expected_rows: int | None) -> pa.Table | None:  # noqa: ARG002
        """Write one micro-batch, through the driver. One without rows leaves no trace."""
        query = BatchIdentity.read(df, batch_id).query
        producer = self._find_producer(arc)
        if producer.has_written(query, batch_id):
            # A replay. Its rows are not needed again, but the operators upstream must run: their rows are counted.
            df.write.format("noop").mode("overwrite").save()
            return None
        check_row_types(arc, df.schema)
        rows = encode_rows(df).toArrow()["value"]
        if len(rows):
            producer.write(query, batch_id, _Texts(rows))
        return None

    def read(
        self,
        spark: SparkSession,
        arc: str,
        schema: StructType,
        max_batches: int | None = None,
        max_rows: int | None = None,
    ) -> DataFrame:
        """Return an arc as a stream that reads at most ``max_rows`` rows at a time."""
        if max_batches is not None:
            raise PenstockError(f"link {arc!r}: max_batches is for a directory; through Kafka, say max_rows")
        check_connector(spark, "kafka")
        check_row_types(arc, schema)
        settings = self._settings
        options = {f"kafka.{name}": value for name, value in {**settings.options, **settings.spark_options}.items()}
        options |= {
            "kafka.bootstrap.servers": settings.servers,
            "kafka.isolation.level": "read_committed",
            "subscribe": settings.topic_of(arc),
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
        }
        if max_rows is not None:
            options["maxOffsetsPerTrigger"] = str(max_rows)
        return decode_rows(spark.readStream.format("kafka").options(**options).load(), schema)

    def close(self) -> None:
        """Let go of the broker."""
        for producer in self._producers.values():
            producer.close()

    def _find_producer(self, arc: str) -> BatchProducer:
        if arc not in self._producers:
            settings = self._settings
            self._producers[arc] = BatchProducer(
                settings.servers,
                settings.topic_of(arc),
                NoteSlot(settings.batches, self._arcs.index(arc), arc),
                partitions=self._partitions.get(arc, settings.partitions),
                options={**settings.options, **settings.client_options},
                stop=self._stop,
            )
        return self._producers[arc]


class _Texts:
    """The texts of a column as bytes, as often as they are asked for."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._column.chunks:
            yield from chunk.cast("binary").to_pylist()
