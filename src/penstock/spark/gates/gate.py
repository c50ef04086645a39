"""A gate: its filter, its tables, its counters, and the tags by which its rows are counted in a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column, DataFrame

from penstock.decision.events import MeterReading
from penstock.decision.gate_state import GateState
from penstock.drop.tables import BatchTable, KeepTable
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.errors import PenstockError
from penstock.spark.catalyst import new_tag, one_call_site
from penstock.spark.gates.clock_filter import ClockFilter
from penstock.spark.gates.row_filter import RowFilter, key_types
from penstock.spark.gates.specification import GateSpecification
from penstock.spark.gates.window_filter import WindowFilter
from penstock.spark.readings import take_reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Gate", "build_gate"]


class Gate:
    """One location where rows are dropped. ``state`` is its pure half, which the decision core knows."""

    def __init__(self, spark: SparkSession, specification: GateSpecification, schema: StructType, base_s: float) -> None:
        specification.check(schema)
        self.spark = spark
        self.specification = specification
        unit = specification.unit
        with one_call_site(spark):
            self._filter = _build_filter(spark, specification, schema, base_s)
        self.key_types = key_types(schema, unit) if isinstance(unit, WholeKeys) else ()
        """Of whole keys: the types that are hashed."""
        self.offered_tag, self.kept_tag = new_tag(), new_tag()
        self._published: tuple[KeepTable, ...] = ()

    @property
    def name(self) -> str:
        """The name, which decides which rows are dropped."""
        return self.specification.name

    @property
    def state(self) -> GateState:
        """What the decision core knows of the gate."""
        return self._filter.state

    @property
    def windows(self) -> WindowFilter | None:
        """The filter of a gate that keeps whole windows."""
        return self._filter if isinstance(self._filter, WindowFilter) else None

    @property
    def has_slots(self) -> bool:
        """Whether its table can be set by arrival."""
        return isinstance(self._filter, RowFilter)

    @property
    def reads_slots(self) -> bool:
        """Whether its table is set by arrival now."""
        return isinstance(self._filter, RowFilter) and self._filter.by_arrival.is_on

    def apply(self, df: DataFrame) -> DataFrame:
        """Put the gate on a DataFrame with the columns it was built for, such as the next micro-batch."""
        with one_call_site(self.spark):
            return self._filter.apply(df, self.offered_tag, self.kept_tag, self.specification.weight_column)

    def shed(self, df: DataFrame, reason: str) -> DataFrame:
        """Return the rows of a batch that its table does not keep, with a column that says why."""
        if isinstance(self._filter, ClockFilter):
            raise PenstockError(f"gate {self.name!r} decides by the clock, and would decide otherwise again: leave shed_to out")
        return self._filter.shed(df, reason)

    @property
    def tables(self) -> tuple[KeepTable, ...]:
        """The tables in force; none before the first."""
        return self._published

    @property
    def keeps_everything(self) -> bool:
        """Whether the tables in force keep every row."""
        return bool(self._published) and all(bool((table.keeps >= 1.0).all()) for table in self._published)

    def set_how(self, *, by_arrival: bool) -> None:
        """Say how decisions take effect here, before a query starts: by arrival or, as by default, by batch."""
        if isinstance(self._filter, RowFilter):
            self._filter.set_how(by_arrival=by_arrival)
            self.publish(self._filter.open_tables(by_arrival=by_arrival))

    def publish(self, tables: Sequence[KeepTable]) -> None:
        """Put tables in force for every micro-batch that starts from now on.

        Tables of slots and tables of batches are read by different expressions. Another kind holds from the next batch that Spark
        plans, which may be later than the next that runs.
        """
        if len(tables) == len(self._published) and all(map(_is_same, tables, self._published)):
            return
        if isinstance(self._filter, RowFilter):
            self._filter.set_how(by_arrival=not isinstance(tables[0], BatchTable))
        for cell, table in zip(self._filter.cells, tables, strict=True):
            cell.publish(table)
        self._published = tuple(tables)

    def take_reading(self) -> MeterReading:
        """Read what was counted since the last call."""
        reading, buckets, clocked = self._filter.meters.take(), self.specification.buckets, self.specification.clocked
        if clocked is not None:
            return replace(reading, clock=take_reading(clocked.readings))
        return reading if buckets is None else replace(reading, work=buckets.take_work())

    def event_time(self) -> int | None:
        """Return the latest event time in this run, for a gate of whole windows."""
        return self._filter.event_time()

    def is_whole(self, window: Column, groups: Sequence[Column]) -> Column:
        """Return a condition on results by window: true for windows that were kept."""
        if self.windows is None:
            raise PenstockError(f"gate {self.name!r} keeps no whole windows: give it unit=WholeWindows(...)")
        return self.windows.is_whole(window, groups)


def _build_filter(
    spark: SparkSession, specification: GateSpecification, schema: StructType, base_s: float
) -> RowFilter | WindowFilter | ClockFilter:
    if specification.clocked is not None:
        return ClockFilter(spark, specification, specification.clocked, base_s)
    kind = WindowFilter if isinstance(specification.unit, WholeWindows) else RowFilter
    return kind(spark, specification, schema, base_s)


def _is_same(one: KeepTable, other: KeepTable) -> bool:
    return (
        type(one) is type(other)
        and one.oldest == other.oldest
        and one.latest == other.latest
        and np.array_equal(one.keeps, other.keeps)
        and np.array_equal(one.row_by_slot(), other.row_by_slot())
    )


def build_gate(df: DataFrame, specification: GateSpecification, base_s: float) -> tuple[Gate, DataFrame]:
    """Check the specification and return the gate with the gated DataFrame."""
    gate = Gate(df.sparkSession, specification, df.schema, base_s)
    if specification.shed_to is not None:
        specification.shed_to.check(df, specification)
    return gate, gate.apply(df)
