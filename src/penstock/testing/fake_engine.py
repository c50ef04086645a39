"""A micro-batch engine of some fifty lines that drives a decision core without Spark, to test controllers and cores with.

Time is simulated: a batch takes ``overhead_s + cost_s * kept``. The journal is in memory. ``crash`` loses all but the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.control.base import GateCount
from penstock.decision import BatchEnded, BatchPlanned, BatchTimes, MeterReading, QueryCore, carry_out
from penstock.drop.tables import BatchTable, KeepTable
from penstock.errors import JournalError
from penstock.journal.records import Record
from penstock.journal.state import JournalState

__all__ = ["FakeBatch", "FakeEngine"]


@dataclass(frozen=True, slots=True)
class FakeBatch:
    """What one batch did."""

    batch_id: int
    start_s: float
    end_s: float
    offered: int
    kept: int


class FakeEngine:
    """Runs batches of a core that has one gate of one class.

    Parameters
    ----------
    new_core
        Builds the core; called again after a crash.
    cost_s, overhead_s
        Seconds per row and per batch.

    Examples
    --------
    >>> from penstock.control import MicroBatch
    >>> from penstock.decision import ByBatch, SlotGate
    >>> from penstock.drop.shares import EqualShare
    >>> engine = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], MicroBatch(2.0)), cost_s=0.001)
    >>> batches = [engine.run_batch(rows=4_000) for _ in range(10)]      # each would take 4.2 s
    >>> round(batches[-1].end_s - batches[-1].start_s, 1)
    1.0
    """

    def __init__(self, new_core: Callable[[], QueryCore], *, cost_s: float = 0.001, overhead_s: float = 0.2) -> None:
        self._new_core = new_core
        self.cost_s, self.overhead_s = cost_s, overhead_s
        self.clock_s = 1_000.0
        self.journal = JournalState()
        self.is_disk_full = False
        self.warnings: list[str] = []
        self.next_batch = 0
        self.crash()

    def crash(self) -> None:
        """Lose everything but the journal, and start again."""
        self._previous: BatchTimes | None = None
        self._later: list[Record] = []
        self._table: KeepTable = BatchTable.of((1.0,))
        self.core = self._new_core()
        carry_out(self.core, self.core.restore(self.journal), self)

    def run_batch(self, rows: int, *, is_committed: bool = True) -> FakeBatch:
        """Run a batch; one that is not committed runs again under the same number after a crash."""
        number = self.next_batch
        planned = BatchPlanned(number, self.clock_s, {"source": rows}, previous=self._previous)
        self._try(lambda: carry_out(self.core, self.core.plan_batch(planned), self))
        kept = round(rows * float(self._table.keeps[-1, 0]))
        times = BatchTimes(self.clock_s, self.clock_s + self.overhead_s + self.cost_s * kept, self.cost_s * kept)
        self.clock_s = times.end_s
        counts, reading = {"in": GateCount(rows, kept)}, MeterReading(kept, mean_arrival_s=times.start_s if kept else None)
        if is_committed:
            ended = BatchEnded(number, times.end_s, counts, {"in": reading}, times=times, backlog_rows={"source": rows})
            self._try(lambda: carry_out(self.core, self.core.end_batch(ended), self))
            self.next_batch += 1
            self._previous = times
        return FakeBatch(number, times.start_s, times.end_s, rows, kept)

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except JournalError as error:  # the job goes on with the last table
            self.warnings.append(str(error))

    # -- what the core tells it ----------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the simulated time."""
        return self.clock_s

    def append(self, records: Sequence[Record], query: str | None) -> None:  # noqa: ARG002 - one query
        """Keep records in memory."""
        if self.is_disk_full:
            raise JournalError("no space left")
        later, self._later = self._later, []
        for record in (*later, *records):
            self.journal.add(record)

    def append_later(self, records: Sequence[Record]) -> None:
        """Keep records for the next write."""
        self._later += records

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:  # noqa: ARG002 - one gate
        """Put a table in force."""
        self._table = tables[0]

    def warn(self, message: str, error: Exception | None = None) -> None:  # noqa: ARG002 - the message names it
        """Remember a warning."""
        self.warnings.append(message)
