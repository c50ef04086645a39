"""What the operators of ads.yaml do that takes more than an expression."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType


def scored(clicks: DataFrame) -> DataFrame:
    """Score each click: four milliseconds of a model that is not here."""
    schema = StructType([*clicks.schema.fields, StructField("score", DoubleType())])
    return clicks.mapInArrow(_score, schema)


def _score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        end = time.perf_counter() + 0.004 * batch.num_rows
        while time.perf_counter() < end:
            pass
        table = pa.Table.from_batches([batch])
        mixed = pc.bit_wise_and(pc.multiply(table["seq"], 2654435761), 1023)
        yield from table.append_column("score", pc.divide(mixed.cast(pa.float64()), 1024.0)).to_batches()
