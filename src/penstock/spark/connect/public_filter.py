"""A gate's filter made of public functions: a hash of the row below its entry in a table, between two observations that count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.events import MeterReading
from penstock.drop.hashing import seed_value
from penstock.drop.tables import SCALE
from penstock.spark.columns import bigint, column_named, has_arrival
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.row_filter import hashed_unit
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Counts", "PublicFilter", "number_in"]

Counts = Mapping[str, Any]
"""What an observation counted, by name."""


class PublicFilter(ABC):
    """Builds the filter, and reads what its observations counted.

    Parameters
    ----------
    specification
        What the user asked for.
    schema
        The columns of the rows.
    classes
        How many classes the rows have.
    base_us
        Arrival times are summed since this moment, in microseconds.
    """

    def __init__(self, specification: GateSpecification, schema: StructType, classes: int, base_us: int) -> None:
        assert specification.arrival is not None  # noqa: S101 - checked when the gate was made
        self.arrival = specification.arrival
        self.may_lack_arrival = schema[self.arrival].nullable
        self.classes = classes
        self.base_us = base_us
        self._weight_column = specification.weight_column
        self._unit = hashed_unit(specification, schema)
        self._index = class_index_of(specification)
        self.offered_name = f"penstock offered {specification.name!r}"
        self.kept_name = f"penstock kept {specification.name!r}"

    def apply(self, df: DataFrame) -> DataFrame:
        """Put the filter on a DataFrame."""
        table, index = self._read_table(df.sparkSession), self._index.column()
        hashed = F.xxhash64(bigint(seed_value(self._unit.seed)), *self._unit.columns(df.schema))
        counts = {"rows": F.count(F.lit(1)), **self._count_offered(table)}
        offered = df.observe(self.offered_name, *_named(counts), *self._by_class(index, is_counted=self._index.counts_offered))
        # A table that can't be read keeps everything.
        threshold = F.coalesce(self._threshold_of(table, index), bigint(int(SCALE)))
        kept = offered.where(F.shiftrightunsigned(hashed, 11) < threshold)
        if self._weight_column is not None:
            kept = kept.withColumn(self._weight_column, F.lit(SCALE) / threshold)
        counts = {"rows": F.count(F.lit(1)), **self._count_kept(table)}
        return kept.observe(self.kept_name, *_named(counts), *self._by_class(index, is_counted=self._index.counts_kept))

    @abstractmethod
    def _read_table(self, spark: SparkSession) -> Column:
        """Return the table as a struct column, which a running query reads anew before every batch."""

    @abstractmethod
    def _threshold_of(self, table: Column, index: Column) -> Column:
        """Return what the hash of a row must be below."""

    @abstractmethod
    def _count_offered(self, table: Column) -> Mapping[str, Column]:
        """Return what is counted in front of the filter besides the rows."""

    @abstractmethod
    def _count_kept(self, table: Column) -> Mapping[str, Column]:
        """Return what is counted behind the filter besides the rows."""

    @abstractmethod
    def read_counts(self, offered: Counts, kept: Counts) -> MeterReading:
        """Return what was counted in a batch."""

    def _entry(self, age: Column, index: Column) -> Column:
        """Return the number of the entry of a row's age and class."""
        return age if self.classes == 1 else age * F.lit(self.classes) + index

    def micros(self) -> Column:
        """Return when a row arrived, in microseconds."""
        return F.unix_micros(column_named(self.arrival))

    def since_base(self) -> Column:
        """Return the microseconds from the base to a row's arrival, as a number that sums don't overflow."""
        return (self.micros() - bigint(self.base_us)).cast("double")

    def has_arrival(self) -> Column:
        """Return a condition, never null, that holds for rows that say when they arrived."""
        return F.coalesce(has_arrival(self.arrival), F.lit(False))

    def _by_class(self, index: Column, *, is_counted: bool) -> list[Column]:
        numbers = range(self.classes if is_counted else 0)
        return [F.count_if(index == F.lit(number)).alias(f"class{number}") for number in numbers]

    def add_classes(self, reading: MeterReading, offered: Counts, kept: Counts) -> MeterReading:
        """Return a reading with the rows by class, where they are counted."""
        return replace(
            reading,
            offered_by_class=self._read_classes(offered) if self._index.counts_offered else None,
            kept_by_class=self._read_classes(kept) if self._index.counts_kept else None,
        )

    def _read_classes(self, counts: Counts) -> tuple[int, ...]:
        return tuple(number_in(counts, f"class{number}") for number in range(self.classes))

    def mean_s(self, since_base_us: Any, rows: int) -> float | None:
        """Return the mean of arrival times, in seconds since the epoch, from their sum since the base."""
        return (self.base_us + float(since_base_us or 0.0) / rows) / 1e6 if rows else None


def number_in(counts: Counts, name: str) -> int:
    """Return what was counted under a name; Spark leaves out what it did not count."""
    return int(counts.get(name) or 0)


def _named(counts: Mapping[str, Column]) -> list[Column]:
    return [count.alias(name) for name, count in counts.items()]
