"""The expression of a gate that keeps rows or whole keys: a hash of the row below the entry of its slot and class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructType

from penstock.decision.gate_state import SlotGate
from penstock.drop.hashing import gate_seed
from penstock.drop.tables import SCALE, SLOT_SHIFT, KeepTable
from penstock.drop.units import WholeKeys
from penstock.spark.catalyst import (
    ENTRIES,
    RowMeter,
    Switch,
    TableCell,
    compute,
    fixed_index,
    seeded_hash,
    tag_condition,
    to_integer,
)
from penstock.spark.columns import MISSING_US, arrival_micros, bigint, column_named
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.meters import GateMeters, is_negative
from penstock.spark.gates.rank_bound import RankBound
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
        self.state = SlotGate(
            specification.name, shares, unit_name=self._unit.name, is_bounded=specification.is_bounded_by_arrival
        )
        self.state.arrival_column = self._arrival
        self.by_arrival = Switch(spark)
        """Whether it reads tables of slots, not tables of batches."""
        self._cell = TableCell(spark, self.state.everything(), keeps=shares.count, is_shared=shares.are_many)
        self._is_shared = shares.are_many
        self.cells = (self._cell,)
        self._stride = shares.count + (2 if self.state.is_bounded else 0)  # a bound is followed by its power
        self._bound = RankBound(spark, self._cell, shares.count)
        self.meters = GateMeters(spark, self._arrival, base_s, index, shares.count)

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None

    def set_how(self, *, by_arrival: bool) -> None:
        """Read tables of slots from the next plan on, or tables of batches."""
        if by_arrival != self.by_arrival.is_on:
            self.by_arrival.turn(is_on=by_arrival)
            self.meters.has_slots = by_arrival

    def open_tables(self, *, by_arrival: bool) -> tuple[KeepTable, ...]:
        """Return the tables that a query starts with."""
        return self.state.tables() if by_arrival else (self.state.everything(),)

    def apply(self, df: DataFrame, offered_tag: int, kept_tag: int, weight_column: str | None) -> DataFrame:
        """Return the DataFrame behind the gate."""
        index = self._index.column()
        row = _Row(self._bits(df), fixed_index(ENTRIES + self._stride))
        gated = df.where(tag_condition(offered_tag, self.meters.count_offered(index)))
        # Columns of their own: in a condition, Spark would compute them, and count the row's rank, again at each place.
        helpers = {}
        if self._arrival is not None:
            micros = self._micros()
            helpers = {"start": self._start(micros), "micros": micros}
        if self.state.is_bounded:
            rank = F.when(self.by_arrival.column(), RowMeter(self._spark).rank()).otherwise(bigint(0))
            helpers |= {"bits": row.bits, "rank": rank}
        names = {part: f"__penstock_{part}_{self._name}" for part in helpers}
        if helpers:
            gated = gated.withColumns({names[part]: column for part, column in helpers.items()})
            row = replace(row, **{part: column_named(name) for part, name in names.items()})
        gated = gated.where(tag_condition(kept_tag, self._is_kept(row)))
        if weight_column is not None:
            gated = gated.withColumn(weight_column, self._weight(row))
        return gated.drop(*names.values()) if names else gated

    def shed(self, df: DataFrame, reason: str) -> DataFrame:
        """Return the rows that the table of the batch in force does not keep, with a column that says why; nothing is counted."""
        start, is_old = fixed_index(ENTRIES + self._stride), F.lit(False)
        if self._arrival is not None:
            start, is_old = self._start_by_batch(), self._is_old()
        threshold = self._cell.threshold(self._index.column_after(self._spark, start))
        rows = df.where(~F.coalesce(self._bits(df) < threshold, F.lit(False)))
        return rows.withColumn(reason, F.when(is_old, F.lit(EXPIRED)).otherwise(F.lit(OVERLOAD)))

    def _is_kept(self, row: _Row) -> Column:
        """Whether the row is kept, and counted; one that is shed for its age is counted too."""
        index = self._index.column()
        is_below = row.bits < self._entry(row)
        if row.rank is not None:
            is_within = ~self.by_arrival.column() | self._bound.is_within(row.rank, row.start)
            is_below &= is_within | (row.bits.cast("double") < self._bound.lower(self._entry(row), row.rank, row.start))
        if row.micros is None:
            return is_below & self.meters.count_kept(None, index)
        if self._may_lack_arrival:
            is_below |= self._is_missing(row.micros)
        is_first = row.start == F.lit(ENTRIES)  # by batch, it is old; by arrival, perhaps older than all slots
        is_in_time = F.when(self.by_arrival.column(), ~is_first).otherwise(row.micros <= self._cell.latest())
        lacks = None
        if self._may_lack_arrival:  # by batch, the others that are asked are in the future, so their sign tells
            is_missing = (row.micros == bigint(MISSING_US)).cast("bigint")
            lacks = F.when(self.by_arrival.column(), is_missing).otherwise(is_negative(row.micros))
        counted = self.meters.count_kept(row.micros, index, is_in_time, lacks)
        is_expired = ~self.by_arrival.column() & is_first
        # Not by CASE, whose code is longer: what is counted is true, what has expired is not.
        return (is_below & counted) | (is_expired & ~self.meters.count_expired(row.micros, index))

    def _is_missing(self, micros: Column) -> Column:
        """By arrival, a row that has no arrival is always kept, so that a replay keeps it too."""
        return self.by_arrival.column() & (micros == bigint(MISSING_US))

    def _bits(self, df: DataFrame) -> Column:
        return F.shiftrightunsigned(seeded_hash(self._spark, self._unit.seed, self._unit.columns(df.schema)), 11)

    def _weight(self, row: _Row) -> Column:
        """Return one over the keep of a row."""
        threshold = self._entry(row).cast("double")
        if row.rank is not None:
            bounded = self._bound.lower_any(threshold, row.rank, row.start)
            threshold = F.when(self.by_arrival.column(), bounded).otherwise(threshold)
        weight = F.lit(SCALE) / threshold
        if row.micros is None or not self._may_lack_arrival:
            return weight
        return F.when(self._is_missing(row.micros), F.lit(1.0)).otherwise(weight)

    def _entry(self, row: _Row) -> Column:
        """Return the entry of a row's class."""
        return self._cell.threshold(self._index.column_after(self._spark, row.start))

    def _start(self, micros: Column) -> Column:
        """Return where the entries of a row begin, whichever way the table is set."""
        return F.when(self.by_arrival.column(), self._start_by_slot(micros)).otherwise(self._start_by_batch())

    def _start_by_batch(self) -> Column:
        """First those for rows that arrived before the moment that the table names, then those for all others."""
        return F.when(self._is_old(), F.lit(ENTRIES)).otherwise(F.lit(ENTRIES + self._stride))

    def _is_old(self) -> Column:
        """Whether the row arrived before the moment that the batch's table names; one without an arrival is new, or null here."""
        assert self._arrival is not None  # noqa: S101 - callers have checked it
        micros = arrival_micros(self._arrival, may_lack=False)
        is_old = micros < self._cell.oldest()
        return is_old & (micros != bigint(MISSING_US)) if self._may_lack_arrival else is_old

    def _start_by_slot(self, micros: Column) -> Column:
        slot = F.shiftright(micros, SLOT_SHIFT)
        since = compute(self._spark, "Subtract", slot, self._cell.oldest())
        age = to_integer(self._spark, F.least(F.greatest(since, bigint(0)), self._cell.last()))
        if self._is_shared:
            return self._cell.start(age)
        first = age if self._stride == 1 else compute(self._spark, "Multiply", age, F.lit(self._stride))
        return compute(self._spark, "Add", first, F.lit(ENTRIES))

    def _micros(self) -> Column:
        assert self._arrival is not None  # noqa: S101 - callers have checked it
        return arrival_micros(self._arrival, may_lack=self._may_lack_arrival)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a gate knows of a row."""

    bits: Column
    """The number that its hash gives it, below ``SCALE``."""
    start: Column
    """Where the entries of its slot, or of its age, begin in the table."""
    micros: Column | None = None
    """When it arrived, or ``MISSING_US``."""
    rank: Column | None = None
    """Its number among the rows of its task, from one on, where a bound lowers the keep of late ones."""
