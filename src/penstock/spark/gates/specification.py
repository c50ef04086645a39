"""What a user asked a gate to do, checked against the DataFrame that it is put on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.accumulators import Accumulator
from pyspark.sql import Column, types
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType

from penstock.drop.priorities import Priorities
from penstock.drop.shares import BucketModel, WorkReading
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.errors import PenstockError
from penstock.las.micro_batch_las import ClockReading, MicroBatchLas

if TYPE_CHECKING:
    from penstock.spark.dead_letters.targets import ShedTarget

__all__ = ["Buckets", "Clocked", "GateSpecification"]

_UNHASHED = (MapType, *(kind for kind in [getattr(types, "VariantType", None)] if kind is not None))  # Spark 3.5 has no variants

_MOST_CLASSES = 32
"""Named classes of one gate. With 100, a driver of a gigabyte runs out of memory when it generates the code."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Classes by cost, for load-aware shedding."""

    column: str
    """The column with a row's bucket."""
    model: BucketModel
    is_counted: bool
    """Whether the rows offered are counted by bucket."""
    take_work: Callable[[], WorkReading | None] = lambda: None
    """Reads what tasks have measured since the last call."""


@dataclass(frozen=True, slots=True)
class Clocked:
    """Rows are decided on one by one, as LAS does, from what is known when their batch begins."""

    key: Column
    las: MicroBatchLas
    readings: Accumulator[ClockReading | None]
    """What the tasks report."""
    cost: Column | None = None
    """The true cost of a row in seconds, for Full Knowledge."""


@dataclass(frozen=True, slots=True)
class GateSpecification:
    """The options of a gate. ``check`` says in one line what is wrong with them."""

    name: str
    arrival: str | None = None
    identity: tuple[str, ...] | None = None
    priorities: Priorities | None = None
    weight_column: str | None = None
    is_bounded: bool | None = None
    """Whether the rank of a row counts by arrival; ``None`` where it can."""
    unit: WholeKeys | WholeWindows | None = None
    buckets: Buckets | None = None
    clocked: Clocked | None = None
    seed_name: str | None = None
    """Decides, if not the name, which rows or windows are dropped: gates that share it decide alike."""
    shed_to: ShedTarget | None = None
    """Where the rows go that are shed."""

    @property
    def is_bounded_by_arrival(self) -> bool:
        """Whether the rank of a row counts if its query is set by arrival."""
        can = self.arrival is not None and self.unit is None and self.buckets is None and self.clocked is None
        return can if self.is_bounded is None else self.is_bounded

    @property
    def has_plain_classes(self) -> bool:
        """Whether the class of a row is a column, and not an expression of the user's."""
        return self.priorities is None or isinstance(self.priorities.column, str)

    def check(self, schema: StructType) -> None:
        """Raise if the options do not fit the columns or each other."""
        self._check_arrival(schema)
        self._check_priorities(schema)
        if self.clocked is not None:
            self._check_clocked()
        if self.unit is not None:
            self._check_unit(schema)
        elif self.identity is not None:
            self._check_identity(schema)
        if self.weight_column is not None and self.weight_column in schema.names:
            raise self._error(f"the weight column {self.weight_column!r} exists already; choose another name")

    def identity_columns(self, schema: StructType) -> tuple[str, ...]:
        """Return the columns that tell rows apart: those named, Kafka's coordinates, or every column that can be hashed."""
        if self.identity is not None:
            return self.identity
        if {"topic", "partition", "offset"} <= set(schema.names):
            return ("topic", "partition", "offset")
        names = tuple(f.name for f in schema.fields if _can_be_hashed(f.dataType))
        if not names:
            raise self._error("no column can be hashed; name the identity columns")
        return names

    def _error(self, message: str) -> PenstockError:
        return PenstockError(f"gate {self.name!r}: {message}")

    def _check_columns(self, schema: StructType, names: Sequence[str], what: str) -> None:
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise self._error(f"there is no {what} {missing[0]!r}; the columns are {', '.join(schema.names)}")

    def _check_timestamp(self, schema: StructType, name: str, what: str) -> None:
        if not isinstance(schema[name].dataType, TimestampType):
            kind = schema[name].dataType.simpleString()
            raise self._error(f"the {what} column {name!r} must be a timestamp, it is {kind}")

    def _check_arrival(self, schema: StructType) -> None:
        if self.arrival is not None:
            self._check_columns(schema, [self.arrival], "arrival column")
            self._check_timestamp(schema, self.arrival, "arrival")
        elif self.is_bounded:
            raise self._error("bounded=True needs arrival=, the column of arrival times")

    def _check_clocked(self) -> None:
        if self.arrival is None:
            raise self._error("this policy needs arrival=, the column of arrival times: it looks at how long rows have waited")
        if self.weight_column is not None:
            raise self._error(
                "this policy drops rows by their place in the queue, not with a probability: leave weight_column out"
            )

    def _check_identity(self, schema: StructType) -> None:
        self._check_columns(schema, self.identity or (), "identity column")
        if not self.identity:
            raise self._error(f"identity must name at least one column of {', '.join(schema.names)}")

    def _check_priorities(self, schema: StructType) -> None:
        if self.priorities is None:
            return
        if not isinstance(self.priorities, Priorities):
            raise self._error(f"priorities must be Priorities(column, weights), got {self.priorities!r}")
        if isinstance(self.priorities.column, str):
            self._check_columns(schema, [self.priorities.column], "class column")
        if len(self.priorities.values) > _MOST_CLASSES:
            raise self._error(
                f"priorities name {len(self.priorities.values)} classes, at most {_MOST_CLASSES} are possible: the plan grows "
                "with their square, and the driver runs out of memory; give the others one weight with None, or shed whole keys"
            )

    def _check_unit(self, schema: StructType) -> None:
        unit = self.unit
        if not isinstance(unit, WholeKeys | WholeWindows):
            raise self._error(f"unit must be WholeKeys(...) or WholeWindows(...), got {unit!r}")
        called = "keys" if isinstance(unit, WholeKeys) else "windows"
        self._check_columns(schema, unit.columns if isinstance(unit, WholeKeys) else (unit.time, *unit.by), "unit column")
        if self.identity is not None:
            raise self._error(f"identity tells rows apart, and this gate keeps whole {called}: leave it out")
        for name, value in (("bounded", self.is_bounded), ("buckets", self.buckets)):
            if value:
                raise self._error(f"{name} looks at single rows, and this gate keeps whole {called}")
        if isinstance(unit, WholeWindows):
            self._check_windows(schema, unit)

    def _check_windows(self, schema: StructType, unit: WholeWindows) -> None:
        self._check_timestamp(schema, unit.time, "time")
        if self.priorities is not None:
            raise self._error("rows of several classes lie in one window, which is kept whole: leave priorities out")
        if self.weight_column is not None and unit.overlap > 1:
            raise self._error(
                f"a row lies in {unit.overlap} windows, each kept or not, so it has no weight: leave weight_column out"
            )


def _can_be_hashed(kind: DataType) -> bool:
    """Whether Spark's hash takes a column: no maps and no variants, however deep."""
    if isinstance(kind, StructType):
        return all(_can_be_hashed(field.dataType) for field in kind.fields)
    return _can_be_hashed(kind.elementType) if isinstance(kind, ArrayType) else not isinstance(kind, _UNHASHED)
