"""Functions of operators that do what they should not, for the tests of deployment."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def doubled(df: DataFrame) -> DataFrame:
    return df.selectExpr("seq", "arrival", "seq * 2 as twice")


def renamed(df: DataFrame) -> DataFrame:
    return df.withColumnRenamed("seq", "number")


def raises_when_built(df: DataFrame) -> DataFrame:
    raise RuntimeError("not today")


def raises_when_run(df: DataFrame) -> DataFrame:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ValueError(f"a row of {batch.num_rows} is bad")
        yield from ()

    return df.mapInArrow(fail, df.schema)


def returns_nothing(df: DataFrame) -> None:
    return None
