"""All managers side by side, on the network of figure 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination import (
    Follower,
    Local,
    manager_named,
)
from penstock.errors import PenstockError
from penstock.network import NetworkBuilder
from tests.unit.coordination.engine import MANAGERS, PACE, Engine


@pytest.mark.parametrize("name", MANAGERS)
def test_coordination_comes_near_the_optimum(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.08)
    assert flow["b1"] + flow["b2"] == pytest.approx(flow["a1"] + flow["a2"], rel=0.03), "nothing is done in vain"


@pytest.mark.parametrize("name", MANAGERS)
def test_a_changed_cost_is_found_and_planned_for(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *MANAGERS[name])
    engine.settle()
    engine.costs["b1"] *= 2.0
    flow = engine.settle()
    assert flow["b1"] + flow["b2"] == pytest.approx(engine.optimum(), rel=0.1)


@pytest.mark.parametrize("name", [*MANAGERS, "local"])
def test_not_overloaded_nothing_is_shed(name: str, tmp_path: Path) -> None:
    engine = Engine(tmp_path, *({"local": (Local, None)} | MANAGERS)[name])
    engine.rates = {"i1": 50.0, "i2": 60.0}
    flow = engine.settle()
    assert flow == pytest.approx({"a1": 50.0, "b1": 50.0, "a2": 60.0, "b2": 60.0})


def test_a_step_in_the_rates_is_answered_by_the_next_batch_but_one(tmp_path: Path) -> None:
    for name in ("exact", "d-fit"):
        engine = Engine(tmp_path / name, *MANAGERS[name])
        engine.rates = {"i1": 40.0, "i2": 50.0}
        engine.settle()
        engine.rates = {"i1": 250.0, "i2": 250.0}
        engine.step()
        engine.step()
        settled = engine.settle()
        engine.rates = {"i1": 40.0, "i2": 50.0}
        engine.settle(6)
        engine.rates = {"i1": 250.0, "i2": 250.0}
        engine.step()
        engine.step()
        now = {query: rows / PACE for query, rows in engine.flow.items()}
        assert now["a1"] == pytest.approx(settled["a1"], rel=0.3)
        assert now["a2"] == pytest.approx(settled["a2"], rel=0.3)


def test_d_fit_refuses_what_is_no_tree() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .input("i")
        .input("j")
        .operator("a", "A", "i", cost=1.0)
        .operator("b", "B", "j", cost=1.0)
        .union("c", "C", "a", "b", cost=1.0)
        .output("q", "c")
        .build()
    )
    with pytest.raises(PenstockError, match=r"D-FIT needs a tree of nodes, and node 'C' has 2 parents: A, B: run a coordinator"):
        manager_named("d-fit", network, "A")
    assert isinstance(manager_named("exact", network, "A"), Follower)


def test_d_fit_names_a_node_that_runs_nothing() -> None:
    builder = NetworkBuilder().node("A").node("Z").input("i").operator("a", "A", "i", cost=1.0).output("q", "a")
    with pytest.raises(PenstockError, match="no operator runs on node 'Z', so D-FIT has nothing to plan there"):
        manager_named("d-fit", builder.build(), "Z")
    with pytest.raises(PenstockError, match="no operator runs on a node of cluster 'rest', so D-FIT has nothing to plan there"):
        manager_named("d-fit", builder.cluster("rest", "Z").build(), "Z")
