"""Whether rows fit a table that exists already."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import PenstockError

__all__ = ["check_schema"]

_FAMILIES: tuple[tuple[str, tuple[type[DataType], ...]], ...] = (
    ("number", (NumericType,)),
    ("time", (TimestampType, TimestampNTZType, DateType)),
    ("text", (StringType,)),
    ("boolean", (BooleanType,)),
    ("binary", (BinaryType,)),
)


def check_schema(table: str, existing: StructType, rows: StructType) -> None:
    """Refuse rows with a column that a table lacks, or has with a type of another family.

    What the table itself does with a larger number or a missing column is its own affair.

    Raises
    ------
    PenstockError
        In one line that names the column.

    Examples
    --------
    >>> from pyspark.sql.types import LongType, StructType
    >>> check_schema("t", StructType().add("a", LongType()), StructType().add("b", LongType()))
    Traceback (most recent call last):
    ...
    penstock.errors.PenstockError: table t has no column 'b'; its columns are a
    """
    by_name = {field.name.lower(): field.dataType for field in existing.fields}
    for field in rows.fields:
        there = by_name.get(field.name.lower())
        if there is None:
            raise PenstockError(f"table {table} has no column {field.name!r}; its columns are {', '.join(existing.names)}")
        if _family(there) != _family(field.dataType):
            kinds = f"{there.simpleString()} in table {table} and {field.dataType.simpleString()} in the rows"
            raise PenstockError(f"column {field.name!r} is {kinds}: cast it, or write to another table")


def _family(kind: DataType) -> str:
    return next((name for name, kinds in _FAMILIES if isinstance(kind, kinds)), type(kind).__name__)
