"""The expression of a gate that keeps rows or whole keys: a hash of the row below the entry of its slot and class."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructType

from penstock.decision.gate_state import SlotGate
from penstock.drop.hashing import gate_seed
from penstock.drop.tables import BOUND_POWER, SLOT_SHIFT, SLOTS
from penstock.drop.units import WholeKeys
from penstock.spark.catalyst import SCALE, RowMeter, TableCell, seeded_hash, tag_condition
from penstock.spark.columns import bigint, column_named
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.meters import GateMeters
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RowFilter", "key_types"]

_NO_SLOT = 1 << 60
"""Above every slot of a timestamp, below what a table set by batch calls its oldest."""
_WHOLE_NUMBERS = ByteType | ShortType | IntegerType | LongType


class _HashedUnit(ABC):
    """What shares one fate: the seed and the columns that are hashed."""

    name: Literal["row", "key"]
    seed: int

    @abstractmethod
    def columns(self, schema: StructType) -> list[Column]:
        """Return what is hashed."""


class _Rows(_HashedUnit):
    name = "row"

    def __init__(self, gate: str, identity: tuple[str, ...]) -> None:
        self.seed = gate_seed(gate)
        self._identity = identity

    def columns(self, schema: StructType) -> list[Column]:  # noqa: ARG002 - rows are hashed as they are
        return [column_named(name) for name in self._identity]


class _Keys(_HashedUnit):
    name = "key"

    def __init__(self, unit: WholeKeys) -> None:
        self.seed = gate_seed(f"key {unit.family}")
        self._unit = unit

    def columns(self, schema: StructType) -> list[Column]:
        """Whole numbers of all sizes are hashed alike, so that both sides of a join agree."""
        types = [schema[name].dataType for name in self._unit.columns]
        columns = [column_named(name) for name in self._unit.columns]
        return [c.cast("bigint") if isinstance(t, _WHOLE_NUMBERS) else c for c, t in zip(columns, types, strict=True)]


def key_types(schema: StructType, unit: WholeKeys) -> tuple[str, ...]:
    """Return the types of a key as they are hashed: keys of other types are other keys."""
    types = [schema[name].dataType for name in unit.columns]
    return tuple("bigint" if isinstance(kind, _WHOLE_NUMBERS) else kind.simpleString() for kind in types)


class RowFilter:
    """Builds the filter. Its table has one entry per class, by batch for all rows, by arrival for each slot."""

    def __init__(self, spark: SparkSession, specification: GateSpecification, schema: StructType, base_s: float) -> None:
        unit = specification.unit
        self._spark = spark
        self._name, self._arrival = specification.name, specification.arrival
        self._unit = (
            _Keys(unit) if isinstance(unit, WholeKeys) else _Rows(specification.name, specification.identity_columns(schema))
        )
        index = class_index_of(specification)
        shares = index.shares()
        self._index = index
        self._classes = shares.count
        self.state = SlotGate(specification.name, shares, unit_name=self._unit.name, is_bounded=specification.is_bounded)
        self.state.arrival_column = self._arrival
        self._cell = TableCell(spark, self.state.tables()[0])
        self.cells = (self._cell,)
        self.meters = GateMeters(spark, self._arrival, base_s, index, shares.count)

    def event_time(self) -> int | None:
        """Rows have no event time that matters here."""
        return None

    def apply(self, df: DataFrame, offered_tag: int, kept_tag: int, weight_column: str | None) -> DataFrame:
        """Return the DataFrame behind the gate."""
        index = self._index.column()
        threshold = self._threshold(df.schema, index)
        bits = F.shiftrightunsigned(seeded_hash(self._spark, self._unit.seed, self._unit.columns(df.schema)), 11).cast("double")
        offered = df.where(tag_condition(offered_tag, self.meters.count_offered(index)))
        share = f"__penstock_share_{self._name}"
        if self.state.is_bounded:
            # A column of its own: read in the condition, a rank would count only the rows that get that far.
            offered = offered.withColumn(share, self._share_by_rank(df.schema))
            threshold = threshold * math.prod([column_named(share)] * BOUND_POWER, start=F.lit(1.0))
        kept = (bits < threshold) & self.meters.count_kept(df.schema, index, self._is_recent())
        gated = offered.where(tag_condition(kept_tag, kept))
        weighted = gated if weight_column is None else gated.withColumn(weight_column, F.lit(SCALE) / threshold)
        return weighted.drop(share) if self.state.is_bounded else weighted

    def _threshold(self, schema: StructType, index: Column) -> Column:
        if self._arrival is None:
            return self._cell.threshold(index)
        columns = self.state.ring.columns
        entry = self._age(self._arrival) if columns == 1 else self._age(self._arrival) * F.lit(columns) + index
        if not schema[self._arrival].nullable:
            return self._cell.threshold(entry)
        # A row that doesn't say when it arrived belongs to no slot: it is always kept, so a replay keeps it too.
        return F.when(column_named(self._arrival).isNotNull(), self._cell.threshold(entry)).otherwise(F.lit(SCALE))

    def _share_by_rank(self, schema: StructType) -> Column:
        """One up to the bound of the row's slot, then bound over rank. Its twin, with the power, is ``tables.share_by_rank``."""
        assert self._arrival is not None  # noqa: S101 - the specification checked it
        bound = self._age(self._arrival) * F.lit(self.state.ring.columns) + F.lit(self._classes)
        share = F.least(F.lit(1.0), self._cell.threshold(bound) / F.lit(SCALE) / RowMeter(self._spark).rank().cast("double"))
        if not schema[self._arrival].nullable:
            return share
        return F.when(column_named(self._arrival).isNull(), F.lit(1.0)).otherwise(share)

    def _is_recent(self) -> Column | None:
        """Whether decisions reach back to the row. Set by batch, every slot lies before the oldest, and that says nothing."""
        if self._arrival is None:
            return None
        oldest = self._cell.oldest()
        return (_slot(self._arrival) >= oldest) | (oldest > bigint(_NO_SLOT))

    def _age(self, arrival: str) -> Column:
        return F.least(F.greatest(_slot(arrival) - self._cell.oldest(), bigint(0)), bigint(SLOTS - 1)).cast("int")


def _slot(arrival: str) -> Column:
    return F.shiftright(F.unix_micros(column_named(arrival)), SLOT_SHIFT)
