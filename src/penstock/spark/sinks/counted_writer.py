"""A sink that has a batch already leaves it alone. Its rows are read all the same, once, so that they are counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.spark.plan_counts import PlanCounter
from penstock.spark.running_query import RunningQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.spark.gates import Gate

__all__ = ["CountedWriter"]


class CountedWriter:
    """Calls a function that writes one batch. After a crash, or with a checkpoint set back, it may not read the first ones."""

    def __init__(self, gates: Sequence[Gate], write: Callable[[DataFrame, int], None]) -> None:
        self._gates, self._write = gates, write
        self._has_taken = False
        self.note: str | None = getattr(write, "note", None)
        """What the user should know about the sink, in one line."""

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write one batch."""
        self._write(df, batch_id)
        if not self._has_taken:
            self._has_taken = self._has_read(df)
            if not self._has_taken:
                df.write.format("noop").mode("overwrite").save()

    def _has_read(self, df: DataFrame) -> bool:
        plan = RunningQuery(self._gates[0].spark, df, "query").plan()
        return any(count.offered for count in PlanCounter(self._gates).read(plan).values())
