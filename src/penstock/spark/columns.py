"""Columns by their names, whatever signs those hold."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

__all__ = ["bigint", "column_named"]


def column_named(name: str) -> Column:
    """Return the column of that name; dots and backticks in it are part of the name."""
    return F.col(f"`{name.replace('`', '``')}`")


def bigint(number: int) -> Column:
    """Return a literal of 64 bits."""
    return F.lit(number).cast("bigint")
