"""Writes batches to tables of Delta and Iceberg, which take a batch once for its number.

Delta keeps, in the transaction that adds a batch, the query's id and the batch's number, and leaves out what it has already.
Iceberg has no such rule, but keeps properties with every snapshot: after a start, the first batch is looked for among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.errors import PenstockError
from penstock.spark.sinks.batch_identity import BatchIdentity
from penstock.spark.sinks.connectors import check_connector
from penstock.spark.sinks.schemas import check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DeltaSink", "IcebergSink"]

_QUERY, _BATCH = "penstock-query", "penstock-batch"


class DeltaSink:
    """The function that writes one batch, with Delta's ``txnAppId`` and ``txnVersion``."""

    note = None

    def __init__(
        self, spark: SparkSession, schema: StructType, path: str | None, output_mode: str, options: Mapping[str, object]
    ) -> None:
        check_connector(spark, "delta")
        self._options = {name: str(value) for name, value in options.items()}
        self._table = self._options.pop("table", None)
        if (path is None) == (self._table is None):
            raise PenstockError("format 'delta' needs a path, or table= with the name of a table")
        _refuse_updates("delta", output_mode)
        self._path = path
        self._mode = "overwrite" if output_mode == "complete" else "append"
        existing = self._read_schema(spark)
        if existing is not None and self._options.get("mergeSchema", "").lower() != "true":
            check_schema(str(self._table or path), existing, schema)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch; Delta leaves out one that it has."""
        batch = BatchIdentity.read(df, batch_id)
        writer: DataFrameWriter = df.write.format("delta").mode(self._mode).options(**self._options)
        writer = writer.option("txnAppId", self._options.get("txnAppId", batch.query)).option("txnVersion", str(batch.number))
        if self._table is None:
            writer.save(self._path)
        else:
            writer.saveAsTable(self._table)

    def _read_schema(self, spark: SparkSession) -> StructType | None:
        """Return the schema of the table; ``None`` if there is none yet."""
        if self._table is not None:
            return spark.table(self._table).schema if spark.catalog.tableExists(self._table) else None
        try:
            return spark.read.format("delta").load(self._path).schema or None
        except Exception as error:
            if type(error).__name__ == "AnalysisException":  # it does not exist
                return None
            raise


class IcebergSink:
    """The function that writes one batch, with its number among the properties of the snapshot."""

    note = None

    def __init__(self, spark: SparkSession, schema: StructType, output_mode: str, options: Mapping[str, object]) -> None:
        check_connector(spark, "iceberg")
        self._options = {name: str(value) for name, value in options.items()}
        table = self._options.pop("table", None)
        if table is None:
            raise PenstockError("format 'iceberg' needs table=, the name of a table in a catalog")
        _refuse_updates("iceberg", output_mode)
        self._spark, self._table = spark, table
        self._is_complete = output_mode == "complete"
        self._written: int | None = None  # the last batch in the table when the query started
        self._exists = spark.catalog.tableExists(table)
        if self._exists:
            check_schema(table, spark.table(table).schema, schema)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch, unless the table has it."""
        batch = BatchIdentity.read(df, batch_id)
        if self._written is None:
            self._written = self._last_batch(df.sparkSession, batch.query) if self._exists else -1
        if not self._exists:
            self._spark.createDataFrame([], df.schema).writeTo(self._table).using("iceberg").createOrReplace()
            self._exists = True
        elif batch.number <= self._written:
            return
        writer = df.writeTo(self._table).options(**self._options)
        for name, value in ((_QUERY, batch.query), (_BATCH, str(batch.number))):
            writer = writer.option(f"snapshot-property.{name}", value)
        if self._is_complete:
            writer.overwrite(F.lit(True))
        else:
            writer.append()

    def _last_batch(self, session: SparkSession, query: str) -> int:
        """Return the number of the last batch of a query among the table's snapshots; -1 if there is none."""
        summary = F.col("summary")
        session.catalog.refreshTable(self._table)  # a catalog may remember the table as it was before the last commits
        snapshots = session.table(f"{self._table}.snapshots").where(summary[_QUERY] == query)
        row = snapshots.agg(F.max(summary[_BATCH].cast("bigint"))).first()
        return -1 if row is None or row[0] is None else int(row[0])


def _refuse_updates(kind: str, output_mode: str) -> None:
    if output_mode == "update":
        raise PenstockError(
            f"format {kind!r} takes output_mode 'append' or 'complete', not 'update': "
            "merge in a function of your own with foreach_batch()"
        )
