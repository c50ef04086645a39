"""Those operators of ads.yaml that take more than an expression."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType

SECONDS_PER_CLICK = 0.004


def score_clicks(clicks: DataFrame) -> DataFrame:
    """Score each click. A busy loop of four milliseconds per click stands in for a model."""
    schema = StructType([*clicks.schema.fields, StructField("score", DoubleType())])
    return clicks.mapInArrow(_score, schema)


def _score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        end_s = time.perf_counter() + SECONDS_PER_CLICK * batch.num_rows
        while time.perf_counter() < end_s:
            pass
        clicks = pa.Table.from_batches([batch])
        hashes = pc.bit_wise_and(pc.multiply(clicks["seq"], 2654435761), 1023)
        yield from clicks.append_column("score", pc.divide(hashes.cast(pa.float64()), 1024.0)).to_batches()
