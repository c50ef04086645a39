"""The counters of one gate, filled by the generated code of a running query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.events import MeterReading
from penstock.spark.catalyst import MeterPanel, RowMeter
from penstock.spark.columns import bigint, column_named, has_arrival

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.gates.class_index import ClassIndex

__all__ = ["GateMeters"]

_TICK_SHIFT = 10
"""Arrival times are summed in ticks of 2^10 microseconds: a shift instead of a division."""
_TIME_BITS = 49
"""Bits of an arrival time that count, nine years around the gate's: no sum of timestamps far off overflows."""


class GateMeters:
    """Counts what a gate keeps, when that arrived, and by class what was offered and kept.

    Arrival times are summed in coarse ticks since ``base_s``, to stay far from overflow.
    """

    def __init__(self, spark: SparkSession, arrival: str | None, base_s: float, index: ClassIndex, classes: int) -> None:
        self._arrival, self._base_s = arrival, base_s
        self._kept = RowMeter(spark)
        self._null_arrivals = RowMeter(spark)
        self._older = RowMeter(spark)
        self._expired = RowMeter(spark)
        self._from_future = RowMeter(spark)
        self._offered_by_class = [RowMeter(spark) for _ in range(classes)] if index.counts_offered else []
        self._kept_by_class = [RowMeter(spark) for _ in range(classes)] if index.counts_kept else []
        self._expired_by_class = [RowMeter(spark) for _ in self._kept_by_class] if arrival is not None else []
        each_by_one = [self._null_arrivals, self._older, self._from_future, *self._offered_by_class, *self._kept_by_class]
        each_by_one += self._expired_by_class
        self._panel = MeterPanel(spark, [self._kept, self._expired, *each_by_one])

    def count_offered(self, index: Column) -> Column | None:
        """Return a condition that is always true and counts a row by its class, where that is counted."""
        return _count_by_class(index, self._offered_by_class)

    def count_kept(
        self, schema: StructType, index: Column | None, is_recent: Column | None, is_past: Column | None = None
    ) -> Column:
        """Return a condition that is always true and counts a row that is kept.

        ``is_recent`` says whether decisions reach back to the row's arrival, ``is_past`` whether that is not in the future, where
        it matters.
        """
        counted = self._count_arrival(schema, is_recent, is_past)
        by_class = None if index is None else _count_by_class(index, self._kept_by_class)
        return counted if by_class is None else counted & by_class

    def count_expired(self, index: Column) -> Column:
        """Return a condition that is always true and counts a row that is shed for its age."""
        by_class = _count_by_class(index, self._expired_by_class)
        counted = self._expired.add(self._ticks())
        return counted if by_class is None else counted & by_class

    def _ticks(self) -> Column:
        assert self._arrival is not None  # noqa: S101 - only rows that say when they arrived get here
        since_base = F.unix_micros(column_named(self._arrival)) - F.lit(int(self._base_s * 1e6))
        return F.shiftright(F.shiftleft(since_base, 64 - _TIME_BITS), 64 - _TIME_BITS + _TICK_SHIFT)

    def _count_arrival(self, schema: StructType, is_recent: Column | None, is_past: Column | None) -> Column:
        if self._arrival is None:
            return self._kept.add(bigint(0))
        counted = self._kept.add(self._ticks())
        if is_recent is not None:
            counted = counted & (is_recent | self._older.add(bigint(1)))
        if is_past is not None:
            counted = counted & (is_past | self._from_future.add(bigint(1)))
        if not schema[self._arrival].nullable:
            return counted
        return F.when(has_arrival(self._arrival), counted).otherwise(self._null_arrivals.add(bigint(1)))

    def take(self) -> MeterReading:
        """Read what was counted since the last call."""
        kept, expired = self._kept.take(), self._expired.take()
        ticks, expired_ticks, null_arrivals, older, from_future, *by_class = self._panel.take()
        offered, both = len(self._offered_by_class), len(self._offered_by_class) + len(self._kept_by_class)
        is_timed = kept and self._arrival is not None
        return MeterReading(
            kept=kept,
            mean_arrival_s=self._mean_s(ticks, kept) if is_timed else None,
            offered_by_class=tuple(by_class[:offered]) or None,
            kept_by_class=tuple(by_class[offered:both]) or None,
            null_arrivals=null_arrivals,
            older_than_ring=older,
            expired=expired,
            expired_by_class=(tuple(by_class[both:]) or None) if expired else None,
            mean_expired_arrival_s=self._mean_s(expired_ticks, expired) if expired else None,
            from_future=from_future,
        )

    def _mean_s(self, ticks: int, rows: int) -> float:
        return self._base_s + (ticks / rows + 0.5) * (1 << _TICK_SHIFT) / 1e6


def _count_by_class(index: Column, meters: list[RowMeter]) -> Column | None:
    if not meters:
        return None
    counted = meters[-1].add(bigint(1))
    for number, meter in enumerate(meters[:-1]):
        counted = F.when(index == F.lit(number), meter.add(bigint(1))).otherwise(counted)
    return counted
