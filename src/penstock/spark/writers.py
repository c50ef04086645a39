"""Sinks that can be written again: a batch that is replayed replaces what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "batch_writer"]

FILE_FORMATS = ("csv", "json", "parquet")
FORMATS = (*FILE_FORMATS, "console", "memory")


def batch_writer(
    spark: SparkSession,
    kind: str,
    *,
    path: str | None = None,
    name: str | None = None,
    output_mode: str = "append",
    options: Mapping[str, object] = MappingProxyType({}),
) -> Callable[[DataFrame, int], None]:
    """Return the function that writes one batch."""
    if kind not in FORMATS:
        raise PenstockError(f"format must be one of {', '.join(FORMATS)}, got {kind!r}; for others use foreach_batch()")
    if kind in FILE_FORMATS:
        if path is None:
            raise PenstockError(f"format {kind!r} needs a path to write to")
        return _to_files(kind, path, options)
    if path is not None:
        raise PenstockError(f"format {kind!r} writes no files, got path {path!r}")
    if kind == "memory":
        if name is None:
            raise PenstockError("format 'memory' needs name=, the table to query")
        return _Memory(spark, name, complete=output_mode == "complete")
    return _to_console(int(str(options.get("numRows", 20))))


def _to_files(kind: str, path: str, options: Mapping[str, object]) -> Callable[[DataFrame, int], None]:
    """One directory a batch, replaced whole; Spark reads them all as one table with a column ``batch_id``."""

    def write(df: DataFrame, batch_id: int) -> None:
        writer = df.write.format(kind).mode("overwrite")
        for key, value in options.items():
            writer = writer.option(key, str(value))
        writer.save(f"{path.rstrip('/')}/batch_id={batch_id}")

    return write


class _Memory:
    """A temporary view of all batches in the driver, for tests and small results."""

    def __init__(self, spark: SparkSession, name: str, *, complete: bool) -> None:
        self._spark = spark  # the user's, not the copy that a batch runs in
        self._name = name
        self._complete = complete
        self._batches: dict[int, pa.Table] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        table = df.toArrow()
        if self._complete:
            self._batches.clear()
        self._batches[batch_id] = table
        everything = pa.concat_tables(self._batches[number] for number in sorted(self._batches))
        self._spark.createDataFrame(everything, schema=df.schema).createOrReplaceTempView(self._name)


def _to_console(rows: int) -> Callable[[DataFrame, int], None]:
    def write(df: DataFrame, batch_id: int) -> None:
        table = df.toArrow()
        shown = table.slice(0, rows)
        print(f"-- batch {batch_id}: {table.num_rows} rows", flush=True)  # noqa: T201 - it is a console
        print(shown.to_pandas().to_string(index=False) if shown.num_rows else "(empty)", flush=True)  # noqa: T201

    return write
