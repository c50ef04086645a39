"""Whether an object belongs to Spark Connect."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError

__all__ = ["is_connect", "refuse_connect"]


def is_connect(thing: Any) -> bool:
    """Whether a DataFrame, a writer or a query comes from a Spark Connect session."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def refuse_connect(thing: Any, what: str, instead: str) -> None:
    """Say in one line what can't be had over Spark Connect, and what can."""
    if is_connect(thing):
        raise PenstockError(f"over Spark Connect there is no {what}: {instead}")
