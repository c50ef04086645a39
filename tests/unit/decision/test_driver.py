"""Carrying instructions out: in order, confirming what is durable, stopping at what fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.decision import Append, BatchEnded, BatchPlanned, Instruction, Publish, QueryCore, Warn, carry_out
from penstock.drop.tables import BatchTable, KeepTable
from penstock.journal.records import BatchRecord, DecisionRecord, Record
from tests.unit.decision.harness import Scripted

BATCH, ONE, TWO = BatchRecord(0, {}), DecisionRecord({}, 0.5), DecisionRecord({}, 0.25)
TABLE = BatchTable.of([0.5])


class LoggedCore(QueryCore):
    how = "for a test"

    def __init__(self, log: list[str]) -> None:
        super().__init__([], Scripted())
        self.log = log

    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:
        return []

    def end_batch(self, event: BatchEnded) -> list[Instruction]:
        return []

    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:
        self.log.append(f"confirm {decision.keep} at {now_s}")
        return [Publish("in", (TABLE,)), Warn(f"confirmed {decision.keep}")]


class LoggedDriver:
    def __init__(self, log: list[str], fails_at: str = "") -> None:
        self.log, self.fails_at, self.clock_s = log, fails_at, 0.0

    def now_s(self) -> float:
        self.clock_s += 1.0
        return self.clock_s

    def append(self, records: Sequence[Record], query: str | None) -> None:
        if self.fails_at == "append":
            raise OSError("full")
        self.log.append(f"append {len(records)} to {query}")

    def append_later(self, records: Sequence[Record]) -> None:
        self.log.append(f"later {len(records)}")

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        if self.fails_at == "publish":
            raise OSError("gone")
        self.log.append(f"publish {gate}")

    def warn(self, message: str, error: Exception | None = None) -> None:
        self.log.append(f"warn {message}")


def run(*instructions: Instruction, fails_at: str = "") -> list[str]:
    log: list[str] = []
    try:
        carry_out(LoggedCore(log), instructions, LoggedDriver(log, fails_at))
    except OSError as error:
        log.append(str(error))
    return log


def test_decisions_are_confirmed_after_they_are_written_and_before_what_follows() -> None:
    assert run(Warn("first"), Append((BATCH, ONE)), Warn("last")) == [
        "warn first",
        "append 2 to None",
        "confirm 0.5 at 1.0",
        "publish in",
        "warn confirmed 0.5",
        "warn last",
    ]


def test_each_decision_of_a_write_is_confirmed_at_its_time() -> None:
    log = run(Append((ONE, TWO)))
    assert [line for line in log if line.startswith("confirm")] == ["confirm 0.5 at 1.0", "confirm 0.25 at 2.0"]


def test_what_is_written_for_another_query_is_not_confirmed() -> None:
    assert run(Append((ONE,), query="b")) == ["append 1 to b"]


def test_a_batch_alone_confirms_nothing() -> None:
    assert run(Append((BATCH, "an error"))) == ["append 2 to None"]


@pytest.mark.parametrize(
    ("fails_at", "log"), [("append", ["full"]), ("publish", ["append 1 to None", "confirm 0.5 at 1.0", "gone"])]
)
def test_what_fails_ends_it(fails_at: str, log: list[str]) -> None:
    assert run(Append((ONE,)), Warn("never"), fails_at=fails_at) == log
