"""Months of batches in a few thousand numbers: buckets of time that grow coarser with age."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from penstock.journal.records import BatchRecord

__all__ = ["Bucket", "History", "summarise_batch"]

_FIRST_WIDTH_S = 60.0
_GROWTH = 4
_BUCKETS = 256
"""Buckets of each width: four hours of minutes, then seventeen of four minutes, and so on; seven widths hold two years."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What the batches did that ended in one span of time."""

    start_s: float
    width_s: float
    batches: int = 0
    offered: int = 0
    kept: int = 0
    expired: int = 0
    span_s: float = 0.0
    """Seconds in which these rows arrived: from the end of one batch to that of the next, over all of them."""
    busy_s: float = 0.0
    """Seconds that the batches took."""
    delay_rows: int = 0
    """Rows kept whose delay is known."""
    delay_sum_s: float = 0.0
    delay_min_s: float = math.inf
    delay_max_s: float = 0.0
    target_s: float = 0.0
    """The last delay target; 0 if it is unknown."""
    keep_min: float = 1.0
    cost_s: float = 0.0
    """The last cost per row that was known; 0 if none was."""
    overhead_s: float = 0.0
    batch_time_s: float = 0.0

    def add(self, other: Bucket) -> Bucket:
        """Return this bucket with what another one holds, whose last values are the later ones."""
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in _SUMS},
            **{name: getattr(other, name) or getattr(self, name) for name in _LASTS},
            delay_min_s=min(self.delay_min_s, other.delay_min_s),
            delay_max_s=max(self.delay_max_s, other.delay_max_s),
            keep_min=min(self.keep_min, other.keep_min),
        )


_SUMS = ("batches", "offered", "kept", "expired", "span_s", "busy_s", "delay_rows", "delay_sum_s")
_LASTS = ("target_s", "cost_s", "overhead_s", "batch_time_s")
_NAMES = tuple(field.name for field in fields(Bucket))


def summarise_batch(record: BatchRecord, span_s: float, learnt: Mapping[str, float] | None = None) -> Bucket | None:
    """Return a batch as a bucket of its own; ``None`` if nobody knows when it ended."""
    if record.end_s is None or not math.isfinite(record.end_s):
        return None
    kept = sum(kept for _, kept in record.gates.values())
    delay_s = record.delay_s if kept else None
    learnt = {} if learnt is None else learnt
    return Bucket(
        record.end_s,
        0.0,
        batches=1,
        offered=sum(offered for offered, _ in record.gates.values()),
        kept=kept,
        expired=sum((record.expired or {}).values()),
        span_s=max(0.0, span_s),
        busy_s=max(0.0, record.end_s - record.start_s) if record.start_s is not None else 0.0,
        delay_rows=0 if delay_s is None else kept,
        delay_sum_s=0.0 if delay_s is None else kept * delay_s,
        delay_min_s=math.inf if delay_s is None else delay_s,
        delay_max_s=0.0 if delay_s is None else delay_s,
        target_s=record.delay_target_s or 0.0,
        keep_min=1.0 if record.keep is None else record.keep,
        **{name: learnt.get(name, 0.0) for name in ("cost_s", "overhead_s", "batch_time_s")},
    )


class History:
    """The batches that a journal no longer holds one by one.

    >>> history = History()
    >>> for second in range(3600):
    ...     history.add(summarise_batch(BatchRecord(second, {"in": (100, 40)}, start_s=second, end_s=second + 1.0), 1.0))
    >>> len(history), sum(bucket.offered for bucket in history)
    (61, 360000)
    """

    def __init__(self) -> None:
        self._levels: list[dict[int, Bucket]] = []

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels)

    def __iter__(self) -> Iterator[Bucket]:
        """Yield the buckets, oldest first."""
        return iter(sorted((bucket for level in self._levels for bucket in level.values()), key=lambda bucket: bucket.start_s))

    def add(self, bucket: Bucket | None, level: int = 0) -> None:
        """Add a batch, or a bucket that became too old for its width."""
        if bucket is None:
            return
        while len(self._levels) <= level:
            self._levels.append({})
        width_s = _FIRST_WIDTH_S * _GROWTH**level
        buckets, index = self._levels[level], math.floor(bucket.start_s / width_s)
        buckets[index] = buckets.get(index, Bucket(index * width_s, width_s)).add(bucket)
        while len(buckets) > _BUCKETS:
            self.add(buckets.pop(min(buckets)), level + 1)

    def copy(self) -> History:
        """Return a copy that later batches do not change."""
        history = History()
        history._levels = [dict(level) for level in self._levels]
        return history

    def to_rows(self) -> list[list[float]]:
        """Return the buckets as plain JSON values: short numbers, no names."""
        return [[_shorten(value) for value in astuple(bucket)] for bucket in self]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[Any]]) -> History:
        """Return the history that ``to_rows`` described."""
        history = cls()
        for row in rows:
            values: dict[str, Any] = {
                name: math.inf if value is None else value for name, value in zip(_NAMES, row, strict=False)
            }
            bucket = Bucket(**values)
            level = max(0, round(math.log(bucket.width_s / _FIRST_WIDTH_S, _GROWTH)))
            while len(history._levels) <= level:
                history._levels.append({})
            history._levels[level][math.floor(bucket.start_s / bucket.width_s)] = bucket
        return history


def _shorten(value: float) -> Any:
    return value if isinstance(value, int) else float(f"{value:.7g}") if math.isfinite(value) and value < 1e8 else _plain(value)


def _plain(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
