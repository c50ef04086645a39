"""Spark 3.5: no package of its own for the classic API, Scala 2.12, and no data sources in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.versions.spark40 import Spark40

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Spark35"]


class Spark35(Spark40):
    """Spark 3.5."""

    has_python_sources = False
    knows_interruptions = False

    def column(self, jvm: Any, expression: Any) -> Any:
        """Return Java's column of a Catalyst expression."""
        return jvm.org.apache.spark.sql.Column(expression)

    def expression(self, jvm: Any, column: Column) -> Any:  # noqa: ARG002 - newer versions need it
        """Return the Catalyst expression of a column."""
        java: Any = column._jc
        return java.expr()

    def call_site(self, column: Column) -> Any:  # noqa: ARG002 - newer versions need it
        """Return nothing: expressions have no stack traces yet."""
        return None

    def dataset(self, jvm: Any, java_session: Any, plan: Any) -> Any:
        """Return Java's Dataset of a logical plan."""
        return jvm.org.apache.spark.sql.Dataset.ofRows(java_session, plan)

    def to_dict(self, jvm: Any, scala_map: Any) -> dict[str, str]:
        """Return a Scala map as a dictionary."""
        return dict(jvm.scala.collection.JavaConverters.mapAsJavaMap(scala_map))

    def to_arrow(self, df: DataFrame) -> pa.Table:
        """Return the rows of a DataFrame."""
        import pyarrow as pa  # noqa: PLC0415 - pyspark loads it late too
        from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

        collector: Any = df  # newer versions have no such method
        batches: list[pa.RecordBatch] = collector._collect_as_arrow()
        return pa.Table.from_batches(batches, batches[0].schema if batches else to_arrow_schema(df.schema))

    def from_arrow(self, spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
        """Return a DataFrame of these rows."""
        return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], schema)
