"""The gate: one native filter for every kind of drop, ``u(row) < table[index(row)]``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import MapType, StructType, TimestampType, VariantType

from penstock.drop.hashing import gate_seed
from penstock.drop.priorities import Classes, share_out
from penstock.drop.tables import BOUND_POWER, SLOT_SHIFT, SLOTS, UNBOUNDED, KeepTable, SlotRing
from penstock.drop.units import Key, Window
from penstock.errors import PenstockError
from penstock.spark.catalyst import SCALE, RowMeter, TableCell, seeded_hash, tagged
from penstock.spark.units import Unit, WindowGate, check_unit, hashable, hashed_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Buckets", "Gate", "GateMeters", "MeterReading", "Sharing", "new_tag"]

# Two tags a gate, one for its count of rows offered and one for the drop itself. Unique in the driver, so that gates of
# several shedders in one query are told apart; far from small numbers that a user's own filter might hold.
_TAGS = itertools.count(1_000_000_001, 2)


def new_tag() -> int:
    """A number for something else that is counted in a plan."""
    return next(_TAGS)


_NO_SLOT = 1 << 60  # above every slot of a timestamp, below what a table set by batch calls its oldest
_TICK_SHIFT = 10  # arrival times are summed in units of 2^10 microseconds: a shift instead of a division


class Sharing(Protocol):
    """Shares a keep out among buckets of rows."""

    keeps: np.ndarray

    def share_out(self, keep: float) -> np.ndarray:
        """Return the keep of each bucket."""

    def update_offered(self, rows: Sequence[float]) -> None:
        """Take in how many rows of each bucket a batch had, where that is counted."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Classes without names: the column with a row's bucket, who shares a keep out among them, and whether to count each."""

    column: str
    sharing: Sharing
    counted: bool


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What a gate's counters gathered since they were last read."""

    kept: int
    mean_arrival_s: float | None
    offered_by_class: tuple[int, ...] | None
    kept_by_class: tuple[int, ...] | None
    null_arrivals: int
    older_than_ring: int


@dataclass(slots=True)
class GateMeters:
    """The counters of one gate. Arrival times are summed in coarse ticks since ``base_s``, to stay far from overflow."""

    base_s: float | None
    """``None`` where the gate knows no arrival times."""
    arrivals: RowMeter
    null_arrivals: RowMeter
    older: RowMeter
    by_class: tuple[RowMeter, ...]
    kept_by_class: tuple[RowMeter, ...]

    @classmethod
    def of(cls, spark: SparkSession, classes: int, base_s: float | None, *, kept: bool) -> GateMeters:
        """Make the counters; one a class where there are several, and with ``kept`` one for what is kept of it."""
        by_class = tuple(RowMeter(spark) for _ in range(classes)) if classes > 1 else ()
        kept_by_class = tuple(RowMeter(spark) for _ in by_class) if kept else ()
        return cls(base_s, RowMeter(spark), RowMeter(spark), RowMeter(spark), by_class, kept_by_class)

    def take(self) -> MeterReading:
        """Read and reset."""
        kept, ticks = self.arrivals.take(), self.arrivals.take_sum()
        timed = kept and self.base_s is not None
        return MeterReading(
            kept=kept,
            mean_arrival_s=(self.base_s or 0.0) + (ticks / kept + 0.5) * (1 << _TICK_SHIFT) / 1e6 if timed else None,
            offered_by_class=tuple(meter.take() for meter in self.by_class) or None,
            kept_by_class=tuple(meter.take() for meter in self.kept_by_class) or None,
            null_arrivals=self.null_arrivals.take(),
            older_than_ring=self.older.take(),
        )


@dataclass(slots=True, eq=False)
class Gate:
    """One place where rows are dropped: its columns, its table and its counters."""

    name: str
    spark: SparkSession
    seed: int
    identity: tuple[str, ...]
    arrival: str | None
    classes: Classes | None
    offered_tag: int
    kept_tag: int
    cell: TableCell
    meters: GateMeters
    ring: SlotRing
    other_weight_given: bool
    """Whether the user gave all unnamed classes a weight."""
    unit: Unit | None = None
    """What is kept or dropped as one, where that is not the row."""
    hashed: tuple[str, ...] = ()
    """Of whole keys: the types that are hashed."""
    windows: WindowGate | None = None
    whole_tag: int = 0
    sharing: Sharing | None = None
    """Who shares one keep out among buckets, where the classes are buckets."""
    partitions: int | None = None
    """Tasks a batch at a bounded gate; ``None`` until a batch has shown."""
    offered_by_class: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def class_count(self) -> int:
        """How many keep probabilities one slot holds."""
        return len(self.classes.names) if self.classes else self.ring.classes

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes, one for a gate without classes."""
        return self.classes.names if self.classes else ("all",)

    @property
    def unit_name(self) -> str:
        """What is kept or dropped as one."""
        return "row" if self.unit is None else "key" if isinstance(self.unit, Key) else "window"

    @property
    def bounded(self) -> bool:
        """Whether the rank of a row in its partition counts."""
        return self.ring.bounded

    def keeps(self, keep: float, full_rows: float | None = None) -> tuple[float, ...]:
        """Share one keep probability out among the classes; for a bounded gate, with the rows of a partition kept in full."""
        bound = (self._full_a_partition(full_rows),) if self.bounded else ()
        if self.sharing is not None:
            return tuple(self.sharing.share_out(keep).tolist())
        if self.windows is not None:
            return self.windows.decided(keep)
        if self.classes is None:
            return (float(keep), *bound)
        offered = self.offered_by_class if self.offered_by_class.any() else np.ones(self.class_count)
        return (*(float(value) for value in share_out(keep, self.classes, offered)), *bound)

    def _full_a_partition(self, full_rows: float | None) -> float:
        """In steps of a fifth, so that a small change is none."""
        if full_rows is None or self.partitions is None:
            return UNBOUNDED
        coarse: float = 2.0 ** (round(4.0 * math.log2(max(1.0, full_rows / self.partitions))) / 4.0)
        return min(UNBOUNDED, coarse)

    def learn_classes(self, offered: Sequence[int]) -> None:
        """Take in how many rows of each class a batch had; older batches count less."""
        if self.sharing is not None:
            self.sharing.update_offered(offered)
            return
        self.offered_by_class = 0.5 * self.offered_by_class + 0.5 * np.asarray(offered, dtype=np.float64)

    def publish_batch(self, keeps: Sequence[float]) -> None:
        """Put keeps in force for every row of the batches to come."""
        if self.windows is not None:
            self.windows.publish(keeps)
        else:
            self.cell.publish(KeepTable.for_batch(keeps))

    def recall(self, keeps: Sequence[float], windows: Mapping[str, Any] | None = None) -> None:
        """Take back from the journal what was decided, and all that was before; only windows need more than the last of it."""
        if self.windows is not None:
            if windows is not None:
                self.windows.ring.restore(windows)
            self.windows.recall(keeps)

    def whole(self, window: Column, by: Sequence[Column]) -> Column:
        """A condition on results by window: true for windows that were kept."""
        if self.windows is None:
            raise PenstockError(f"gate {self.name!r} keeps no whole windows: give it unit=ps.window(...)")
        return tagged(self.whole_tag, self.windows.whole(window, by))

    def publish_ring(self) -> None:
        """Put the ring of arrival slots in force."""
        self.cell.publish(self.ring.table())

    @classmethod
    def build(
        cls,
        df: DataFrame,
        *,
        name: str,
        base_s: float,
        arrival: str | None,
        identity: Sequence[str] | None,
        classes: str | Column | None,
        weights: Mapping[Any, float] | None,
        weight: str | None,
        bounded: bool = False,
        buckets: Buckets | None = None,
        unit: Unit | None = None,
        costs: Mapping[Any, float] | None = None,
        floor: float = 0.0,
    ) -> tuple[Gate, DataFrame]:
        """Check the arguments and return the gate with the gated DataFrame."""
        spark = df.sparkSession
        schema = df.schema
        _check_arrival(name, schema, arrival)
        check_unit(name, schema, unit, identity=identity, classes=classes, weight=weight, bounded=bounded, buckets=buckets)
        chosen = unit.columns if isinstance(unit, Key) else _identity(name, schema, identity)
        known = _classes(name, schema, classes, weights, costs=costs, floor=floor)
        if weight is not None and weight in df.columns:
            raise PenstockError(f"gate {name!r}: the weight column {weight!r} exists already; choose another name")
        count = len(buckets.sharing.keeps) if buckets is not None else len(known.names) if known else 1
        tag = next(_TAGS)
        if bounded and arrival is None:
            raise PenstockError(f"gate {name!r}: bounded=True needs arrival=, the column of arrival times")
        ring = SlotRing(count, bounded=bounded)
        cell = TableCell(spark, KeepTable.for_batch(ring.start))
        gate = cls(
            name=name,
            spark=spark,
            seed=gate_seed(f"key {unit.family}" if isinstance(unit, Key) else name),
            identity=chosen,
            arrival=arrival,
            classes=known,
            offered_tag=tag,
            kept_tag=tag + 1,
            cell=cell,
            meters=GateMeters.of(
                spark,
                1 if buckets and not buckets.counted else count,
                None if arrival is None else base_s,
                kept=known is not None,
            ),
            ring=ring,
            other_weight_given=weights is not None and None in weights,
            unit=unit,
            hashed=hashed_types(schema, unit) if isinstance(unit, Key) else (),
            windows=WindowGate(spark, unit, gate_seed(name), cell, schema) if isinstance(unit, Window) else None,
            whole_tag=new_tag(),
            sharing=buckets.sharing if buckets else None,
            offered_by_class=np.zeros(count),
        )
        return gate, gate._apply(df, buckets.column if buckets else classes, weight)

    def apply(self, df: DataFrame) -> DataFrame:
        """Put the same gate on another DataFrame with the same columns, such as the next micro-batch."""
        return self._apply(df, None, None)

    def _apply(self, df: DataFrame, classes: str | Column | None, weight: str | None) -> DataFrame:
        if self.windows is not None:
            through = df.where(tagged(self.offered_tag, self.windows.seen()))
            gated = through.where(tagged(self.kept_tag, self.windows.kept() & self._metered(df.schema)))
            return gated if weight is None else gated.withColumn(weight, self.windows.weight())
        index = self._class_index(classes)
        threshold = self._threshold(df.schema, index)
        columns = [hashable(df.schema, c) if isinstance(self.unit, Key) else _quoted(c) for c in self.identity]
        bits = F.shiftrightunsigned(seeded_hash(self.spark, self.seed, columns), 11).cast("double")
        offered = tagged(self.offered_tag, _counted_by_class(index, self.meters.by_class))
        counted = df.where(offered)
        share = f"__penstock_share_{self.name}"
        if self.bounded:
            # A column of its own: read in the condition, a rank would count only the rows that get that far.
            counted = counted.withColumn(share, self._share_by_rank(df.schema))
            threshold = threshold * math.prod([_quoted(share)] * BOUND_POWER, start=F.lit(1.0))
        kept = (bits < threshold) & self._metered(df.schema)
        by_class = _counted_by_class(index, self.meters.kept_by_class)
        gated = counted.where(tagged(self.kept_tag, kept if by_class is None else kept & by_class))
        weighted = gated if weight is None else gated.withColumn(weight, F.lit(SCALE) / threshold)
        return weighted.drop(share) if self.bounded else weighted

    def _class_index(self, classes: str | Column | None) -> Column:
        """0, 1, ... for the named classes, one more for all others."""
        if self.sharing is not None:
            return _quoted(str(classes))
        if self.classes is None:
            return F.lit(0)
        column = _quoted(classes) if isinstance(classes, str) else classes
        assert column is not None  # noqa: S101 - _classes checked it
        index = F.lit(len(self.classes.values))
        for place, value in enumerate(self.classes.values):
            index = F.when(column == F.lit(value), F.lit(place)).otherwise(index)
        return index

    def _threshold(self, schema: StructType, index: Column) -> Column:
        if self.arrival is None:
            return self.cell.threshold(index)
        place = self._age() if self.ring.columns == 1 else self._age() * F.lit(self.ring.columns) + index
        if not schema[self.arrival].nullable:
            return self.cell.threshold(place)
        # A row that doesn't say when it arrived belongs to no slot: it is kept, always, so a replay keeps it too.
        known = _quoted(self.arrival).isNotNull()
        return F.when(known, self.cell.threshold(place)).otherwise(F.lit(SCALE))

    def _age(self) -> Column:
        return F.least(F.greatest(self._slot() - self.cell.oldest(), _long(0)), _long(SLOTS - 1)).cast("int")

    def _share_by_rank(self, schema: StructType) -> Column:
        """One up to the bound of the row's slot, then bound over rank. Its twin, with the power, is ``tables.share_by_rank``."""
        assert self.arrival is not None  # noqa: S101 - build checked it
        full = self.cell.threshold(self._age() * F.lit(self.ring.columns) + F.lit(self.class_count)) / F.lit(SCALE)
        share = F.least(F.lit(1.0), full / RowMeter(self.spark).ranking().cast("double"))
        if not schema[self.arrival].nullable:
            return share
        return F.when(_quoted(self.arrival).isNull(), F.lit(1.0)).otherwise(share)

    def _slot(self) -> Column:
        assert self.arrival is not None  # noqa: S101 - callers checked it
        return F.shiftright(F.unix_micros(_quoted(self.arrival)), SLOT_SHIFT)

    def _metered(self, schema: StructType) -> Column:
        """Count what passed and when it arrived."""
        if self.arrival is None:
            return self.meters.arrivals.counting(_long(0))
        since_base = F.unix_micros(_quoted(self.arrival)) - F.lit(int((self.meters.base_s or 0.0) * 1e6))
        counted = self.meters.arrivals.counting(F.shiftright(since_base, _TICK_SHIFT))
        if self.windows is not None:
            return self._unless_null(schema, counted)  # its table is of windows, not of arrivals
        # Set by batch, every slot lies before the oldest, and that says nothing about the row.
        by_batch = self.cell.oldest() > _long(_NO_SLOT)
        return self._unless_null(
            schema, counted & ((self._slot() >= self.cell.oldest()) | by_batch | self.meters.older.counting(_long(1)))
        )

    def _unless_null(self, schema: StructType, counted: Column) -> Column:
        assert self.arrival is not None  # noqa: S101 - callers checked it
        if not schema[self.arrival].nullable:
            return counted
        return F.when(_quoted(self.arrival).isNull(), self.meters.null_arrivals.counting(_long(1))).otherwise(counted)


def _counted_by_class(index: Column, meters: Sequence[RowMeter]) -> Column | None:
    """Always true; counts a row at the meter of its class."""
    if not meters:
        return None
    counted = meters[-1].counting(_long(1))
    for place, meter in enumerate(meters[:-1]):
        counted = F.when(index == F.lit(place), meter.counting(_long(1))).otherwise(counted)
    return counted


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _check_arrival(gate: str, schema: StructType, arrival: str | None) -> None:
    if arrival is None:
        return
    if arrival not in schema.names:
        raise PenstockError(f"gate {gate!r}: there is no arrival column {arrival!r}; the columns are {', '.join(schema.names)}")
    if not isinstance(schema[arrival].dataType, TimestampType):
        kind = schema[arrival].dataType.simpleString()
        raise PenstockError(f"gate {gate!r}: the arrival column {arrival!r} must be a timestamp, it is {kind}")


def _identity(gate: str, schema: StructType, identity: Sequence[str] | None) -> tuple[str, ...]:
    """Find the columns that tell rows apart: those named, Kafka's coordinates, or every column that can be hashed."""
    if identity is not None:
        names = (identity,) if isinstance(identity, str) else tuple(identity)
        missing = [name for name in names if name not in schema.names]
        if missing or not names:
            raise PenstockError(
                f"gate {gate!r}: there is no identity column {missing[0]!r}; the columns are {', '.join(schema.names)}"
                if missing
                else f"gate {gate!r}: identity must name at least one column of {', '.join(schema.names)}"
            )
        return names
    if {"topic", "partition", "offset"} <= set(schema.names):
        return ("topic", "partition", "offset")
    names = tuple(f.name for f in schema.fields if not isinstance(f.dataType, MapType | VariantType))
    if not names:
        raise PenstockError(f"gate {gate!r}: no column can be hashed; name the identity columns")
    return names


def _classes(
    gate: str,
    schema: StructType,
    classes: str | Column | None,
    weights: Mapping[Hashable, float] | None,
    *,
    costs: Mapping[Hashable, float] | None = None,
    floor: float = 0.0,
) -> Classes | None:
    if classes is None and weights is None:
        return None
    if classes is None or weights is None:
        missing = "classes, a column or an expression" if classes is None else "weights, {class: weight}"
        raise PenstockError(f"gate {gate!r}: classes and weights go together, {missing} is missing")
    if isinstance(classes, str) and classes not in schema.names:
        raise PenstockError(f"gate {gate!r}: there is no class column {classes!r}; the columns are {', '.join(schema.names)}")
    try:
        return Classes.of(weights, costs, floor)
    except PenstockError as error:
        raise PenstockError(f"gate {gate!r}: {error}") from None
