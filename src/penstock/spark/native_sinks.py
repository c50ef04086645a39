"""Spark's own sinks, called batch by batch: what a ``DataStreamWriter`` would write to, with its semantics unchanged.

Spark knows two kinds. A sink of the first kind (files, any ``StreamSinkProvider`` such as Delta's, ``foreachBatch``) has a method
that adds a batch under its number. One of the second kind (Kafka, console, memory, ``foreach``, other tables that take streaming
writes) is a table, and a node of the batch's plan writes to it, with the number as its epoch. Both are called here as Spark's
own engine calls them, so a sink that takes a batch once for its number still does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.java_errors import Py4JJavaError
from penstock.spark.sinks.connectors import check_connector
from penstock.spark.sinks.counted_writer import CountedWriter
from penstock.spark.versions import internals_of
from penstock.spark.versions.newest import SOURCES, V2
from penstock.spark.writer_settings import WriterSettings, read_private_field

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.spark.gates import Gate

__all__ = ["NativeSink", "Way", "choose_way", "open_sink"]

Way = Literal["batch", "arrival"]

_UNKEPT = ("memory", "foreach", "foreachBatch", "console", "noop")  # Spark lets them run without a checkpoint that is kept
_UNPARTITIONED = ("memory", "foreach", "foreachBatch")


class NativeSink(CountedWriter, ABC):
    """The function given to the driver: writes one batch with Spark's own sink."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        super().__init__(gates, self.write)

    @abstractmethod
    def write(self, df: DataFrame, batch_id: int) -> None:
        """Let the sink take one batch."""

    def register(self) -> None:
        """The query has started: show its results where Spark would."""


class _BatchSink(NativeSink):
    """A sink of the first kind, which adds a batch under its number."""

    def __init__(self, gates: Sequence[Gate], sink: Any) -> None:
        super().__init__(gates)
        self._sink = sink

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Add the batch."""
        self._sink.addBatch(batch_id, df._jdf)


class _TableSink(NativeSink):
    """A sink of the second kind, a table that takes streaming writes: the number of the batch is the epoch."""

    def __init__(self, gates: Sequence[Gate], table: Any, settings: WriterSettings) -> None:
        super().__init__(gates)
        self._table = table
        self._settings = settings

    def write(self, df: DataFrame, batch_id: int) -> None:
        """Run the plan that Spark would run, on the batch's rows."""
        java, jvm = df._jdf, _jvm(df)
        query_id = str(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        internals = internals_of(df.sparkSession)
        rows, settings = java.queryExecution().analyzed(), self._settings
        options, mode = settings.java_options.originalMap(), settings.java_output_mode
        plan = internals.write_node(jvm, self._table, rows, query_id, options=options, output_mode=mode)
        internals.dataset(jvm, java.sparkSession(), plan.withNewBatchId(batch_id)).collect()


class _MemorySink(_TableSink):
    """Spark's table in the driver's memory, readable by the query's name."""

    def __init__(self, gates: Sequence[Gate], settings: WriterSettings, df: DataFrame) -> None:
        super().__init__(gates, getattr(_jvm(df), f"{SOURCES}.MemorySink")(), settings)
        self._df = df

    def register(self) -> None:
        """Show the table under the query's name."""
        jvm = _jvm(self._df)
        attributes = jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(self._df._jdf.schema())
        plan = getattr(jvm, f"{SOURCES}.MemoryPlan")(self._table, attributes)
        view = internals_of(self._df.sparkSession).dataset(jvm, self._df._jdf.sparkSession(), plan)
        view.createOrReplaceTempView(self._settings.name)


def choose_way(by: Way | None, table: str | None) -> Way | None:
    """Return how decisions take effect for a query that writes to a table of the catalog: only Spark itself can start one."""
    if table is None:
        return by
    if by == "batch":
        raise PenstockError(
            f"a query to table {table!r} can't run by batch: leave by= out, or use write(df, 'delta', table=...) or 'iceberg'"
        )
    return "arrival" if by is None else by


def open_sink(
    writer: DataStreamWriter, settings: WriterSettings, gates: Sequence[Gate], by: Way | None = None
) -> NativeSink | None:
    """Return the sink of a writer, to be called batch by batch; ``None`` if the query is to run by arrival.

    Raises
    ------
    PenstockError
        If ``by`` is ``"batch"`` and the query can't run by batch, or if the writer lacks what its sink needs.

    """
    if by not in ("batch", "arrival", None):
        raise PenstockError(f"by must be 'batch', 'arrival' or None, got {by!r}")
    if by == "arrival":
        return None
    if not settings.logs_all_batches:
        if by is None:
            return None
        raise PenstockError(
            "a query with asyncProgressTrackingEnabled can't run by batch, since its batches start before their offsets are "
            "logged: leave the option out, or start it with by='arrival'"
        )
    _check(writer, settings)
    return _build(writer, settings, gates)


def _check(writer: DataStreamWriter, settings: WriterSettings) -> None:
    """Refuse what Spark refuses of this sink and would allow a ``foreachBatch``."""
    kind = settings.format
    if kind == "kafka":
        check_connector(writer._df.sparkSession, "kafka")
    if not settings.has_checkpoint and kind not in _UNKEPT:
        raise PenstockError(f"format {kind!r} needs a checkpoint: add .option('checkpointLocation', ...) to the writer")
    if kind in _UNPARTITIONED and read_private_field(writer._jwrite, "partitioningColumns").isDefined():
        raise PenstockError(f"format {kind!r} can't be partitioned: leave out partitionBy()")
    if kind != "memory":
        return
    if settings.name is None:
        raise PenstockError("format 'memory' needs queryName(...), the table to query")
    store = settings.find_store() if settings.output_mode != "complete" else None
    if store is not None and Checkpoint(store).list_planned():
        raise PenstockError(
            f"a memory table in {settings.output_mode} mode can't continue from the checkpoint {settings.checkpoint}: "
            "its earlier rows are gone; use a new checkpoint, or complete mode"
        )


def _build(writer: DataStreamWriter, settings: WriterSettings, gates: Sequence[Gate]) -> NativeSink:
    """Choose and make the sink as Spark's ``DataStreamWriter.start`` does."""
    df, java = writer._df, writer._jwrite
    jvm = _jvm(df)
    if settings.format == "memory":
        return _MemorySink(gates, settings, df)
    if settings.format == "foreach":
        parts = [read_private_field(java, name) for name in ("foreachWriter", "foreachWriterEncoder")]
        return _TableSink(gates, getattr(jvm, f"{SOURCES}.ForeachWriterTable").apply(*parts), settings)
    if settings.format == "foreachBatch":
        function = read_private_field(java, "foreachBatchWriter")
        return _BatchSink(gates, getattr(jvm, f"{SOURCES}.ForeachBatchSink")(function, df._jdf.exprEnc()))
    table = _find_table(df, settings)
    if table is not None:
        return _TableSink(gates, table, settings)
    return _BatchSink(gates, _create_v1_sink(writer, settings))


def _find_table(df: DataFrame, settings: WriterSettings) -> Any:
    """Return the table that a format gives for streaming writes; ``None`` if it is a sink of the first kind."""
    jvm, conf = _jvm(df), df._jdf.sparkSession().sessionState().conf()
    kind = jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(settings.format, conf)
    no_kinds, no_values = _new_array(df, "java.lang.Class"), _new_array(df, "java.lang.Object")
    provider = kind.getDeclaredConstructor(no_kinds).newInstance(no_values)
    if (
        not _is_a(df, provider, "org.apache.spark.sql.connector.catalog.TableProvider")
        or _is_a(df, provider, f"{V2}.FileDataSourceV2")
        or kind.getCanonicalName() in str(conf.disabledV2StreamingWriters()).split(",")
    ):
        return None
    if internals_of(df.sparkSession).has_python_sources and _is_a(df, provider, f"{V2}.python.PythonDataSourceV2"):
        provider.setShortName(settings.format)
    utils, internals = getattr(jvm, f"{V2}.DataSourceV2Utils"), internals_of(df.sparkSession)
    options = internals.to_dict(jvm, settings.java_options.originalMap())
    of_session = internals.to_dict(jvm, utils.extractSessionConfigs(provider, conf))
    named = {name.lower() for name in options}
    options |= {name: value for name, value in of_session.items() if name.lower() not in named}
    # An interface's default method, which py4j does not see.
    takes_schema = kind.getMethod("supportsExternalMetadata", no_kinds).invoke(provider, no_values)
    schema = jvm.scala.Option.apply(df._jdf.schema() if takes_schema else None)
    insensitive = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
    table = utils.getTableFromProvider(provider, insensitive, schema)
    streaming = jvm.org.apache.spark.sql.connector.catalog.TableCapability.STREAMING_WRITE
    return table if table.capabilities().contains(streaming) else None


def _jvm(df: DataFrame) -> Any:
    return df.sparkSession._jvm


def _is_a(df: DataFrame, java: Any, name: str) -> bool:
    from py4j.java_gateway import is_instance_of  # noqa: PLC0415 - the client of Spark Connect has none

    return bool(is_instance_of(df.sparkSession.sparkContext._gateway, java, name))


def _new_array(df: DataFrame, kind: str, *values: Any) -> Any:
    gateway: Any = df.sparkSession.sparkContext._gateway
    array = gateway.new_array(getattr(gateway.jvm, kind), len(values))
    for position, value in enumerate(values):
        array[position] = value
    return array


def _create_v1_sink(writer: DataStreamWriter, settings: WriterSettings) -> Any:
    """Call the writer's own private method, which knows its partitioning; what Spark raises there is raised here."""
    df, java = writer._df, writer._jwrite
    kinds = _new_array(df, "java.lang.Class", settings.java_options.getClass())
    method = java.getClass().getDeclaredMethod("createV1Sink", kinds)
    method.setAccessible(True)
    try:
        return method.invoke(java, _new_array(df, "java.lang.Object", settings.java_options))
    except Py4JJavaError as error:
        from pyspark.errors.exceptions.captured import convert_exception  # noqa: PLC0415 - as above

        raise convert_exception(error.java_exception.getCause()) from None
