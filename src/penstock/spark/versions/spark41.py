"""Spark 4.1: the node that writes a batch to a table takes the table beside its relation; no limits for Python sources."""

from __future__ import annotations

from typing import Any

from penstock.spark.versions.newest import SOURCES, Internals

__all__ = ["Spark41"]


class Spark41(Internals):
    """Spark 4.1."""

    has_replay = False

    def write_node(self, jvm: Any, table: Any, rows: Any, query_id: str, *, options: Any, output_mode: Any) -> Any:
        """Return the node of a plan that writes a batch of rows to a table; it has no number yet."""
        nothing = jvm.scala.Option.empty()
        node = getattr(jvm, f"{SOURCES}.WriteToMicroBatchDataSource")
        return node(nothing, table, rows, query_id, options, output_mode, nothing)
