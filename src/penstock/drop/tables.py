"""The table of keep probabilities behind a gate, and its numpy twin.

Set by arrival, a table is its oldest slot, then one keep probability per class for each slot from there on. A row looks up
``keep[clamp(slot - oldest, 0, SLOTS - 1) * classes + class]``. The slot is the row's arrival time, and the entry of a slot never
changes once the slot has begun.

Set by batch, a table is a moment, then one keep per class for rows that arrived before it and one for all others. The moment is a
microsecond, so no row is taken for older than it is.

A table with many classes holds each decision once and says which of them each slot reads: a row of keeps per slot would be tens
of megabytes, and Spark sends the table with every stage.

The table of a bounded gate has one more number per slot: after how many rows of a partition the keep starts to fall. From there
on it falls with the row's rank in the partition, so the work of a batch has a bound, however large the batch is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from penstock.errors import PenstockError

__all__ = [
    "ALWAYS",
    "BOUND_POWER",
    "BatchTable",
    "KeepTable",
    "LEAST_BOUND",
    "NEVER",
    "SCALE",
    "SLOTS",
    "SLOT_SHIFT",
    "SlotRing",
    "UNBOUNDED",
    "raise_rank",
    "round_up",
    "share_by_rank",
    "slot_of",
    "slot_start_s",
    "to_micros",
]

SLOT_SHIFT = 17
"""A slot is 2^17 microseconds, 0.131 s: a shift instead of a division."""
SLOTS = 8192
"""18 minutes; rows that arrived earlier share the entry of the oldest slot, and count as older, as those of that slot do."""
_MOST_NUMBERS = 1 << 20
"""In the entries of a table whose slots share them: 8 MB, or with 1,000 classes a decision a second for 17 minutes."""
ALWAYS, NEVER = -(1 << 62), 1 << 62
"""Microseconds before and after all timestamps."""
SCALE = 2.0**53
"""How many numbers a hash can give. A row is kept if its number is below keep times this, rounded up: whole numbers are compared,
which takes less time per row than doubles, whose NaNs and zeros Spark treats in a way of its own."""
UNBOUNDED = 2.0**40
"""The number of rows kept in full that stands for all."""
LEAST_BOUND = 2.0
"""The least number of rows that is kept in full: no keep is as large, so an entry shows whether it has a bound."""
BOUND_POWER = 4
"""How fast the keep falls beyond that rank: a batch of any size keeps at most 1 + 1/3 of what it keeps in full."""


def round_up(keeps: np.ndarray) -> np.ndarray:
    """Return keeps as gates compare them: a whole number of hashes. The rows that are kept are the same as without it.

    >>> round_up(np.array([0.5, 2.0**-60, 0.0])).tolist() == [0.5, 2.0**-53, 0.0]
    True
    """
    return np.asarray(np.ceil(keeps * SCALE) / SCALE)


def share_by_rank(rank: np.ndarray, full: np.ndarray | float) -> np.ndarray:
    """Return the factor by which a bounded gate multiplies the keep.

    Parameters
    ----------
    rank
        The rank of each row in its partition, from 0.
    full
        How many rows of a partition are kept in full; whole rows count.

    Examples
    --------
    >>> share_by_rank(np.array([0, 99, 199]), 100).tolist()
    [1.0, 1.0, 0.0625]
    """
    return np.asarray(np.minimum(1.0, raise_rank(np.floor(full)) / raise_rank(rank + 1.0)))


def raise_rank(rank: np.ndarray) -> np.ndarray:
    """Return the power of ranks, from one on, by which a keep falls: the product that Spark computes, to the last bit."""
    return reduce(np.multiply, [rank] * BOUND_POWER)


def _count_classes(entry: Sequence[float]) -> int:
    """Return how many of the numbers are keeps; a last one that no keep can be is a bound."""
    return len(entry) - (len(entry) > 0 and entry[-1] >= LEAST_BOUND)


def slot_of(time_s: float) -> int:
    """Return the slot of a time in seconds since the epoch.

    >>> slot_of(0.14)
    1
    """
    return int(time_s * 1e6) >> SLOT_SHIFT


def slot_start_s(slot: int) -> float:
    """Return when a slot begins, in seconds since the epoch."""
    return (slot << SLOT_SHIFT) / 1e6


def to_micros(time_s: float) -> int:
    """Return a time in whole microseconds since the epoch; far beyond all timestamps, the last one.

    >>> to_micros(1.5), to_micros(float("-inf")) == ALWAYS
    (1500000, True)
    """
    return int(min(max(time_s * 1e6, float(ALWAYS)), float(NEVER)))


@dataclass(frozen=True, slots=True)
class KeepTable:
    """What a gate reads: keep probabilities by slot and class.

    >>> table = KeepTable(100, np.array([[0.5, 0.1], [0.6, 0.2]]))
    >>> table.lookup(np.array([7, 101]), np.array([0, 1])).tolist()
    [0.5, 0.2]
    """

    oldest: int
    keeps: np.ndarray
    """One row per slot, or per decision (``rows``), one column per class; for a bounded gate one more, the rows kept in full."""
    latest: int = NEVER
    """Rows that arrived after this moment, in microseconds, come from a clock that is ahead."""
    rows: np.ndarray | None = None
    """Which row of ``keeps`` each slot reads, where several share one; only the oldest slot reads the first."""

    @classmethod
    def everywhere(cls, keeps: Sequence[float]) -> KeepTable:
        """Return a table with the same keeps in all slots: every slot is older than the oldest one and takes its entry."""
        return cls(NEVER, np.array([keeps, keeps], dtype=np.float64))

    def row_by_slot(self) -> np.ndarray:
        """Return which row of ``keeps`` each slot reads, from the oldest on."""
        return np.arange(len(self.keeps)) if self.rows is None else self.rows

    def lookup(self, slots: np.ndarray, class_index: np.ndarray | int = 0, ranks: np.ndarray | None = None) -> np.ndarray:
        """Return the keep probability of each row: the numpy twin of the gate's expression.

        Parameters
        ----------
        slots
            The slot of each row.
        class_index
            The class of each row.
        ranks
            For a bounded gate: the rank of each row in its partition, from 0.
        """
        rows = self.row_by_slot()
        ages = rows[np.clip(slots - self.oldest, 0, len(rows) - 1)]
        keeps: np.ndarray = self.keeps[ages, class_index]
        if ranks is None:
            return keeps
        return np.asarray(round_up(keeps) * share_by_rank(ranks, self.keeps[ages, -1]))

    def lookup_arrivals(
        self, micros: np.ndarray, class_index: np.ndarray | int = 0, ranks: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the keep probability of each row by its arrival, in microseconds since the epoch."""
        return self.lookup(micros >> SLOT_SHIFT, class_index, ranks)


@dataclass(frozen=True, slots=True)
class BatchTable(KeepTable):
    """The table of one batch: rows that arrived before ``oldest``, in microseconds, read its first row, all others its second.

    >>> table = BatchTable.of([0.5, 0.1], older=[0.0, 0.0], line=1_000)
    >>> table.lookup_arrivals(np.array([999, 1_000, 2_000]), np.array([0, 0, 1])).tolist()
    [0.0, 0.5, 0.1]
    """

    @classmethod
    def of(
        cls, keeps: Sequence[float], *, older: Sequence[float] | None = None, line: int = ALWAYS, latest: int = NEVER
    ) -> BatchTable:
        """Return a table with a keep per class, and another for rows that arrived before a moment, if there are such."""
        return cls(line, np.array([keeps if older is None else older, keeps], dtype=np.float64), latest)

    def lookup_arrivals(
        self, micros: np.ndarray, class_index: np.ndarray | int = 0, ranks: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the keep probability of each row by its arrival, in microseconds since the epoch."""
        return self.lookup(np.where(micros >= self.oldest, self.oldest + 1, self.oldest), class_index, ranks)


@dataclass(slots=True)
class SlotRing:
    """The keeps that hold in each slot of arrival time: a list of changes that becomes a table.

    Examples
    --------
    >>> ring = SlotRing(classes=1)
    >>> ring.decide(1_000, [0.25])
    >>> ring.table().lookup(np.array([998, 999, 1_000, 1_001, 10**9])).tolist()
    [1.0, 1.0, 0.25, 0.25, 0.25]
    """

    classes: int
    changes: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    """(first slot, keep of each class), oldest first."""
    is_bounded: bool = False
    """Whether each entry has one number more: the rows that are kept in full."""
    is_shared: bool = False
    """Whether slots of one decision share its entry in the table."""

    @property
    def columns(self) -> int:
        """How many numbers an entry has."""
        return self.classes + self.is_bounded

    def decide(self, from_slot: int, keeps: Iterable[float]) -> None:
        """Let keeps hold from a slot on; earlier slots do not change."""
        entry = tuple(float(keep) for keep in keeps)
        if len(entry) != self.columns:
            raise PenstockError(f"a decision needs {self.columns} keep values, got {len(entry)}")
        if self.changes and from_slot <= self.changes[-1][0]:
            raise PenstockError(f"slot {from_slot} is not after slot {self.changes[-1][0]}, which has been decided")
        self.changes.append((from_slot, entry))
        # One change that is older than the table says what its oldest entry is.
        oldest = self._oldest_with()
        while len(self.changes) > 1 and self.changes[1][0] < oldest:
            del self.changes[0]

    def _oldest_with(self, *from_slot: int) -> int:
        """Return the oldest slot of the table, perhaps after one more decision: with many classes it may hold fewer of them."""
        oldest = (*from_slot, self.changes[-1][0])[0] - SLOTS + 1
        if not self.is_shared:
            return oldest
        # Without repetitions: a journal may have some that never reached the ring.
        changed = [slot for (_, before), (slot, entry) in itertools.pairwise(self.changes) if entry != before]
        firsts, most = [self.changes[0][0], *changed, *from_slot], _MOST_NUMBERS // self.columns
        return max(oldest, firsts[-most]) if len(firsts) > most else oldest

    def forgets(self, from_slot: int) -> bool:
        """Whether a decision from a slot on would change what rows have that are older than the table.

        >>> ring = SlotRing(classes=1, changes=[(1_000, (0.25,)), (1_001, (0.5,))])
        >>> [ring.forgets(1_000 + SLOTS - 2), ring.forgets(1_000 + SLOTS - 1)]
        [False, True]
        """
        if not self.changes:
            return False
        oldest, newest = self._oldest_with(), self._oldest_with(from_slot)
        return any(oldest < slot <= newest for slot, _ in self.changes)

    def merge(self, changes: Iterable[tuple[int, tuple[float, ...]]]) -> None:
        """Take over decisions from a journal; they replace decisions for the same slots."""
        merged = dict(self.changes) | {slot: self.shape(entry) for slot, entry in changes}
        self.changes = sorted(merged.items())

    def fits(self, entry: Sequence[float]) -> bool:
        """Whether an entry, perhaps from an older journal, has the classes of this ring, with a bound or without."""
        return _count_classes(entry) == self.classes

    def shape(self, entry: Sequence[float]) -> tuple[float, ...]:
        """Return an entry of a journal with as many numbers as this ring has: a bound is left out, or added."""
        if not self.fits(entry):
            raise PenstockError(f"the journal has {_count_classes(entry)} classes where the gate has {self.classes}")
        return (*entry[: self.classes], *((*entry[self.classes :], UNBOUNDED)[:1] if self.is_bounded else ()))

    @property
    def current(self) -> tuple[float, ...]:
        """The keeps of the latest decision."""
        return self.changes[-1][1] if self.changes else self.start

    @property
    def start(self) -> tuple[float, ...]:
        """The keeps before the first decision: everything is kept."""
        return (1.0,) * self.classes + (UNBOUNDED,) * self.is_bounded

    def table(self) -> KeepTable:
        """Return the decisions as a table. The latest decision is in its last slot, which also stands for all later slots."""
        if not self.changes:
            return KeepTable(ALWAYS, np.array([self.start, self.start]))  # no row is older than its oldest slot
        oldest = self._oldest_with()
        before = [self.start, *(entry for _, entry in self.changes)]
        changes = [(first, entry) for (first, entry), last in zip(self.changes, before, strict=False) if entry != last]
        entries = np.array([self.start, *(entry for _, entry in changes)])
        firsts = [first for first, _ in changes]
        rows = np.searchsorted(firsts, np.arange(oldest, self.changes[-1][0] + 1), side="right")
        if not self.is_shared:
            return KeepTable(oldest, entries[rows])
        used, rows[1:] = np.unique(rows[1:], return_inverse=True)
        return KeepTable(oldest, entries[[rows[0], *used]], rows=np.append(0, rows[1:] + 1))
