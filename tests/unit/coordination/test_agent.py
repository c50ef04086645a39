"""The agent of a node: restarts, batches, what it measures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.coordination import (
    Local,
    NoShedding,
)
from penstock.coordination.agent import Agent
from penstock.network import NetworkBuilder
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
