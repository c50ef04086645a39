"""The coordinator: plans, restarts, messages."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from penstock.coordination import (
    COORDINATOR,
    Coordinator,
    DirectoryMailbox,
    Follower,
)
from penstock.coordination.follower import ChangeReport
from penstock.coordination.measurements import Measurements, OperatorTable
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
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


class Pair:
    """A coordinator and the mailbox of its only node."""

    def __init__(self, folder: Path, network: Network, method: str = "exact") -> None:
        self.node = DirectoryMailbox(folder, "A", [COORDINATOR], "x")
        self.coordinator = Coordinator(network, DirectoryMailbox(folder, COORDINATOR, ["A"], "x"), method, clock=lambda: 0.0)

    def report(self, rate: float, *, cost: float = 0.01, **more: object) -> None:
        """Let node A report a rate and a cost, and the coordinator act on it."""
        body = {"node": "A", "capacity": 1.0, "operators": {"a": [cost, 0.0, 1.0, 0.0]}, "rates": {"i": rate}, **more}
        self.node.send(COORDINATOR, "measurements", body)
        self.coordinator.step()

    @property
    def keep(self) -> object:
        return self.coordinator.status()["keep"]

    @property
    def trouble(self) -> str | None:
        return self.coordinator.status()["trouble"]  # type: ignore[no-any-return]


def one_node(floor: float = 0.0) -> Network:
    builder = NetworkBuilder().node("A").input("i", floor=floor)
    return builder.operator("a", "A", "i", cost=0.01).output("q", "a").build()


def test_floors_that_cannot_be_had_do_not_end_the_coordinator(tmp_path: Path) -> None:
    """In the worst burst, a floor of a half was a PenstockError and the process ended."""
    pair = Pair(tmp_path, one_node(floor=0.5))
    pair.report(150.0)
    assert pair.keep == pytest.approx({"i": 2 / 3})
    pair.report(1000.0)  # the floor asks for 5 times the capacity
    assert pair.keep == pytest.approx({"i": 0.1})
    assert pair.coordinator.status()["notes"] == [
        "floors overload a node by themselves at these rates: those of 'i' are lowered to 20.0% of what they ask"
    ]


@pytest.mark.parametrize("error", [PenstockError("no plan"), ZeroDivisionError("division by zero"), MemoryError("too large")])
def test_a_planner_that_fails_leaves_the_last_plan_in_force(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(tmp_path, one_node())
    pair.report(200.0)
    number, keep = pair.coordinator.number, pair.keep
    with monkeypatch.context() as patch:
        patch.setattr(pair.coordinator._planner, "plan", lambda _: (_ for _ in ()).throw(error))
        pair.report(400.0)
        assert pair.coordinator.number == number
        assert pair.keep == keep
        assert pair.trouble == str(error)
    pair.report(400.0)
    assert pair.keep == pytest.approx({"i": 0.25}), "it recovers"
    assert pair.trouble is None


def test_a_planner_that_refuses_new_measurements_goes_on_with_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(tmp_path, one_node(), "fit")
    pair.report(200.0)
    number = pair.coordinator.number
    assert number
    with monkeypatch.context() as patch:
        patch.setattr(pair.coordinator, "_make_planner", Mock(side_effect=PenstockError("too large")))
        pair.report(200.0, cost=0.02)
        assert pair.coordinator.number == number
        assert "too large" in str(pair.trouble)
    pair.report(200.0, cost=0.03)
    assert pair.trouble is None
    assert pair.keep == pytest.approx({"i": 1 / 6}, rel=0.1)


def test_a_cost_of_zero_is_planned_for(tmp_path: Path) -> None:
    """C-FIT refused it, because the rate had no bound any more, and the process ended."""
    builder = NetworkBuilder().node("A").input("i").input("j").operator("a", "A", "i", cost=0.01)
    pair = Pair(tmp_path, builder.operator("b", "A", "j", cost=0.01).output("q", "a").output("r", "b").build(), "fit")
    rates = {"i": 200.0, "j": 10.0}
    pair.report(0.0, rates=rates)
    assert pair.coordinator.number
    pair.report(0.0, rates=rates, cost=0.0)
    assert pair.coordinator.number == 0, "nothing is overloaded"
    assert pair.trouble is None


def test_changed_costs_update_the_planner_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new model for every change of 2% took 11 seconds with 26,000 operators."""
    pair = Pair(tmp_path, one_node())
    pair.report(200.0)
    monkeypatch.setattr("penstock.coordination.coordinator.planner_named", lambda *_, **__: pytest.fail("a new planner"))
    pair.report(200.0, cost=0.02)
    assert pair.keep == pytest.approx({"i": 0.25})


def test_a_coordinator_asks_for_what_it_has_missed(tmp_path: Path) -> None:
    """Nodes report changes only. One that starts in the middle needs all of them once."""
    pair = Pair(tmp_path, one_node())
    pair.report(50.0, operators={}, is_whole=False)
    assert "report" in [message.kind for message in pair.node.receive()]
    pair.report(50.0, cost=0.04)
    pair.report(60.0, operators={}, is_whole=False)
    assert "report" not in [message.kind for message in pair.node.receive()]
    assert pair.coordinator.measurements["A"].operators["a"].cost == 0.04, "what is not reported again has not changed"
    assert pair.keep == pytest.approx({"i": 25.0 / 60.0})


def test_reports_hold_what_has_changed_and_repeat_what_was_not_read() -> None:
    report = ChangeReport()

    def take(*costs: float) -> list[str]:
        table = OperatorTable(("a", "b", "c"), np.array([[cost, 0.0, 1.0, 0.0] for cost in costs]))
        return list(report.take(Measurements("A", 1.0, table, {"i": 1.0}))["names"])

    assert take(1.0, 1.0, 1.0) == ["a", "b", "c"]
    assert take(1.001, 1.0, 1.0) == []
    assert take(1.006, 1.0, 1.0) == ["a"]
    assert take(1.006, 1.0, 2.0) == ["c"]
    report.note_replaced()  # the report of a was not read before that of c replaced it
    assert take(1.006, 1.0, 2.0) == ["a"]
    assert take(0.0, 0.0, 2.0) == ["a", "b"]
    report.reset()
    assert take(0.0, 0.0, 2.0) == ["a", "b", "c"]
