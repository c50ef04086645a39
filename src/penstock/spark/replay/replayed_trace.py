"""The events that a replay plays: generated, or loaded from a trace, once per process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType, TimestampType

from penstock.errors import PenstockError
from penstock.simulation.trace import load_trace
from penstock.simulation.traffic import Traffic
from penstock.spark.replay.options import ReplayOptions

__all__ = ["Events", "build_schema", "load_events"]


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """One lap: its arrival times and its length, and for a trace also its columns, in Spark's Arrow types."""

    t: NDArray[np.float64]
    lap_s: float
    columns: pa.Table | None
    fields: tuple[StructField, ...]
    """The trace's columns as Spark names their types; none for a generator."""


def load_events(options: ReplayOptions) -> Events:
    """Return the events from the cache of the process: Python workers are reused, so this costs time once and not per batch."""
    if isinstance(options.source, Traffic):
        return _load_events(options.source, options.skip_s, options.loop, 0, 0)
    # A file is known by its size and time too: a worker outlives the query, and the file may have changed by then.
    path = Path(options.source)
    stat = path.stat() if path.is_file() else None
    size, mtime_ns = (stat.st_size, stat.st_mtime_ns) if stat else (0, 0)
    return _load_events(options.source, options.skip_s, options.loop, size, mtime_ns)


@lru_cache(maxsize=4)
def _load_events(source: Traffic | str, skip_s: float, loop: bool, _size: int, _mtime_ns: int) -> Events:
    columns: pa.Table | None = None
    fields: tuple[StructField, ...] = ()
    if isinstance(source, Traffic):
        t, end_s = source.arrivals(), source.duration_s
    else:
        trace = load_trace(source)
        t = trace.t
        columns, fields = _cast_for_spark(source, trace.columns)
        # A file does not say when it ends. One mean gap after the last event, laps join without a hole or a spike.
        end_s = float(t[-1] + (t[-1] - t[0]) / max(t.size - 1, 1))
    if skip_s:
        first = int(np.searchsorted(t, skip_s, side="left"))
        t = t[first:] - skip_s
        columns = columns.slice(first) if columns is not None else None
    lap_s = end_s - skip_s
    if t.size == 0:
        raise PenstockError(f"nothing to play: {skip_s:g} s skipped of {end_s:g} s")
    if loop and lap_s <= 0:
        raise PenstockError("option loop needs events at two different times at least")
    t.setflags(write=False)
    return Events(t, lap_s, columns, fields)


def _cast_for_spark(path: str, table: pa.Table) -> tuple[pa.Table, tuple[StructField, ...]]:
    """Cast the columns to exactly the types that Spark expects: it compares the schemas and accepts nothing else."""
    names = [name.lower() for name in table.column_names]
    for name in names:
        if name in {"arrival", "seq"} or names.count(name) > 1:
            raise PenstockError(f"{path}: rename the column {name}: each row has one already")
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        # A CSV column without any value has no type; text can hold its nulls.
        fields.append(pa.field(field.name, pa.string() if pa.types.is_null(kind) else kind))
    try:
        spark_schema = from_arrow_schema(pa.schema(fields))
        # An unsafe cast drops the nanoseconds, which Spark doesn't have; no other type loses anything here.
        table = table.cast(to_arrow_schema(spark_schema, timezone="UTC"), safe=False)
    except (pa.ArrowException, PySparkException) as error:
        raise PenstockError(f"{path}: Spark has no type for a column: {' '.join(str(error).split())}") from error
    return table, tuple(spark_schema.fields)


def build_schema(options: ReplayOptions) -> StructType:
    """Return the schema of the rows; a trace is loaded for it."""
    head = [StructField("arrival", TimestampType()), StructField("seq", LongType())]
    key = [StructField("key", LongType())]
    if isinstance(options.source, Traffic):
        return StructType([*head, *key, StructField("cost_s", DoubleType()), StructField("payload", BinaryType())])
    fields = load_events(options).fields
    has_key = any(field.name.lower() == "key" for field in fields)
    return StructType([*head, *([] if has_key else key), *fields])
