"""How a driver carries instructions out: the one order of things that exactness depends on."""

from __future__ import annotations

import contextlib
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

    def warn(self, message: str, error: Exception | None = None) -> None:
        """Tell the user, once; ``error`` is what failed, if this is about a failure."""


def carry_out(core: QueryCore, instructions: Sequence[Instruction], driver: Driver) -> None:
    """Carry instructions out in order. What raises ends it: a table that is not durable never takes effect."""
    for instruction in instructions:
        match instruction:
            case Append(records, query):
                decisions = [record for record in records if isinstance(record, DecisionRecord)]
                try:
                    driver.append(records, query)
                except Exception:
                    _revoke(core, driver)
                    raise
                if query is None:
                    for decision in decisions:
                        carry_out(core, core.confirm(decision, driver.now_s()), driver)
            case Publish(gate, tables):
                driver.publish(gate, tables)
            case Warn(message, error):
                driver.warn(message, error)


def _revoke(core: QueryCore, driver: Driver) -> None:
    """Take the decision that is under way back from the journals of other queries that have it already."""
    for instruction in core.revoke():
        with contextlib.suppress(Exception):  # a journal that can't be written does not have the decision either
            driver.append(instruction.records, instruction.query)
