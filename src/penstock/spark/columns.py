"""Columns by their names, whatever characters those contain."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

__all__ = ["bigint", "column_named", "has_arrival", "quote_name"]

_NO_TIMESTAMP_US = -1000
"""What Kafka's -1 ms is in microseconds."""


def column_named(name: str) -> Column:
    """Return the column of that name; dots and backticks in it are part of the name."""
    return F.col(quote_name(name))


def quote_name(name: str) -> str:
    """Return a column name as Spark's parser needs it, for methods that take names only.

    >>> quote_name("a.b")
    '`a.b`'
    """
    return f"`{name.replace('`', '``')}`"


def bigint(number: int) -> Column:
    """Return a literal of 64 bits; not a cast, which Spark would evaluate again for every micro-batch."""
    return F.expr(f"{number}L")


def has_arrival(name: str) -> Column:
    """Return a condition that holds for rows that say when they arrived: not null, nor Kafka's -1 ms for "no timestamp"."""
    return F.unix_micros(column_named(name)) != bigint(_NO_TIMESTAMP_US)
