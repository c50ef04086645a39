"""How a driver carries instructions out: the one order of things that exactness depends on."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

from penstock.decision.core import QueryCore
from penstock.decision.instructions import Append, AppendLater, Instruction, Publish, Warn
from penstock.drop.tables import KeepTable
from penstock.journal.records import DecisionRecord, Record

__all__ = ["Driver", "carry_out"]


class Driver(Protocol):
    """What an engine offers its core."""

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""

    def append(self, records: Sequence[Record], query: str | None) -> None:
        """Make records durable, in one write; of another query, in its journal. Raises if it can't."""

    def append_later(self, records: Sequence[Record]) -> None:
        """Make records durable with the next ones, in this query's journal."""

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        """Put tables in force at a gate."""

    def warn(self, message: str, error: Exception | None = None) -> None:
        """Tell the user, once; ``error`` is what failed, if this is about a failure."""


def carry_out(core: QueryCore, instructions: Sequence[Instruction], driver: Driver) -> None:
    """Carry instructions out in order. What raises ends it: a table that is not durable never takes effect."""
    for instruction in instructions:
        match instruction:
            case Append(records, query):
                decisions = _find_decisions(records)
                try:
                    driver.append(records, query)
                except Exception:
                    _revoke(core, driver)
                    if query is None:
                        _note_what_holds(core, decisions, driver)
                    raise
                if query is None:
                    _confirm(core, decisions, driver)
            case AppendLater(records):
                driver.append_later(records)
                _confirm(core, _find_decisions(records), driver)
            case Publish(gate, tables):
                driver.publish(gate, tables)
            case Warn(message, error):
                driver.warn(message, error)


def _find_decisions(records: Sequence[Record]) -> list[DecisionRecord]:
    return [record for record in records if isinstance(record, DecisionRecord)]


def _confirm(core: QueryCore, decisions: Sequence[DecisionRecord], driver: Driver) -> None:
    for decision in decisions:
        carry_out(core, core.confirm(decision, driver.now_s()), driver)


def _note_what_holds(core: QueryCore, decisions: Sequence[DecisionRecord], driver: Driver) -> None:
    """Say what holds instead of decisions that could not be written; far away, a write that failed may have arrived after all."""
    records = [record for decision in decisions if (record := core.stand_in(decision)) is not None]
    if records:
        with contextlib.suppress(Exception):  # the journal may be closed
            driver.append_later(records)


def _revoke(core: QueryCore, driver: Driver) -> None:
    """Take the decision that is under way back from the journals of other queries that have it already."""
    for instruction in core.revoke():
        with contextlib.suppress(Exception):  # a journal that can't be written does not have the decision either
            driver.append(instruction.records, instruction.query)
