"""How the rank of a row in its task lowers its keep, so that the work of a batch has a bound, however large the batch is."""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.drop.tables import BOUND_POWER
from penstock.spark.catalyst import TableCell, compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RankBound"]


class RankBound:
    """The bound that stands behind the keeps of each entry of a table: the rank up to which rows are kept in full.

    A rank counts the rows of a task from one on. The numpy twin is ``tables.share_by_rank``.
    """

    def __init__(self, spark: SparkSession, cell: TableCell, keeps: int) -> None:
        self._spark, self._cell, self._keeps = spark, cell, keeps

    def is_within(self, rank: Column, start: Column) -> Column:
        """Whether a row whose entries begin at ``start`` is kept in full: most are, and need no share."""
        return rank <= self._bound(start)

    def lower(self, threshold: Column, rank: Column, start: Column) -> Column:
        """Return what the bound leaves of a threshold to a row beyond it: a double."""
        return compute(self._spark, "Multiply", threshold.cast("double"), self._share(rank, start))

    def lower_any(self, threshold: Column, rank: Column, start: Column) -> Column:
        """Return the same for any row."""
        return compute(self._spark, "Multiply", threshold.cast("double"), F.least(F.lit(1.0), self._share(rank, start)))

    def _share(self, rank: Column, start: Column) -> Column:
        power = self._cell.power(compute(self._spark, "Add", start, F.lit(self._keeps + 1)))
        raised = reduce(partial(compute, self._spark, "Multiply"), [rank.cast("double")] * BOUND_POWER)
        return compute(self._spark, "Divide", power, raised)

    def _bound(self, start: Column) -> Column:
        return self._cell.bound(compute(self._spark, "Add", start, F.lit(self._keeps)))
