"""Rows as JSON text and back, without a loss: what travels through Kafka can be read by people and by other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import PenstockError
from penstock.spark.columns import column_named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["check_row_types", "decode_rows", "encode_rows"]

_PLAIN = (NumericType, DecimalType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


def check_row_types(arc: str, schema: StructType) -> None:
    """Refuse columns that JSON can't hold without a loss.

    Raises
    ------
    PenstockError
        In one line that names the arc, the column and its type.
    """
    for column in schema.fields:
        kind = _find_unfit(column.dataType)
        if kind is not None:
            raise PenstockError(
                f"arc {arc!r}: column {column.name!r} holds {kind.simpleString()}, which can't travel through Kafka: convert it "
                "to text or a number, or carry the network's rows in a directory"
            )


def _find_unfit(kind: DataType) -> DataType | None:
    if isinstance(kind, StructType):
        return next((unfit for field in kind.fields if (unfit := _find_unfit(field.dataType)) is not None), None)
    if isinstance(kind, ArrayType):
        return _find_unfit(kind.elementType)
    if isinstance(kind, MapType):
        return _find_unfit(kind.valueType) if isinstance(kind.keyType, StringType) else kind
    return None if isinstance(kind, _PLAIN) else kind


def encode_rows(df: DataFrame) -> DataFrame:
    """Return each row as JSON text, in a column ``value``. Times are microseconds since 1970, dates are days since then."""
    columns = [_to_number(column_named(field.name), field.dataType).alias(field.name) for field in df.schema.fields]
    return df.select(F.to_json(F.struct(*columns), {**_OPTIONS, "ignoreNullFields": "false"}).alias("value"))


def decode_rows(df: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of a column ``value`` with JSON text. Text that is not such a row fails the query."""
    written = StructType([StructField(field.name, _number_type(field.dataType)) for field in schema.fields])
    row = F.from_json(F.col("value").cast("string"), written, {**_OPTIONS, "mode": "FAILFAST"})
    # Through an array: Spark would move a filter behind this before it, and parse once for each column that the filter reads.
    rows = df.select(F.inline(F.array(row)))
    return rows.select(*(_from_number(column_named(field.name), field.dataType).alias(field.name) for field in schema.fields))


def _number_type(kind: DataType) -> DataType:
    return LongType() if isinstance(kind, TimestampType | DateType) else kind


def _to_number(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    return F.unix_date(column).cast("long") if isinstance(kind, DateType) else column


def _from_number(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(column)
    return F.date_from_unix_date(column.cast("int")) if isinstance(kind, DateType) else column
