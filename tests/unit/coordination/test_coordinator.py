"""The coordinator: plans, restarts, messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination import (
    COORDINATOR,
    DirectoryMailbox,
    Follower,
)
from tests.unit.coordination.engine import PACE, Engine


def test_a_restarted_coordinator_takes_up_where_it_was(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    before = engine.settle()
    number = engine.coordinator.number  # type: ignore[union-attr]
    engine.coordinator = None
    alone = engine.settle(8)
    assert alone["b1"] + alone["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.05), "the last plan stays in force"
    engine.now += 60.0
    assert engine.agents["A"].status()["silent_s"] == {COORDINATOR: pytest.approx(60.0 + 8 * PACE, abs=3 * PACE)}
    engine.now -= 60.0
    engine.coordinator = engine.coordinate()
    assert engine.coordinator.number == number
    assert engine.settle(8) == pytest.approx(before, rel=0.2)


def test_a_coordinator_without_its_state_starts_anew(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle(6)
    (tmp_path / "state.json").write_text("{torn")
    engine.coordinator = engine.coordinate()
    assert engine.coordinator.number is None
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.08)


def test_messages_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    coordinator = engine.coordinator
    assert coordinator is not None
    mailbox = DirectoryMailbox(tmp_path, "A", [COORDINATOR], "x")
    wrong = {"node": "B", "capacity": 1, "operators": {}, "rates": {}}
    for kind, body in (("measurements", wrong), ("measurements", {}), ("song", {}), ("request", {"number": "x"})):
        mailbox.send(COORDINATOR, kind, body, replaces=False)
    coordinator.step()
    assert coordinator.rejected == {"A": 4}
    mail = DirectoryMailbox(tmp_path, COORDINATOR, ["A", "B"], "x")
    mail.send("A", "plan", {"number": "x"})
    mail.send("A", "song", {})
    engine.agents["A"].exchange_messages()
    assert engine.agents["A"].status()["rejected"] == 2
    assert "a message of kind 'plan' makes no sense" in engine.agents["A"].status()["notes"][0]
    engine.settle(4)


def test_numbers_say_which_plan(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Follower, "exact")
    engine.settle()
    status = engine.agents["A"].manager.status()
    assert engine.coordinator is not None
    assert status["plan"] == engine.coordinator.number
    assert engine.agents["A"].status()["reason"] == f"plan {engine.coordinator.number}"
    engine.rates = {"i1": 10.0, "i2": 10.0}
    engine.settle(6)
    assert engine.coordinator.number == 0
