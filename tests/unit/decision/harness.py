"""Controllers with a script, and a driver that keeps everything in memory, for tests of the decision core."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.decision import BatchEnded, BatchTimes, Instruction, MeterReading, QueryCore, carry_out
from penstock.drop.tables import KeepTable
from penstock.errors import JournalError
from penstock.journal.records import Record, decode, encode
from penstock.journal.state import JournalState

NO_OPINION = None


class Scripted(Controller):
    """Says what its script says, one entry per update, then the last one for ever. Its memory is how often it was asked."""

    def __init__(self, *script: float | Decision | Exception | None) -> None:
        super().__init__(2.0)
        self.script = script or (NO_OPINION,)
        self.asked = 0
        self.observations: list[Observation] = []

    def update(self, observation: Observation) -> Decision:
        self.observations.append(observation)
        answer = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Decision) else Decision(answer)

    def snapshot(self) -> dict[str, Any]:
        return {"asked": self.asked}

    def restore(self, state: Mapping[str, Any]) -> Self:
        self.asked = state["asked"]
        return self


class MemoryDriver:
    """One query's driver: journal in memory, tables and warnings in lists, a clock that others may share."""

    def __init__(self, core: QueryCore, journal: JournalState | None = None, clock: list[float] | None = None) -> None:
        self.core = core
        self.journal = JournalState() if journal is None else journal
        self.clock = [1_000.0] if clock is None else clock
        self.siblings: dict[str, MemoryDriver] = {}
        self.is_disk_full = False
        self.append_takes_s = 0.0
        self.after_append: Callable[[], None] = lambda: None
        self.published: dict[str, tuple[KeepTable, ...]] = {}
        self.warnings: list[str] = []
        self.later: list[Record] = []

    def restore(self) -> Self:
        """Start the query."""
        self.carry_out(self.core.restore(self.journal))
        return self

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        carry_out(self.core, instructions, self)

    def now_s(self) -> float:
        return self.clock[0]

    def append(self, records: Sequence[Record], query: str | None) -> None:
        driver = self if query is None else self.siblings.get(query)
        if driver is None:
            return
        if driver.is_disk_full:
            raise JournalError("no space left")
        self.clock[0] += self.append_takes_s
        later, driver.later = driver.later, []
        for record in (*later, *records):
            driver.journal.add(record)
        self.after_append()

    def append_later(self, records: Sequence[Record]) -> None:
        self.later += records

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        self.published[gate] = tuple(tables)

    def warn(self, message: str, error: Exception | None = None) -> None:
        self.warnings.append(message)


def reread(state: JournalState) -> JournalState:
    """Return the journal as a restart reads it: through JSON, record by record."""
    again = JournalState()
    for record in (*state.decisions, *state.batches.values(), *state.errors):
        again.add(decode(json.loads(json.dumps(encode(record)))))
    return again


def ended(
    batch_id: int,
    now_s: float,
    offered: int = 100,
    kept: int | None = None,
    *,
    gate: str = "in",
    reading: MeterReading | None = None,
    **more: Any,
) -> BatchEnded:
    """Return the end of a batch that took a second."""
    passed = offered if kept is None else kept
    readings = {} if reading is None else {gate: reading}
    more.setdefault("times", BatchTimes(now_s - 1.0, now_s, 0.5))
    return BatchEnded(batch_id, now_s, {gate: GateCount(offered, passed)}, readings, **more)
