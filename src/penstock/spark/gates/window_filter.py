"""The expression of a gate that keeps whole windows: whether any window that a row may lie in is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import StructType

from penstock.decision.gate_state import WindowGate
from penstock.drop.hashing import gate_seed
from penstock.drop.tables import SCALE, SLOTS
from penstock.drop.units import WholeWindows
from penstock.spark.catalyst import ENTRIES, TableCell, TimeMeter, new_tag, seeded_hash, tag_condition
from penstock.spark.columns import arrival_micros, bigint, column_named
from penstock.spark.gates.class_index import class_index_of
from penstock.spark.gates.meters import GateMeters, is_negative
from penstock.spark.gates.reasons import OVERLOAD
from penstock.spark.gates.specification import GateSpecification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["WindowFilter"]


class WindowFilter:
    """Builds the filter, over two tables of windows: the keep of each, and whether a row that comes in its slide is kept.

    A row looks up the slide it lies in. With groups, each group's window is decided on its own, and the row asks for each of
    its windows. The latest event time is metered before anything is dropped: it says which windows have begun.
    """

    def __init__(self, spark: SparkSession, specification: GateSpecification, schema: StructType, base_s: float) -> None:
        assert isinstance(specification.unit, WholeWindows)  # noqa: S101 - build_gate chose this filter
        self._spark = spark
        self.unit = specification.unit
        self.group_types = {name: schema[name].dataType.simpleString() for name in self.unit.by}
        self.whole_tag = new_tag()
        """Marks the condition on results, so that a plan shows whether it is there."""
        self._seed = gate_seed(specification.seed_name or specification.name)
        self.state = WindowGate(specification.name, self.unit, self._seed)
        self._arrival = self.state.arrival_column = specification.arrival
        by_window, by_row = self.state.ring.tables()
        self._keeps, self._rows = self.cells = (TableCell(spark, by_window), TableCell(spark, by_row))
        self._clock = TimeMeter(spark)
        self.meters = GateMeters(spark, specification.arrival, base_s, class_index_of(specification), classes=1)

    def event_time(self) -> int | None:
        """Return the latest event time in this run, in microseconds; ``None`` before the first row."""
        return self._clock.latest()

    def apply(self, df: DataFrame, offered_tag: int, kept_tag: int, weight_column: str | None) -> DataFrame:
        """Return the DataFrame behind the gate."""
        offered = df.where(tag_condition(offered_tag, self._note_time()))
        kept = self._is_kept() & self._count_kept(df)
        gated = offered.where(tag_condition(kept_tag, kept))
        return gated if weight_column is None else gated.withColumn(weight_column, self._weight())

    def shed(self, df: DataFrame, reason: str) -> DataFrame:
        """Return the rows of windows that are not kept, with a column that says why; nothing is counted."""
        return df.where(~F.coalesce(self._is_kept(), F.lit(False))).withColumn(reason, F.lit(OVERLOAD))

    def is_whole(self, window: Column, groups: Sequence[Column]) -> Column:
        """Return a condition on results by window: true for windows that were kept."""
        return tag_condition(self.whole_tag, self._fate(self._ordinal(F.unix_micros(window.getField("start"))), groups))

    def _note_time(self) -> Column:
        """Always true; takes note of the time of each row."""
        time = self._time()
        return F.when(time.isNull(), F.lit(True)).otherwise(self._clock.add(F.coalesce(time, bigint(0))))

    def _is_kept(self) -> Column:
        """A row without a time lies in no window, and is kept."""
        ordinal = self._ordinal(self._time())
        if not self.unit.by:
            kept = self._rows.threshold(self._entry(ordinal, self._rows)) > bigint(0)
        else:
            groups = [column_named(name) for name in self.unit.by]
            kept = F.lit(False)
            for back in range(self.unit.overlap):
                kept = kept | self._fate(ordinal - bigint(back), groups)
        return F.when(self._time().isNull(), F.lit(True)).otherwise(kept)

    def _weight(self) -> Column:
        """One over the keep of the row's window."""
        keep = self._keeps.threshold(self._entry(self._ordinal(self._time()), self._keeps))
        return F.when(self._time().isNull(), F.lit(1.0)).otherwise(F.lit(SCALE) / keep)

    def _fate(self, ordinal: Column, groups: Sequence[Column]) -> Column:
        first = ordinal if self.unit.run == 1 else ordinal - F.pmod(ordinal, bigint(self.unit.run))
        start = first * bigint(self.unit.slide) + bigint(self.unit.offset)
        bits = F.shiftrightunsigned(seeded_hash(self._spark, self._seed, [start, *groups]), 11)
        return bits < self._keeps.threshold(self._entry(ordinal, self._keeps))

    def _count_kept(self, df: DataFrame) -> Column:
        if self._arrival is None:
            return self.meters.count_kept(None, None)
        may_lack = df.schema[self._arrival].nullable
        micros = arrival_micros(self._arrival, may_lack=may_lack)
        return self.meters.count_kept(micros, None, lacks=is_negative(micros) if may_lack else None)

    def _time(self) -> Column:
        return F.unix_micros(column_named(self.unit.time))

    def _ordinal(self, micros: Column) -> Column:
        since = micros - bigint(self.unit.offset)
        return ((since - F.pmod(since, bigint(self.unit.slide))) / bigint(self.unit.slide)).cast("bigint")

    @staticmethod
    def _entry(ordinal: Column, cell: TableCell) -> Column:
        return F.least(F.greatest(ordinal - cell.oldest(), bigint(0)), bigint(SLOTS - 1)).cast("int") + F.lit(ENTRIES)
