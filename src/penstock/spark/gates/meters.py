"""The counters of one gate, filled by the generated code of a running query."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.decision.events import MeterReading
from penstock.drop.tables import to_micros
from penstock.spark.catalyst import MeterPanel, RowMeter
from penstock.spark.columns import MISSING_US, bigint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.gates.class_index import ClassIndex

__all__ = ["GateMeters", "is_negative"]

_TICK_SHIFT = 10
"""Arrival times are summed in ticks of 2^10 microseconds: a shift instead of a division."""
_OVERFLOW = 1 << 64
"""Sums that differ by this are the same long."""


class GateMeters:
    """Counts what a gate keeps, when that arrived, and by class what was offered and kept.

    Arrival times are summed in coarse ticks since 1970. Such a sum overflows, as a long does, and what is read is its remainder.
    The times of a batch lie around ``base_s``, and their sum since then does not overflow, so the remainder tells it.
    """

    def __init__(self, spark: SparkSession, arrival: str | None, base_s: float, index: ClassIndex, classes: int) -> None:
        self._spark = spark
        self._arrival, self._base_ticks = arrival, to_micros(base_s) >> _TICK_SHIFT
        self._kept = RowMeter(spark)
        self._odd = RowMeter(spark)
        self._expired = RowMeter(spark)
        self.has_slots = False
        """Whether the gate is set by arrival: no arrival is in the future then, but some may be before all slots."""
        self._offered_by_class = [RowMeter(spark) for _ in range(classes)] if index.counts_offered else []
        self._kept_by_class = [RowMeter(spark) for _ in range(classes)] if index.counts_kept else []
        self._expired_by_class = [RowMeter(spark) for _ in self._kept_by_class] if arrival is not None else []
        by_class = [*self._offered_by_class, *self._kept_by_class, *self._expired_by_class]
        self._panel = MeterPanel(spark, [self._kept, self._expired, self._odd, *by_class])

    def count_offered(self, index: Column) -> Column | None:
        """Return a condition that is always true and counts a row by its class, where that is counted."""
        return _count_by_class(index, self._offered_by_class)

    def count_kept(
        self,
        micros: Column | None,
        index: Column | None,
        is_in_time: Column | None = None,
        lacks: Column | None = None,
    ) -> Column:
        """Return a condition that is always true and counts a row that is kept.

        Parameters
        ----------
        micros
            When it arrived, or ``MISSING_US``; never null. ``None`` for a gate without an arrival column.
        index
            Its class, where that is counted.
        is_in_time
            Whether it arrived neither in the future nor before all slots, where that matters.
        lacks
            A bigint: 1 for a row that does not say when it arrived, 0 for one that says it and is not in time. It is not
            evaluated for others. ``None`` where every row says when it arrived.
        """
        counted = self._kept.add(bigint(0) if micros is None else _ticks(micros))
        if micros is not None:
            is_ordinary = [] if is_in_time is None else [is_in_time]
            is_ordinary += [micros != bigint(MISSING_US)] if lacks is not None else []
            if is_ordinary:
                # One meter for both: it counts all odd rows, and its sum is the number of those that don't say when they arrived.
                odd = self._odd.add(bigint(0) if lacks is None else lacks)
                counted = counted & (reduce(operator.and_, is_ordinary) | odd)
        by_class = None if index is None else _count_by_class(index, self._kept_by_class)
        return counted if by_class is None else counted & by_class

    def count_expired(self, micros: Column, index: Column) -> Column:
        """Return a condition that is always true and counts a row that is shed for its age."""
        by_class = _count_by_class(index, self._expired_by_class)
        counted = self._expired.add(_ticks(micros))
        return counted if by_class is None else counted & by_class

    def take(self) -> MeterReading:
        """Read what was counted since the last call."""
        kept, expired, odd = self._kept.take(), self._expired.take(), self._odd.take()
        ticks, expired_ticks, null_arrivals, *by_class = self._panel.take()
        offered, both = len(self._offered_by_class), len(self._offered_by_class) + len(self._kept_by_class)
        timed = kept - null_arrivals
        ticks -= null_arrivals * (MISSING_US >> _TICK_SHIFT)
        return MeterReading(
            kept=timed,
            mean_arrival_s=self._mean_s(ticks, timed) if timed and self._arrival is not None else None,
            offered_by_class=tuple(by_class[:offered]) or None,
            kept_by_class=tuple(by_class[offered:both]) or None,
            null_arrivals=null_arrivals,
            older_than_ring=odd - null_arrivals if self.has_slots else 0,
            expired=expired,
            expired_by_class=(tuple(by_class[both:]) or None) if expired else None,
            mean_expired_arrival_s=self._mean_s(expired_ticks, expired) if expired else None,
            from_future=0 if self.has_slots else odd - null_arrivals,
        )

    def _mean_s(self, ticks: int, rows: int) -> float:
        """Return the mean of arrival times from the remainder of their sum."""
        since_base = (ticks - rows * self._base_ticks + _OVERFLOW // 2) % _OVERFLOW - _OVERFLOW // 2
        return (self._base_ticks + since_base / rows + 0.5) * (1 << _TICK_SHIFT) / 1e6


def is_negative(micros: Column) -> Column:
    """Return 1 for what arrived before 1970, as ``MISSING_US`` says, else 0, as a bigint. A cast would be a larger object."""
    return F.shiftrightunsigned(micros, 63)


def _ticks(micros: Column) -> Column:
    return F.shiftright(micros, _TICK_SHIFT)


def _count_by_class(index: Column, meters: Sequence[RowMeter], first: int = 0) -> Column | None:
    """Return the condition that counts a row with the meter of its class; halved, as Spark can't read what is nested deeply."""
    if len(meters) < 2:
        return meters[0].add(bigint(1)) if meters else None
    half = len(meters) // 2
    lower, upper = (
        _count_by_class(index, part, start) for part, start in ((meters[:half], first), (meters[half:], first + half))
    )
    return F.when(index < F.lit(first + half), lower).otherwise(upper)
