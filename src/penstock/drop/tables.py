"""The table of keep probabilities behind a gate, and its numpy twin.

A table is the oldest slot it knows, then one keep probability per class for each slot from there on. A row looks up
``keep[clamp(slot - oldest, 0, SLOTS - 1) * classes + class]``. Set by batch there is one slot, so every row of a class has the
same fate. Set by arrival, the slot is the row's arrival time, and what stands in a slot never changes once it has begun.

The table of a bounded gate has one more number per slot: how many rows of a partition are kept in full. Of later ones, by their
rank in the partition, fewer and fewer are, so that the work of a batch has a bound whatever its size turns out to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.errors import PenstockError

__all__ = ["BOUND_POWER", "KeepTable", "SLOTS", "SLOT_SHIFT", "SlotRing", "UNBOUNDED", "share_by_rank", "slot_of", "slot_start_s"]

SLOT_SHIFT = 17
"""A slot is 2^17 microseconds, 0.131 s: a shift instead of a division."""
SLOTS = 8192
"""18 minutes: rows that arrived longer ago share the oldest entry."""
_BEYOND_ALL_SLOTS = 1 << 62
UNBOUNDED = 2.0**40
"""As the number of rows that are kept in full: all."""
BOUND_POWER = 4
"""How fast keep falls with the rank beyond it: a batch of any size keeps at most 1 + 1/3 of what it keeps in full."""


def share_by_rank(rank: np.ndarray, full: np.ndarray | float) -> np.ndarray:
    """Return what a bounded gate multiplies keep with; the first row of a partition has rank 0.

    >>> share_by_rank(np.array([0, 99, 199]), 100).tolist()
    [1.0, 1.0, 0.0625]
    """
    share = np.minimum(1.0, full / (rank + 1.0))
    found = np.ones_like(share)
    for _ in range(BOUND_POWER):  # not a power: Spark's product, to the last bit
        found = found * share
    return found


def slot_of(time_s: float) -> int:
    """Return the slot in which a time since the epoch lies.

    >>> slot_of(0.14)
    1
    """
    return int(time_s * 1e6) >> SLOT_SHIFT


def slot_start_s(slot: int) -> float:
    """Return when a slot begins, in seconds since the epoch."""
    return (slot << SLOT_SHIFT) / 1e6


@dataclass(frozen=True, slots=True)
class KeepTable:
    """What a gate reads: keep probabilities by slot and class.

    >>> KeepTable.for_batch([0.5, 0.1]).lookup(np.array([7, 8]), np.array([0, 1])).tolist()
    [0.5, 0.1]
    """

    oldest: int
    keeps: np.ndarray
    """One row a slot, one column a class; of a bounded gate one more, the rows that are kept in full."""

    @classmethod
    def for_batch(cls, keeps: Sequence[float]) -> KeepTable:
        """Give every row of a class the same keep: every slot lies before the oldest and takes its entry."""
        return cls(_BEYOND_ALL_SLOTS, np.array([keeps], dtype=np.float64))

    def lookup(self, slots: np.ndarray, class_index: np.ndarray | int = 0, ranks: np.ndarray | None = None) -> np.ndarray:
        """Return the keep probability of each row: the numpy twin of the gate's expression. ``ranks`` are for a bounded gate."""
        ages = np.clip(slots - self.oldest, 0, len(self.keeps) - 1)
        found: np.ndarray = self.keeps[ages, class_index]
        return found if ranks is None else found * share_by_rank(ranks, self.keeps[ages, -1])


@dataclass(slots=True)
class SlotRing:
    """Which keep holds in which slot of arrival time: a list of changes, laid out as a table.

    >>> ring = SlotRing(classes=1)
    >>> ring.decide(1_000, [0.25])
    >>> ring.table().lookup(np.array([998, 999, 1_000, 1_001, 10**9])).tolist()
    [1.0, 1.0, 0.25, 0.25, 0.25]
    """

    classes: int
    changes: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    """(first slot, keep of each class), oldest first."""
    bounded: bool = False
    """Whether each entry has one number more, the rows that are kept in full."""

    @property
    def columns(self) -> int:
        """How many numbers an entry has."""
        return self.classes + self.bounded

    def decide(self, from_slot: int, keeps: Iterable[float]) -> None:
        """Let keeps hold from a slot on; the past does not change."""
        entry = tuple(float(keep) for keep in keeps)
        if len(entry) != self.columns:
            raise PenstockError(f"a decision needs {self.columns} keep values, got {len(entry)}")
        if self.changes and from_slot <= self.changes[-1][0]:
            raise PenstockError(f"slot {from_slot} is not after slot {self.changes[-1][0]}, which is decided already")
        self.changes.append((from_slot, entry))
        # One change older than the table is enough to know its oldest entry.
        while len(self.changes) > 1 and self.changes[1][0] <= from_slot - SLOTS:
            del self.changes[0]

    def merge(self, changes: Iterable[tuple[int, tuple[float, ...]]]) -> None:
        """Take over decisions from a journal; of two for one slot the later stands."""
        merged = dict(self.changes) | dict(changes)
        for entry in merged.values():
            if len(entry) != self.columns:
                raise PenstockError(f"the journal has {len(entry)} classes where the gate has {self.columns}")
        self.changes = sorted(merged.items())

    @property
    def current(self) -> tuple[float, ...]:
        """The keeps of the last decision."""
        return self.changes[-1][1] if self.changes else self.start

    @property
    def start(self) -> tuple[float, ...]:
        """What holds before the first decision: everything is kept."""
        return (1.0,) * self.classes + (UNBOUNDED,) * self.bounded

    def table(self) -> KeepTable:
        """Lay the decisions out, the last of them in the last slot, which stands for all later ones too."""
        if not self.changes:
            return KeepTable.for_batch(self.current)
        oldest = self.changes[-1][0] - SLOTS + 1
        entries = np.array([self.start, *(entry for _, entry in self.changes)])
        firsts = [first for first, _ in self.changes]
        return KeepTable(oldest, entries[np.searchsorted(firsts, np.arange(oldest, oldest + SLOTS), side="right")])
