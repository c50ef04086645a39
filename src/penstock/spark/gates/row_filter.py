"""The expression of a gate that keeps rows or whole keys: a hash of the row below the entry of its slot and class."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from functools import reduce
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructType

from penstock.decision.gate_state import SlotGate
from penstock.drop.hashing import gate_seed
from penstock.drop.tables import BOUND_POWER, SLOT_SHIFT, KeepTable
from penstock.drop.units import WholeKeys
from penstock.spark.catalyst import ENTRIES, SCALE, RowMeter, Switch, TableCell, seeded_hash, tag_condition
from penstock.spark.columns import bigint, column_named, has_arrival
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.meters import GateMeters
from penstock.spark.gates.reasons import EXPIRED, OVERLOAD
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HashedUnit", "RowFilter", "hashed_unit", "key_types"]

_WHOLE_NUMBERS = ByteType | ShortType | IntegerType | LongType


class HashedUnit(ABC):
    """What shares one fate: the seed and the columns that are hashed."""

    name: Literal["row", "key"]
    seed: int

    @abstractmethod
    def columns(self, schema: StructType) -> list[Column]:
        """Return what is hashed."""


class _Rows(HashedUnit):
    name = "row"

    def __init__(self, seed_name: str, identity: tuple[str, ...]) -> None:
        self.seed = gate_seed(seed_name)
        self._identity = identity

    def columns(self, schema: StructType) -> list[Column]:  # noqa: ARG002 - rows are hashed as they are
        return [column_named(name) for name in self._identity]


class _Keys(HashedUnit):
    name = "key"

    def __init__(self, unit: WholeKeys) -> None:
        self.seed = gate_seed(f"key {unit.family}")
        self._unit = unit

    def columns(self, schema: StructType) -> list[Column]:
        """Whole numbers of all sizes are hashed alike, so that both sides of a join agree."""
        types = [schema[name].dataType for name in self._unit.columns]
        columns = [column_named(name) for name in self._unit.columns]
        return [c.cast("bigint") if isinstance(t, _WHOLE_NUMBERS) else c for c, t in zip(columns, types, strict=True)]


def hashed_unit(specification: GateSpecification, schema: StructType) -> HashedUnit:
    """Return what shares one fate at a gate of rows or of whole keys."""
    if isinstance(specification.unit, WholeKeys):
        return _Keys(specification.unit)
    return _Rows(specification.seed_name or specification.name, specification.identity_columns(schema))


def key_types(schema: StructType, unit: WholeKeys) -> tuple[str, ...]:
    """Return the types of a key as they are hashed: keys of other types are other keys."""
    types = [schema[name].dataType for name in unit.columns]
    return tuple("bigint" if isinstance(kind, _WHOLE_NUMBERS) else kind.simpleString() for kind in types)


class RowFilter:
    """Builds the filter. Its table has one entry per class, by batch for old and for other rows, by arrival for each slot.

    The gate is built before it is known how its query will be driven, so the filter has an expression for both ways. A switch
    tells the optimiser which one to leave out.
    """

    def __init__(self, spark: SparkSession, specification: GateSpecification, schema: StructType, base_s: float) -> None:
        self._spark = spark
        self._name, self._arrival = specification.name, specification.arrival
        self._may_lack_arrival = self._arrival is not None and schema[self._arrival].nullable
        self._unit = hashed_unit(specification, schema)
        index = class_index_of(specification)
        shares = index.shares()
        self._index = index
        self._classes = shares.count
        self.state = SlotGate(
            specification.name, shares, unit_name=self._unit.name, is_bounded=specification.is_bounded_by_arrival
        )
        self.state.arrival_column = self._arrival
        self._by_arrival = Switch(spark)
        self._cell = TableCell(spark, self.state.everything())
        self.cells = (self._cell,)
        self.meters = GateMeters(spark, self._arrival, base_s, index, shares.count)

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None

    def set_how(self, *, by_arrival: bool) -> None:
        """Read tables of slots from the next plan on, or tables of batches."""
        if by_arrival != self._by_arrival.is_on:
            self._by_arrival.turn(is_on=by_arrival)

    def open_tables(self, *, by_arrival: bool) -> tuple[KeepTable, ...]:
        """Return the tables that a query starts with."""
        return self.state.tables() if by_arrival else (self.state.everything(),)

    def apply(self, df: DataFrame, offered_tag: int, kept_tag: int, weight_column: str | None) -> DataFrame:
        """Return the DataFrame behind the gate."""
        index = self._index.column()
        bits = F.shiftrightunsigned(seeded_hash(self._spark, self._unit.seed, self._unit.columns(df.schema)), 11).cast("double")
        offered = df.where(tag_condition(offered_tag, self.meters.count_offered(index)))
        share = None
        if self.state.is_bounded:
            # A column of its own: in the condition it would be computed, and count the row, once for each factor of the power.
            share = f"__penstock_share_{self._name}"
            ranked = F.when(self._by_arrival.column(), self._share_by_rank()).otherwise(F.lit(1.0))
            offered = offered.withColumn(share, ranked)
        counted = self.meters.count_kept(df.schema, index, self._is_recent(), self._is_past())
        threshold = self._threshold(share)
        kept = (bits < threshold) & counted
        if self._arrival is not None:
            is_expired = ~self._by_arrival.column() & self._is_old()
            kept = F.when(bits < threshold, counted).when(is_expired, ~self.meters.count_expired(index)).otherwise(F.lit(False))
        gated = offered.where(tag_condition(kept_tag, kept))
        if weight_column is not None:
            gated = gated.withColumn(weight_column, F.lit(SCALE) / threshold)
        return gated if share is None else gated.drop(share)

    def shed(self, df: DataFrame, reason: str) -> DataFrame:
        """Return the rows that the table of the batch in force does not keep, with a column that says why; nothing is counted."""
        bits = F.shiftrightunsigned(seeded_hash(self._spark, self._unit.seed, self._unit.columns(df.schema)), 11).cast("double")
        is_old = F.lit(False) if self._arrival is None else F.coalesce(self._is_old(), F.lit(False))
        threshold = self._threshold_by_batch(is_old)
        rows = df.where(~F.coalesce(bits < threshold, F.lit(False)))
        return rows.withColumn(reason, F.when(is_old, F.lit(EXPIRED)).otherwise(F.lit(OVERLOAD)))

    def _threshold(self, share: str | None) -> Column:
        """Return the entry of a row, whichever way the table is set."""
        if self._arrival is None:
            return self._threshold_by_batch()
        return F.when(self._by_arrival.column(), self._threshold_by_slot(self._arrival, share)).otherwise(
            self._threshold_by_batch(self._is_old())
        )

    def _threshold_by_batch(self, is_old: Column | None = None) -> Column:
        """Return the entry of a row's class, among those for old rows or those for others."""
        fresh = self._index.column_from(ENTRIES + self.state.ring.columns)
        return self._cell.threshold(
            fresh if is_old is None else F.when(is_old, self._index.column_from(ENTRIES)).otherwise(fresh)
        )

    def _threshold_by_slot(self, arrival: str, share: str | None) -> Column:
        """Return the entry of a row's slot. Without an arrival it has none, and is always kept, so that a replay keeps it too."""
        by_slot = self._cell.threshold(self._slot_start() + self._index.column_from(ENTRIES))
        if share is not None:
            by_slot = by_slot * reduce(operator.mul, [column_named(share)] * BOUND_POWER)
        return F.when(has_arrival(arrival), by_slot).otherwise(F.lit(SCALE)) if self._may_lack_arrival else by_slot

    def _is_old(self) -> Column:
        """Whether the row arrived before the moment that the batch's table names; one without an arrival is new."""
        assert self._arrival is not None  # noqa: S101 - callers have checked it
        is_old = self._micros() < self._cell.oldest()
        return is_old & has_arrival(self._arrival) if self._may_lack_arrival else is_old

    def _share_by_rank(self) -> Column:
        """One up to the bound of the row's slot, then bound over rank. Its twin, with the power, is ``tables.share_by_rank``."""
        bound = self._slot_start() + F.lit(ENTRIES + self._classes)
        return F.least(F.lit(1.0), self._cell.threshold(bound) / F.lit(SCALE) / RowMeter(self._spark).rank().cast("double"))

    def _is_recent(self) -> Column | None:
        """Whether decisions reach back to the row; before the first one they do."""
        return None if self._arrival is None else ~self._by_arrival.column() | (self._slot() >= self._cell.oldest())

    def _is_past(self) -> Column | None:
        """Whether the row arrived before the batch began, which is known by batch only."""
        if self._arrival is None:
            return None
        return self._by_arrival.column() | (self._micros() <= self._cell.latest())

    def _slot_start(self) -> Column:
        """Return where the entries of a row's slot begin; without an arrival, those of the oldest."""
        columns = self.state.ring.columns
        age = F.least(F.greatest(self._slot() - self._cell.oldest(), bigint(0)), self._cell.last()).cast("int")
        return age if columns == 1 else age * F.lit(columns)

    def _slot(self) -> Column:
        return F.shiftright(self._micros(), SLOT_SHIFT)

    def _micros(self) -> Column:
        assert self._arrival is not None  # noqa: S101 - callers have checked it
        return F.unix_micros(column_named(self._arrival))
