"""The sinks of ``Shedder.write``: a batch that is replayed replaces what it wrote before, or is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.spark.sinks.jdbc_sink import JdbcSink
from penstock.spark.sinks.kafka_sink import KafkaSink
from penstock.spark.sinks.lakehouse import DeltaSink, IcebergSink
from penstock.spark.versions import internals_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["FORMATS", "TABLE_FORMATS", "build_writer"]

FILE_FORMATS = ("csv", "json", "parquet")
TABLE_FORMATS = ("delta", "iceberg", "jdbc", "kafka")
FORMATS = (*FILE_FORMATS, "console", "memory", *TABLE_FORMATS)


def build_writer(
    spark: SparkSession,
    kind: str,
    *,
    schema: StructType | None = None,
    path: str | None = None,
    name: str | None = None,
    output_mode: str = "append",
    options: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[DataFrame, int], None]:
    """Return the function that writes one batch.

    Parameters
    ----------
    spark
        The user's session, in which a memory table is registered.
    kind
        One of ``FORMATS``.
    schema
        The columns of the rows, for targets that have columns of their own; without it only files, memory and console are known.
    path
        Where files go; only for formats that write files, and for ``"delta"``.
    name
        The name of the table; only for ``"memory"``.
    output_mode
        That of the query. With ``"complete"``, a memory table holds the last batch only.
    options
        Passed on to the format; for ``"console"`` only ``numRows`` counts. ``topic`` and ``servers`` for ``"kafka"``, ``table``
        for ``"delta"`` and ``"iceberg"``, ``url``, ``table``, ``key`` and ``batches_table`` for ``"jdbc"``.

    Raises
    ------
    PenstockError
        If the format is unknown, lacks its path or name, or has no connector, or if its target has other columns.
    """
    known = [name for name in FORMATS if schema is not None or name not in TABLE_FORMATS]
    if kind not in known:
        raise PenstockError(f"format must be one of {', '.join(known)}, got {kind!r}; for others use foreach_batch()")
    if kind in FILE_FORMATS:
        if path is None:
            raise PenstockError(f"format {kind!r} needs a path to write to")
        return _write_files(kind, path, options)
    if schema is not None and kind in TABLE_FORMATS:
        return _build_table_writer(spark, kind, schema, path=path, output_mode=output_mode, options=options)
    if path is not None:
        raise PenstockError(f"format {kind!r} writes no files, got path {path!r}")
    if kind == "memory":
        if name is None:
            raise PenstockError("format 'memory' needs name=, the table to query")
        return _MemoryTable(spark, name, is_complete=output_mode == "complete")
    return _print_rows(int(str(options.get("numRows", 20))))


def _build_table_writer(
    spark: SparkSession, kind: str, schema: StructType, *, path: str | None, output_mode: str, options: Mapping[str, object]
) -> Callable[[DataFrame, int], None]:
    """Return the function for a target that knows the number of a batch."""
    if kind == "delta":
        return DeltaSink(spark, schema, path, output_mode, options)
    if path is not None:
        raise PenstockError(f"format {kind!r} takes no path, got {path!r}: name its {'topic' if kind == 'kafka' else 'table'}")
    if kind == "iceberg":
        return IcebergSink(spark, schema, output_mode, options)
    return JdbcSink(spark, schema, output_mode, options) if kind == "jdbc" else KafkaSink(spark, schema, options)


def _write_files(kind: str, path: str, options: Mapping[str, object]) -> Callable[[DataFrame, int], None]:
    """Write one directory per batch, replaced as a whole; Spark reads them all as one table with a column ``batch_id``."""

    def write(df: DataFrame, batch_id: int) -> None:
        writer = df.write.format(kind).mode("overwrite")
        for key, value in options.items():
            writer = writer.option(key, str(value))
        writer.save(f"{path.rstrip('/')}/batch_id={batch_id}")

    return write


class _MemoryTable:
    """A temporary view of all batches in the driver, for tests and small results."""

    def __init__(self, spark: SparkSession, name: str, *, is_complete: bool) -> None:
        self._spark = spark  # the user's, not the clone that a batch runs in
        self._name = name
        self._is_complete = is_complete
        self._batches: dict[int, pa.Table] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        table = internals_of(df.sparkSession).to_arrow(df)
        if self._is_complete:
            self._batches.clear()
        self._batches[batch_id] = table
        everything = pa.concat_tables(self._batches[number] for number in sorted(self._batches))
        internals_of(self._spark).from_arrow(self._spark, everything, df.schema).createOrReplaceTempView(self._name)


def _print_rows(limit: int) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, batch_id: int) -> None:
        table = internals_of(df.sparkSession).to_arrow(df)
        head = table.slice(0, limit)
        print(f"-- batch {batch_id}: {table.num_rows} rows", flush=True)  # noqa: T201 - it is a console
        print(head.to_pandas().to_string(index=False) if head.num_rows else "(empty)", flush=True)  # noqa: T201

    return write
