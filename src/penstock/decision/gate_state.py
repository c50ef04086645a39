"""A gate as the decision core knows it: how a keep becomes table entries, and which tables are in force."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from penstock.decision.events import MeterReading
from penstock.drop.shares import Shares
from penstock.drop.tables import LEAST_BOUND, NEVER, UNBOUNDED, BatchTable, KeepTable, SlotRing
from penstock.drop.units import WholeWindows, WindowRing
from penstock.journal.records import DecisionRecord, OlderRows

__all__ = ["GateState", "SlotGate", "WindowGate"]

Entries = tuple[float, ...]


class GateState(ABC):
    """What the core knows of one gate. ``entries`` only answers; ``put_in_force`` and the ``update`` methods change it."""

    def __init__(self, name: str, unit_name: Literal["row", "key", "window"], class_names: Sequence[str]) -> None:
        self.name = name
        self.unit_name = unit_name
        """What is kept or dropped as one."""
        self.class_names = tuple(class_names)
        """The names of its classes; empty where they have none."""
        self.arrival_column: str | None = None
        """Where the rows say when they arrived, for messages."""

    @abstractmethod
    def entries(self, keep: float, full_rows: float | None = None) -> Entries:
        """Return the table entries that a keep comes to; ``full_rows`` is the bound of a bounded gate, for a whole batch."""

    @abstractmethod
    def fits(self, entries: Entries) -> bool:
        """Whether entries, perhaps from an older journal, have the shape of this gate's table."""

    @abstractmethod
    def put_in_force(self, entries: Entries, older: OlderRows | None = None, latest: int = NEVER) -> tuple[KeepTable, ...]:
        """Let entries hold for every row of the batches to come, and return the tables to publish.

        ``older`` holds instead for rows that arrived before some moment. Rows that arrived after ``latest``, in microseconds,
        come from a clock that is ahead.
        """

    @abstractmethod
    def recall(self, decision: DecisionRecord) -> None:
        """Take back from the journal what was decided."""

    @property
    def has_ages(self) -> bool:
        """Whether a batch may treat rows by their age here."""
        return False

    def update(self, reading: MeterReading) -> str | None:  # noqa: ARG002 - only some gates learn
        """Learn from a batch; return what the user should know about its rows, in one line."""
        return None

    def update_time(self, now_s: float) -> None:  # noqa: B027 - only some care
        """Learn when the batch begins that is decided next."""

    def update_event_time(self, micros: int | None) -> None:  # noqa: B027 - only windows care
        """Learn the latest event time at the gate."""

    @property
    def event_time(self) -> int | None:
        """The latest event time at the gate, in microseconds; ``None`` where it does not matter or before the first row."""
        return None

    def snapshot(self) -> Mapping[str, Any] | None:
        """Return all decisions that the gate must remember for ever, ``None`` where the last one is enough."""
        return None


class SlotGate(GateState):
    """Keeps rows or whole keys, in classes. Entries hold for a batch, or by arrival for the slots from one on.

    Several queries may read one gate that is set by arrival. Each says what it would keep, and the least of that holds.
    """

    def __init__(self, name: str, shares: Shares, *, unit_name: Literal["row", "key"] = "row", is_bounded: bool = False) -> None:
        super().__init__(name, unit_name, shares.names)
        self.shares = shares
        self.ring = SlotRing(shares.count, is_bounded=is_bounded, is_shared=shares.are_many)
        self.wishes: dict[Any, float] = {}
        """What each query that reads the gate by arrival would keep, by its core."""
        self._tasks: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether the rank of a row in its partition counts."""
        return self.ring.is_bounded

    @property
    def has_ages(self) -> bool:
        """Whether the rows say when they arrived; whole keys are not cut by age."""
        return self.arrival_column is not None and self.unit_name == "row"

    def entries(self, keep: float, full_rows: float | None = None) -> Entries:
        """Return the keep of each class and, for a bounded gate, how many rows per partition are kept in full."""
        bound = (self._full_rows_per_task(full_rows),) if self.is_bounded else ()
        return (*self.shares.entries(keep), *bound)

    def first_entries(self, full_rows: float) -> Entries:
        """Return what holds before the first decision: everything is kept, up to a bound per task, however many there are."""
        return (*self.shares.entries(1.0), *((min(UNBOUNDED, max(LEAST_BOUND, full_rows)),) if self.is_bounded else ()))

    def _full_rows_per_task(self, full_rows: float | None) -> float:
        """In steps of a fifth, so that a small change makes none."""
        if full_rows is None or self._tasks is None:
            return UNBOUNDED
        coarse: float = 2.0 ** (round(4.0 * math.log2(max(LEAST_BOUND, full_rows / self._tasks))) / 4.0)
        return min(UNBOUNDED, coarse)

    def fits(self, entries: Entries) -> bool:
        """Whether there is one entry per class, and by arrival the bound of a bounded gate."""
        return self.ring.fits(entries)

    def update(self, reading: MeterReading) -> str | None:
        """Learn how many rows each class had, and what they took."""
        if reading.work is not None:
            self.shares.update_work(reading.work)
        if reading.offered_by_class is None:
            return None
        self.shares.update_offered(reading.offered_by_class)
        return self.shares.warn(reading.offered_by_class)

    def update_tasks(self, tasks: int) -> None:
        """Learn how many tasks a batch has: the most so far, since a small batch may have fewer."""
        self._tasks = max(tasks, self._tasks or 1)

    def put_in_force(self, entries: Entries, older: OlderRows | None = None, latest: int = NEVER) -> tuple[KeepTable, ...]:
        """Let entries hold for every row of the batches to come, apart from older ones."""
        self.shares.put_in_force(entries[: self.shares.count])
        if older is None:
            return (BatchTable.of(self.ring.shape(entries), latest=latest),)
        return (BatchTable.of(self.ring.shape(entries), older=self._shape_older(older.entries), line=older.line, latest=latest),)

    def _shape_older(self, entries: Entries) -> Entries:
        """Return the entries of old rows with a number for every column of the table; set by batch, no bound counts."""
        return (*entries[: self.shares.count], *((UNBOUNDED,) if self.is_bounded else ()))

    def put_in_force_from(self, slot: int, entries: Entries) -> tuple[KeepTable, ...]:
        """Let entries hold for rows that arrive from a slot on."""
        self.shares.put_in_force(entries[: self.shares.count])
        self.ring.decide(slot, entries)
        return self.tables()

    def restore_slots(self, changes: Sequence[tuple[int, Entries]]) -> tuple[KeepTable, ...]:
        """Take back what a journal says was decided, and return the tables to publish."""
        self.ring.merge(changes)
        self.shares.put_in_force(self.ring.current[: self.shares.count])
        return self.tables()

    def everything(self) -> KeepTable:
        """Return the table of a batch that keeps all rows."""
        return BatchTable.of(self.ring.start)

    def tables(self) -> tuple[KeepTable, ...]:
        """Return the tables of all slots as decided so far."""
        return (self.ring.table(),)

    def recall(self, decision: DecisionRecord) -> None:
        """Nothing to do: a batch's entries are in its own decision, and slots are merged by ``ByArrival.restore``."""


class WindowGate(GateState):
    """Keeps whole windows. A window is decided once, before it begins, so a keep holds from the first one that has not begun.

    What has begun is known from the latest event time at the gate, before anything is dropped.
    """

    def __init__(self, name: str, unit: WholeWindows, seed: int) -> None:
        super().__init__(name, "window", ("all",))
        self.unit = unit
        self.ring = WindowRing(unit, seed)
        self._event_time: int | None = None
        self._peers: Sequence[WindowGate] = ()
        self._published: tuple[Entries, tuple[KeepTable, ...]] | None = None

    @property
    def event_time(self) -> int | None:
        """The latest event time at the gate, also before a restart."""
        return self._event_time

    def update_event_time(self, micros: int | None) -> None:
        """Learn the latest event time at the gate; it never goes back."""
        if micros is not None:
            self._event_time = micros if self._event_time is None else max(micros, self._event_time)

    def decide_with(self, peers: Sequence[WindowGate]) -> None:
        """Decide alike with other gates of the same query and the same windows: one has begun if it has at any of them.

        They must be given the same keeps.
        """
        self._peers = peers

    def entries(self, keep: float, full_rows: float | None = None) -> Entries:  # noqa: ARG002 - windows have no bound
        """Return the keep and the first window that it holds for; the last decision again while no time is known."""
        last = self.ring.last
        times = [gate.event_time for gate in (self, *self._peers) if gate.event_time is not None]
        if not times:
            return (1.0,) if last is None else (last[1], float(last[0]))
        first = self.unit.ordinal(max(times)) + 1
        return (float(keep), float(first if last is None else max(first, last[0])))

    def fits(self, entries: Entries) -> bool:
        """Whether it is a keep, and perhaps the first window that it holds for."""
        return len(entries) in (1, 2)

    def put_in_force(
        self,
        entries: Entries,
        older: OlderRows | None = None,  # noqa: ARG002 - windows have no age
        latest: int = NEVER,  # noqa: ARG002
    ) -> tuple[KeepTable, ...]:
        """Decide the windows from one on."""
        if self._published is None or self._published[0] != entries:
            self._decide(entries)
            self._published = (entries, self.ring.tables())
        return self._published[1]

    def _decide(self, entries: Entries) -> None:
        if len(entries) == 2:
            self.ring.decide(int(entries[1]), entries[0])

    def recall(self, decision: DecisionRecord) -> None:
        """Take back one decision, and all that a snapshot beside it says."""
        everything = (decision.windows or {}).get(self.name)
        if everything is not None:
            self.ring.restore(everything)
        self._decide(decision.gates.get(self.name, ()))

    def snapshot(self) -> Mapping[str, Any]:
        """Return all decisions."""
        return self.ring.snapshot()
