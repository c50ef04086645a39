"""The agent of a node: restarts, batches, what it measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.coordination import (
    Follower,
    Local,
    NoShedding,
)
from penstock.coordination.agent import Agent
from penstock.coordination.manager import Limits, Manager, Outgoing
from penstock.coordination.measurements import Measurements, apply_measurements
from penstock.errors import PenstockError
from penstock.network import Coefficients, Network, NetworkBuilder
from penstock.network.coefficients import part_of
from tests.unit.coordination.engine import MANAGERS, PACE, UNIT, Engine


@pytest.mark.parametrize("name", ["exact", "d-fit"])
def test_a_restarted_node_takes_up_where_it_was(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    before = engine.settle()
    for node in ("B", "A"):
        learnt = json.loads(json.dumps(engine.agents[node].snapshot()))
        del engine.agents[node]
        engine.step()
        engine.agents[node] = engine.agent(node)
        engine.agents[node].restore(learnt)
        after = engine.settle(12)
        assert after["b1"] + after["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.1)


def test_an_input_that_goes_quiet_is_not_planned_for(tmp_path: Path) -> None:
    for name in ("exact", "d-fit"):
        engine = Engine(tmp_path / name, *MANAGERS[name])
        engine.settle()
        agent = engine.agents["A"]
        for _ in range(12):  # i1 has nothing more, so its query runs no batch
            engine.now += PACE
            agent.exchange_messages()
            kept = 500 * agent.decide_batch("a2", {"i2": 500})["i2"]
            agent.learn("a2", {"a2": int(kept)}, {"a2": int(kept)}, 0.1 + 2 * UNIT * kept)
            if engine.coordinator is not None:
                engine.coordinator.step()
            agent.exchange_messages()
        assert agent.measurements.rates["i1"] == 0.0
        assert kept / PACE == pytest.approx(0.45 / UNIT, rel=0.2), "all of A is i2's now"


def test_all_inputs_of_a_query_swing(tmp_path: Path) -> None:
    network = NetworkBuilder().node("A").input("i").input("j").union("u", "A", "i", "j", cost=UNIT).output("q", "u").build()
    agent = Agent(network, "A", Local(network, "A"), None, PACE, queries={"u": ["u"]}, clock=lambda: 0.0)
    sizes = []
    for turn in range(12):
        keep = agent.decide_batch("u", {"i": 500, "j": 500}, 2.0 * turn)
        sizes.append(500 * (keep["i"] + keep["j"]))
    assert max(sizes[6:]) > 1.1 * min(sizes[6:])


def test_batches_swing_by_a_tenth_and_no_more(tmp_path: Path) -> None:
    network = NetworkBuilder().node("A").input("i").operator("m", "A", "i", cost=UNIT).output("q", "m").build()
    agent = Agent(network, "A", Local(network, "A"), None, PACE, queries={"m": ["m"]}, clock=lambda: 0.0)
    sizes = [2000 * agent.decide_batch("m", {"i": 2000}, 2.0 * turn)["i"] for turn in range(12)]
    assert max(sizes[6:]) / min(sizes[6:]) == pytest.approx(1.1 / 0.9, rel=0.02)


def test_no_batch_takes_much_longer_than_it_may(tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS["d-fit"])
    engine.settle()
    kept = 100_000 * engine.agents["B"].decide_batch("b2", {"a2->b2": 100_000})["a2->b2"]
    assert kept * UNIT <= 2.5 * PACE
    unguarded = Engine(tmp_path / "open", NoShedding)
    unguarded.settle(3)
    assert unguarded.agents["B"].decide_batch("b2", {"a2->b2": 100_000})["a2->b2"] == 1.0


class Failing(Manager):
    """Limits the input until it fails."""

    name = "failing"
    error: Exception | None = None

    def decide(self, rates: Mapping[str, float]) -> Limits:
        if self.error is not None:
            raise self.error
        return Limits({"i": 40.0}, reason="a limit")

    def learn(self, measurements: Measurements) -> None:
        if self.error is not None:
            raise self.error

    def take_messages(self) -> list[Outgoing]:
        if self.error is not None:
            raise self.error
        return []


@pytest.mark.parametrize("error", [PenstockError("the floors can't be kept"), ZeroDivisionError("division by zero")])
def test_a_manager_that_fails_leaves_its_limits_and_the_guard_in_force(error: Exception) -> None:
    """The batch got no table and no guard."""
    network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.01).output("q", "a").build()
    manager = Failing(network, "A")
    agent = Agent(network, "A", manager, None, 1.0, queries={"a": ["a"]}, clock=lambda: 0.0)
    for turn in range(4):
        agent.decide_batch("a", {"i": 100}, float(turn))
    before = agent.decide_batch("a", {"i": 100}, 4.0)
    manager.error = error
    after = [agent.decide_batch("a", {"i": 100}, 5.0 + turn)["i"] for turn in range(4)]
    assert sum(after) / 4 == pytest.approx(0.4, rel=0.15), "the last limits stay in force"
    assert before["i"] == pytest.approx(0.4, rel=0.15)
    assert any(str(error) in note for note in agent.status()["notes"])
    unlimited = Failing(network, "A")
    unlimited.error = error
    guarded = Agent(network, "A", unlimited, None, 1.0, queries={"a": ["a"]}, clock=lambda: 0.0)
    assert guarded.decide_batch("a", {"i": 100_000}, 0.0)["i"] * 100_000 * 0.01 == pytest.approx(2.5), "the guard stays"


def test_floors_that_cannot_be_had_do_not_end_a_batch() -> None:
    network = NetworkBuilder().node("A").input("i", floor=0.5).operator("a", "A", "i", cost=0.01).output("q", "a").build()
    agent = Agent(network, "A", Local(network, "A"), None, 1.0, queries={"a": ["a"]}, clock=lambda: 0.0)
    keeps = [agent.decide_batch("a", {"i": 1000}, float(turn))["i"] for turn in range(8)]
    assert sum(keeps[4:]) / 4 == pytest.approx(0.1, rel=0.15)
    assert "are lowered to" in agent.status()["reason"]


def wide_network(branches: int) -> Network:
    builder = NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=1e-4)
    for number in range(branches):
        builder.operator(f"b{number}", "A", "s", cost=1e-3 * (1 + number % 7) / branches, selectivity=0.5)
        builder.output(f"q{number}", f"b{number}")
    return builder.build()


def test_a_batch_builds_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """At fan-out 1,024 a batch took 6 seconds: the network, its coefficients and a planner were built for every one of them."""
    network = wide_network(1024)
    for manager in (Local(network, "A"), Follower(network, "A")):
        agent = Agent(network, "A", manager, None, 1.0, queries={"s": list(network.operators)}, clock=lambda: 0.0)
        agent.decide_batch("s", {"i": 3000}, 0.0)
        for name in ("penstock.network.model.Network.__post_init__", "penstock.planning.flows.compile_structure"):
            monkeypatch.setattr(name, lambda *_: pytest.fail("the network is built again"))
        rows = {name: 1000 + number % 13 for number, name in enumerate(network.operators)}
        agent.learn("s", rows, {name: count // 2 for name, count in rows.items()}, 0.8)
        keep = agent.decide_batch("s", {"i": 3000}, 1.0)
        assert min(keep.values()) < 1.0
        monkeypatch.undo()


def test_loads_of_entries_are_those_of_the_measured_network() -> None:
    network = wide_network(5)
    agent = Agent(network, "A", Local(network, "A"), None, 1.0, queries={"s": list(network.operators)}, clock=lambda: 0.0)
    agent.learn("s", dict.fromkeys(network.operators, 1000), dict.fromkeys(network.operators, 700), 0.9)
    agent.decide_batch("s", {"i": 10}, 0.0)
    measured = apply_measurements(network, {"A": agent.measurements})
    assert agent._loads["i"] == pytest.approx(Coefficients(part_of(measured, "A")).load["i"])


def test_what_one_query_costs_is_told_as_it_is_learnt() -> None:
    network = NetworkBuilder().node("A").input("i").operator("m", "A", "i", cost=9 * UNIT).output("q", "m").build()
    agent = Agent(network, "A", Local(network, "A"), None, PACE, queries={"m": ["m"]}, clock=lambda: 0.0)
    assert agent.describe_query("m")["batches"] == 0
    for turn in range(30):
        rows = 400 + 200 * (turn % 2)
        agent.decide_batch("m", {"i": rows}, 2.0 * turn)
        agent.learn("m", {"m": rows}, {"m": rows}, 0.1 + UNIT * rows)
    known = agent.describe_query("m")
    assert known["cost"] == pytest.approx(UNIT, rel=0.2)
    assert known == agent.status()["queries"]["m"]
