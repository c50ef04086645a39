"""What a driver tells the decision core. Everything a decision depends on arrives here, time included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.control.base import GateCount
from penstock.drop.shares import WorkReading
from penstock.journal.records import OutputRecord
from penstock.las.micro_batch_las import ClockReading

__all__ = ["BatchEnded", "BatchPlanned", "BatchTimes", "MeterReading"]


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch ran, and how much of that time went to its rows. Seconds since the epoch."""

    start_s: float
    end_s: float
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What a gate's counters gathered in one batch."""

    kept: int = 0
    mean_arrival_s: float | None = None
    offered_by_class: tuple[int, ...] | None = None
    kept_by_class: tuple[int, ...] | None = None
    null_arrivals: int = 0
    older_than_ring: int = 0
    expired: int = 0
    """Rows that were shed because they arrived too long ago."""
    expired_by_class: tuple[int, ...] | None = None
    mean_expired_arrival_s: float | None = None
    from_future: int = 0
    """Rows kept that arrived later than now: some clock is ahead. Their age counts as zero."""
    work: WorkReading | None = None
    """What the rows kept took, where that is timed by bucket."""
    clock: ClockReading | None = None
    """The same where rows are decided on one by one."""

    @property
    def work_s(self) -> float | None:
        """The seconds that the rows kept took; ``None`` where that is not timed."""
        timed = self.work if self.clock is None else self.clock
        return None if timed is None else timed.total_s


@dataclass(frozen=True, slots=True)
class BatchPlanned:
    """A batch is about to run; its rows are fixed, and none of its work has begun."""

    batch_id: int
    now_s: float
    rows: Mapping[str, int] | None = None
    """Rows that the batch takes from each source; ``None`` where a source cannot tell."""
    rows_per_byte: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By source of files: what their number was estimated from."""
    previous: BatchTimes | None = None
    """When the batch before ran, if it did in this run."""
    backlog_rows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What the engine reported with the batch before as waiting; of use where ``rows`` are not known."""
    left_rows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What a cap on its size made the batch before leave in each source when it was planned, where the engine says so."""
    is_paced: bool = False
    """Whether batches wait for a trigger: then rows may have waited although the engine was idle."""
    event_times: Mapping[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    """By gate of whole windows: the latest event time so far, in microseconds; ``None`` before the first row."""


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A batch has run."""

    batch_id: int
    now_s: float
    counts: Mapping[str, GateCount]
    readings: Mapping[str, MeterReading] = field(default_factory=lambda: MappingProxyType({}))
    times: BatchTimes | None = None
    """``None`` where the engine reports them only later, with the next ``BatchPlanned``."""
    backlog_rows: Mapping[str, int] | None = None
    """Rows that wait at each source when the batch ends, where the engine knows."""
    tasks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By bounded gate: how many tasks the batch had there, where that was looked up."""
    event_times: Mapping[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    outputs: Mapping[str, OutputRecord] | None = None
    """What was written, on a node of a network."""
    is_recounted: bool = False
    """The batch was committed before a crash and has only been counted now."""
    is_estimated: bool = False
    """The readings may have rows of another batch, or lack some; the counts are exact."""
