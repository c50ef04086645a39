"""Which entry of a gate's table a row reads: one for all, one per priority class, or one per bucket. One small class per kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.drop.priorities import Priorities
from penstock.drop.shares import BucketShares, EqualShare, PriorityShares, Shares
from penstock.spark.catalyst import compute
from penstock.spark.columns import column_named
from penstock.spark.gates.specification import Buckets, GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ClassIndex", "class_index_of"]


class ClassIndex(ABC):
    """The classes of a gate as Spark sees them."""

    counts_offered = False
    """Whether the rows offered are counted by class."""
    counts_kept = False
    """Whether the rows kept are counted by class."""

    @abstractmethod
    def shares(self) -> Shares:
        """Return who shares a keep out among the classes."""

    @abstractmethod
    def column(self) -> Column:
        """Return the index of a row's class: 0, 1, ..."""

    def column_after(self, spark: SparkSession, start: Column) -> Column:
        """Return the index of a row's class, counted from a start."""
        return compute(spark, "Add", start, self.column())


class _OneClass(ClassIndex):
    def shares(self) -> Shares:
        return EqualShare()

    def column(self) -> Column:
        return F.lit(0)

    def column_after(self, spark: SparkSession, start: Column) -> Column:  # noqa: ARG002 - other classes need it
        return start  # nothing for Spark to add up


class _ByPriority(ClassIndex):
    counts_offered = counts_kept = True

    def __init__(self, priorities: Priorities) -> None:
        self._priorities = priorities

    def shares(self) -> Shares:
        return PriorityShares(self._priorities)

    def column(self) -> Column:
        """0, 1, ... for the named classes, one more for all others."""
        given = self._priorities.column
        column = column_named(given) if isinstance(given, str) else given
        index = F.lit(len(self._priorities.values))
        for number, value in enumerate(self._priorities.values):
            index = F.when(column == F.lit(value), F.lit(number)).otherwise(index)
        return index


class _ByBucket(ClassIndex):
    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self.counts_offered = buckets.is_counted

    def shares(self) -> Shares:
        return BucketShares(self._buckets.model)

    def column(self) -> Column:
        return column_named(self._buckets.column)


def class_index_of(specification: GateSpecification) -> ClassIndex:
    """Return the kind of index that a specification asks for."""
    if specification.buckets is not None:
        return _ByBucket(specification.buckets)
    return _OneClass() if specification.priorities is None else _ByPriority(specification.priorities)
