"""A gate that decides row by row, from a clock: its entries are what the shedders of LAS know when the batch begins."""

from __future__ import annotations

import numpy as np

from penstock.decision.events import MeterReading
from penstock.decision.gate_state import Entries, GateState
from penstock.drop.tables import ALWAYS, NEVER, KeepTable
from penstock.journal.records import DecisionRecord, OlderRows
from penstock.las.micro_batch_las import MicroBatchLas

__all__ = ["ClockGate"]


class ClockGate(GateState):
    """Journals and restores what the shedders know; how much to keep follows from that, whatever a controller says."""

    def __init__(self, name: str, las: MicroBatchLas) -> None:
        super().__init__(name, "row", ("all",))
        self._las = las
        self._now_s = 0.0

    @property
    def has_ages(self) -> bool:
        """Rows say when they arrived: their wait decides."""
        return True

    def update_time(self, now_s: float) -> None:
        """Learn when the batch begins."""
        self._now_s = now_s

    def entries(self, keep: float, full_rows: float | None = None) -> Entries:  # noqa: ARG002 - the clock decides
        """Return what the shedders know."""
        return self._las.entries(self._now_s)

    def fits(self, entries: Entries) -> bool:
        """Whether the entries are such a state, with matrices that are known."""
        return self._las.fits(entries)

    def put_in_force(
        self,
        entries: Entries,
        older: OlderRows | None = None,  # noqa: ARG002 - the clock looks at ages
        latest: int = NEVER,
    ) -> tuple[KeepTable, ...]:
        """Let the shedders know this, and return it with its matrices as a table of one row."""
        state = self._las.put_in_force(entries)
        return (self._table(state.to_entries(), latest),)

    def everything(self) -> KeepTable:
        """Return the table before the first decision."""
        return self._table(self._las.state(0.0).to_entries(), NEVER)

    def _table(self, entries: Entries, latest: int) -> KeepTable:
        return KeepTable(ALWAYS, np.array([entries], dtype=np.float64), latest)

    def update(self, reading: MeterReading) -> str | None:
        """Learn what the tasks measured."""
        return None if reading.clock is None else self._las.learn(reading.clock)

    def recall(self, decision: DecisionRecord) -> None:
        """Take back the matrices that a decision had with it."""
        self._las.recall(decision.gates.get(self.name, ()))
