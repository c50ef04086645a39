"""Gates that keep whole keys or whole windows: what they add to a gate of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import ByteType, IntegerType, LongType, ShortType, StructType, TimestampType

from penstock.drop.tables import SLOTS
from penstock.drop.units import Key, Window, WindowRing
from penstock.errors import PenstockError
from penstock.spark.catalyst import SCALE, TableCell, TimeMeter, seeded_hash

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Unit", "WindowGate", "check_unit", "hashable", "hashed_types"]

Unit: TypeAlias = Key | Window

_WHOLE_NUMBERS = ByteType | ShortType | IntegerType | LongType


def check_unit(gate: str, schema: StructType, unit: Any, **others: Any) -> None:
    """Say what doesn't go together, in one line."""
    if unit is None:
        return
    if not isinstance(unit, Key | Window):
        raise PenstockError(f"gate {gate!r}: unit must be ps.key(...) or ps.window(...), got {unit!r}")
    wanted = unit.columns if isinstance(unit, Key) else (unit.time, *unit.by)
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise PenstockError(
            f"gate {gate!r}: there is no column {missing[0]!r} for its unit; the columns are {', '.join(schema.names)}"
        )
    if others["identity"] is not None:
        raise PenstockError(f"gate {gate!r}: identity tells rows apart, and this gate keeps whole {_called(unit)}: leave it out")
    for name in ("bounded", "buckets"):
        if others[name]:
            raise PenstockError(f"gate {gate!r}: {name} looks at single rows, and this gate keeps whole {_called(unit)}")
    if isinstance(unit, Key):
        return
    if not isinstance(schema[unit.time].dataType, TimestampType):
        kind = schema[unit.time].dataType.simpleString()
        raise PenstockError(f"gate {gate!r}: the time column {unit.time!r} must be a timestamp, it is {kind}")
    if others["classes"] is not None:
        raise PenstockError(f"gate {gate!r}: rows of several classes lie in one window, which is kept whole: leave classes out")
    if others["weight"] is not None and unit.overlap > 1:
        raise PenstockError(
            f"gate {gate!r}: a row lies in {unit.overlap} windows, each kept or not, so it has no weight: leave weight out"
        )


def _called(unit: Unit) -> str:
    return "keys" if isinstance(unit, Key) else "windows"


def hashable(schema: StructType, name: str) -> Column:
    """A key column as it is hashed: whole numbers of all sizes alike, so that both sides of a join agree."""
    column = F.col(f"`{name.replace('`', '``')}`")
    return column.cast("bigint") if isinstance(schema[name].dataType, _WHOLE_NUMBERS) else column


def hashed_types(schema: StructType, unit: Key) -> tuple[str, ...]:
    """The types of a key as they are hashed: keys of other types are other keys."""
    kinds = [schema[name].dataType for name in unit.columns]
    return tuple("bigint" if isinstance(kind, _WHOLE_NUMBERS) else kind.simpleString() for kind in kinds)


class WindowGate:
    """The windows of a gate: which are kept, decided before they begin, in two tables that the query reads.

    A row looks up the slide it lies in: whether any window that it may lie in is kept. With groups each has a fate of its own,
    and the row asks for each of its windows. What has begun is known from the latest time seen at the gate, before anything is
    dropped.
    """

    def __init__(self, spark: SparkSession, unit: Window, seed: int, cell: TableCell, schema: StructType) -> None:
        self._spark = spark
        self.unit = unit
        self.by_types = {name: schema[name].dataType.simpleString() for name in unit.by}
        self.ring = WindowRing(unit, seed)
        self._seed = seed
        self._keeps = cell
        self._rows = TableCell(spark, self.ring.tables()[1])
        self._meter = TimeMeter(spark)
        self._before: int | None = None  # the latest time that was seen before a restart

    # -- decisions -----------------------------------------------------------------------------------------------------

    @property
    def latest(self) -> int | None:
        """The latest time seen at the gate, also before a restart; ``None`` before the first."""
        known = [time for time in (self._meter.latest(), self._before) if time is not None]
        return max(known, default=None)

    def decided(self, keep: float) -> tuple[float, ...]:
        """What to journal: the keep and the first window that it holds for; nothing while no time has been seen."""
        latest, last = self.latest, self.ring.last
        if latest is None:
            return (1.0,) if last is None else (last[1], float(last[0]))
        begun = self.unit.ordinal(latest) + 1
        return (float(keep), float(begun if last is None else max(begun, last[0])))

    def take_up(self, latest: int | None) -> None:
        """After a restart: windows up to this time have begun."""
        self._before = latest

    def recall(self, keeps: Sequence[float]) -> None:
        """Take a decision."""
        if len(keeps) == 2:
            self.ring.decide(int(keeps[1]), keeps[0])

    def publish(self, keeps: Sequence[float]) -> None:
        """Put a decision in force."""
        self.recall(keeps)
        by_window, by_row = self.ring.tables()
        self._keeps.publish(by_window)
        self._rows.publish(by_row)

    # -- expressions ---------------------------------------------------------------------------------------------------

    def seen(self) -> Column:
        """Always true; takes note of the time of each row."""
        time = self._time()
        return F.when(time.isNull(), F.lit(True)).otherwise(self._meter.counting(F.coalesce(time, _long(0))))

    def kept(self) -> Column:
        """Whether a row is kept; one without a time lies in no window, and is kept."""
        ordinal = self._ordinal(self._time())
        if not self.unit.by:
            kept = self._rows.threshold(self._place(ordinal, self._rows)) > F.lit(0.0)
        else:
            groups = [_quoted(name) for name in self.unit.by]
            kept = F.lit(False)
            for back in range(self.unit.overlap):
                kept = kept | self._fate(ordinal - _long(back), groups)
        return F.when(self._time().isNull(), F.lit(True)).otherwise(kept)

    def weight(self) -> Column:
        """One over the keep of the row's window."""
        keep = self._keeps.threshold(self._place(self._ordinal(self._time()), self._keeps))
        return F.when(self._time().isNull(), F.lit(1.0)).otherwise(F.lit(SCALE) / keep)

    def whole(self, window: Column, by: Sequence[Column]) -> Column:
        """Whether a window of the results was kept."""
        return self._fate(self._ordinal(F.unix_micros(window.getField("start"))), by)

    def _fate(self, ordinal: Column, groups: Sequence[Column]) -> Column:
        first = ordinal if self.unit.run == 1 else ordinal - F.pmod(ordinal, _long(self.unit.run))
        start = first * _long(self.unit.slide) + _long(self.unit.offset)
        bits = F.shiftrightunsigned(seeded_hash(self._spark, self._seed, [start, *groups]), 11).cast("double")
        return bits < self._keeps.threshold(self._place(ordinal, self._keeps))

    def _time(self) -> Column:
        return F.unix_micros(_quoted(self.unit.time))

    def _ordinal(self, micros: Column) -> Column:
        since = micros - _long(self.unit.offset)
        return ((since - F.pmod(since, _long(self.unit.slide))) / _long(self.unit.slide)).cast("bigint")

    @staticmethod
    def _place(ordinal: Column, cell: TableCell) -> Column:
        return F.least(F.greatest(ordinal - cell.oldest(), _long(0)), _long(SLOTS - 1)).cast("int")


def _long(number: int) -> Column:
    return F.lit(number).cast("bigint")


def _quoted(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
