"""Columns by their names, whatever characters those contain."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

__all__ = ["MISSING_US", "arrival_micros", "bigint", "column_named", "has_arrival", "quote_name"]

MISSING_US = -1000
"""Stands for the arrival of a row that has none: Kafka's -1 ms, in microseconds."""


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
    return F.unix_micros(column_named(name)) != bigint(MISSING_US)


def arrival_micros(name: str, *, may_lack: bool) -> Column:
    """Return when a row arrived, in microseconds, and ``MISSING_US`` for one that does not say: never null.

    What is never null needs much less generated code.
    """
    micros = F.unix_micros(column_named(name))
    return F.coalesce(micros, bigint(MISSING_US)) if may_lack else micros
