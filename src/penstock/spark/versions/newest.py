"""Spark 4.2 and later, as far as they are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Internals", "SOURCES", "V2"]

V2 = "org.apache.spark.sql.execution.datasources.v2"
SOURCES = "org.apache.spark.sql.execution.streaming.sources"


class Internals:
    """What a version of Spark calls by a name of its own. ``jvm`` is that of a session."""

    has_python_sources = True
    """Whether data sources can be written in Python."""
    has_replay = True
    """Whether they know limits and ``availableNow``, as the replay source needs it."""

    knows_interruptions = True
    """Whether a query that is stopped ends in order where Spark's interruption comes back to it from Python."""

    adaptive_streams: str | None = "spark.sql.adaptive.streaming.stateless.enabled"
    """The setting by which adaptive execution plans streams too; ``None`` where it never does."""

    checkpoint_managers = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"
    """What makes the managers of checkpoint directories."""

    def column(self, jvm: Any, expression: Any) -> Any:
        """Return Java's column of a Catalyst expression."""
        return jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression)

    def expression(self, jvm: Any, column: Column) -> Any:
        """Return the Catalyst expression of a column."""
        return jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc)

    def unchecked(self, jvm: Any) -> Any:
        """Return how an expression computes that checks for no overflow, whatever the session's mode."""
        expressions = jvm.org.apache.spark.sql.catalyst.expressions
        allows_decimal_loss = True
        return expressions.NumericEvalContext(expressions.EvalMode.LEGACY(), allows_decimal_loss)

    def call_site(self, column: Column) -> Any:
        """Return where a column was made; ``None`` where Spark does not note that."""
        java: Any = column._jc
        return java.node().origin()

    def dataset(self, jvm: Any, java_session: Any, plan: Any) -> Any:
        """Return Java's Dataset of a logical plan."""
        return jvm.org.apache.spark.sql.classic.Dataset.ofRows(java_session, plan)

    def internal_dataset(self, java_session: Any, rows: Any, schema: Any) -> Any:
        """Return Java's Dataset of an RDD of internal rows."""
        is_streaming = False
        return java_session.internalCreateDataFrame(rows, schema, is_streaming)

    def time_accumulator(self, jvm: Any) -> Any:
        """Return the accumulator that Spark uses for watermarks: the latest, the earliest and the mean of event times."""
        package = jvm.org.apache.spark.sql.execution.streaming.operators.stateful
        return package.EventTimeStatsAccum(package.EventTimeStats(-(2**63), 2**63 - 1, 0.0, 0))

    def checkpoint_manager(self, jvm: Any, directory: Any, conf: Any) -> Any:
        """Return Spark's own way to write the files of a checkpoint's directory as a whole."""
        # Its interface has the same name, so Spark's object can't be reached by that.
        companion = jvm.java.lang.Class.forName(f"{self.checkpoint_managers}$")
        return companion.getField("MODULE$").get(None).create(directory, conf)

    def write_node(self, jvm: Any, table: Any, rows: Any, query_id: str, *, options: Any, output_mode: Any) -> Any:
        """Return the node of a plan that writes a batch of rows to a table; it has no number yet."""
        nothing = jvm.scala.Option.empty()
        relation = getattr(jvm, f"{V2}.DataSourceV2Relation").create(table, nothing, nothing)
        node = getattr(jvm, f"{SOURCES}.WriteToMicroBatchDataSource")
        return node(relation, rows, query_id, options, output_mode, nothing)

    def to_dict(self, jvm: Any, scala_map: Any) -> dict[str, str]:
        """Return a Scala map as a dictionary."""
        java: Mapping[str, str] = jvm.scala.jdk.javaapi.CollectionConverters.asJava(scala_map)
        return dict(java)

    def arrow_udf(self, function: Callable[..., Any], result: str) -> Any:
        """Return a function over iterators of tuples of Arrow arrays as one that Spark calls."""
        from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - older versions have none

        return arrow_udf(function, result)  # type: ignore[call-overload] # it reads the function's hints

    def to_arrow(self, df: DataFrame) -> pa.Table:
        """Return the rows of a DataFrame."""
        return df.toArrow()

    def from_arrow(self, spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
        """Return a DataFrame of these rows."""
        return spark.createDataFrame(table, schema=schema)
