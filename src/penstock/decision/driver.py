"""How a driver carries instructions out: the one order of things that exactness depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.decision.core import QueryCore
from penstock.decision.instructions import Append, Instruction, Publish, Warn
from penstock.drop.tables import KeepTable
from penstock.journal.records import DecisionRecord, Record

__all__ = ["Driver", "carry_out"]


class Driver(Protocol):
    """What an engine offers its core."""

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""

    def append(self, records: Sequence[Record], query: str | None) -> None:
        """Make records durable, in one write; of another query, in its journal. Raises if it can't."""

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        """Put tables in force at a gate."""

    def warn(self, message: str) -> None:
        """Tell the user, once."""


def carry_out(core: QueryCore, instructions: Sequence[Instruction], driver: Driver) -> None:
    """Carry instructions out in order. What raises ends it: a table that is not durable never takes effect."""
    for instruction in instructions:
        match instruction:
            case Append(records, query):
                driver.append(records, query)
                if query is None:
                    for decision in (record for record in records if isinstance(record, DecisionRecord)):
                        carry_out(core, core.confirm(decision, driver.now_s()), driver)
            case Publish(gate, tables):
                driver.publish(gate, tables)
            case Warn(message):
                driver.warn(message)
