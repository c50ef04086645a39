"""Writes batches to a Kafka topic, each row with the batch's number in its headers.

Spark's producer knows no transactions, so rows come at least once: a batch that is replayed after a crash, and a task that is
tried again, write their rows again. The headers say which query, run and batch a row comes from. A consumer that wants every row
once takes, of each batch of a query, the rows of the last run only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from penstock.errors import PenstockError
from penstock.spark.sinks.batch_identity import BatchIdentity
from penstock.spark.sinks.connectors import check_connector

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["HEADERS_TYPE", "KafkaSink", "add_headers", "check_topic", "kafka_options"]

HEADERS_TYPE = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
_SERVERS = "kafka.bootstrap.servers"
_TEXT = (StringType, BinaryType)
_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": _TEXT,
    "value": _TEXT,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}
_WAIT_MS = 10_000


class KafkaSink:
    """The function that writes one batch."""

    note = (
        "Kafka takes rows at least once: a batch that is replayed after a crash writes its rows again, under the same "
        "penstock-batch header and another penstock-run"
    )

    def __init__(self, spark: SparkSession, schema: StructType, options: Mapping[str, object]) -> None:
        check_connector(spark, "kafka")
        self._options = kafka_options("format 'kafka'", options)
        _check_columns(schema)
        topic = self._options.get("topic")
        if topic is None and "topic" not in schema.names:
            raise PenstockError("format 'kafka' needs topic=, or a column 'topic'")
        if topic is not None:
            check_topic(spark, "format 'kafka'", topic, self._options)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch."""
        batch = BatchIdentity.read(df, batch_id)
        marked = add_headers(df, {"batch": F.lit(str(batch.number)), "query": F.lit(batch.query), "run": F.lit(batch.run)})
        marked.write.format("kafka").options(**self._options).save()


def add_headers(df: DataFrame, headers: Mapping[str, Column]) -> DataFrame:
    """Return rows with more headers, each named ``penstock-...``; a header without a value is left out."""
    added = [
        F.struct(F.lit(f"penstock-{name}").alias("key"), value.cast("binary").alias("value")) for name, value in headers.items()
    ]
    column = F.filter(F.array(*added), lambda header: header["value"].isNotNull()).cast(HEADERS_TYPE)
    if "headers" in df.columns:
        there = F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE))
        column = F.concat(there.cast(HEADERS_TYPE), column)
    return df.withColumn("headers", column)


def kafka_options(what: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark wants them; ``servers`` is short for ``kafka.bootstrap.servers``."""
    given = {name: str(value) for name, value in options.items()}
    if "servers" in given:
        given[_SERVERS] = given.pop("servers")
    if _SERVERS not in given:
        raise PenstockError(f"{what} needs servers=, the address of a broker such as 'host:9092'")
    return given


def check_topic(spark: SparkSession, what: str, topic: str, options: Mapping[str, str]) -> None:
    """Refuse a broker that does not answer, or a topic that it does not have."""
    jvm: Any = spark._jvm
    settings = {name.removeprefix("kafka."): value for name, value in options.items() if name.startswith("kafka.")}
    timeouts = {"default.api.timeout.ms": str(_WAIT_MS), "request.timeout.ms": str(_WAIT_MS)}
    properties = jvm.java.util.Properties()
    for name, value in (settings | timeouts).items():
        properties.put(name, value)
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    try:
        topics = admin.listTopics().names().get()
    except Exception as error:  # Java's, of several kinds
        reason = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise PenstockError(f"{what}: no answer from the broker at {options[_SERVERS]}: {reason}") from None
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))
    if not topics.contains(topic):
        raise PenstockError(f"{what}: the broker at {options[_SERVERS]} has no topic {topic!r}: create it first")


def _check_columns(schema: StructType) -> None:
    if "value" not in schema.names:
        raise PenstockError(
            f"format 'kafka' needs a column 'value' of type string or binary; the columns are {', '.join(schema.names)}"
        )
    for name, kinds in _COLUMNS.items():
        if name in schema.names and not isinstance(schema[name].dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise PenstockError(f"format 'kafka': column {name!r} must be {wanted}, it is {schema[name].dataType.simpleString()}")
