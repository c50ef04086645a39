"""What a node's agent tells of one query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from penstock.cluster.node_query import AgentController, NodeCounter
from penstock.coordination import Local
from penstock.coordination.agent import Agent
from penstock.network import NetworkBuilder


def test_the_costs_of_a_query_are_journaled_with_its_decisions_once_a_batch_has_told() -> None:
    network = NetworkBuilder().node("A").input("i").operator("m", "A", "i", cost=0.01).output("q", "m").build()
    agent = Agent(network, "A", Local(network, "A"), None, 1.0, queries={"m": ["m"]}, clock=lambda: 0.0)
    query = cast("Any", SimpleNamespace(plan=SimpleNamespace(name="m"), gates=[], units={}))
    controller = AgentController(agent, query, cast("NodeCounter", None))
    assert controller.learnt() == {}, "what was declared was not learnt"
    for rows in (400, 600) * 15:
        agent.learn("m", {"m": rows}, {"m": rows}, 0.1 + 0.001 * rows)
    assert controller.learnt() == {"cost_s": pytest.approx(0.001, rel=0.2), "overhead_s": pytest.approx(0.1, rel=0.5)}
