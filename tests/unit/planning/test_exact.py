"""The exact planner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.network.facts import Facts
from penstock.planning import (
    Exact,
    Fit,
    Greedy,
)
from tests.networks import figure1, oracle_score, overloading_rates, random_network


def test_a_join_with_windows_in_seconds_has_one_keep_for_both_sides() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("x")
        .input("y")
        .operator("j", "A", "x", "y", cost=1.0, kind="join", windows=(10.0, 5.0), timed=True)
        .output("q", "j")
        .build()
    )
    plan = Exact(network).plan({"x": 1.0, "y": 3.0})
    assert plan.keep == pytest.approx({"x": 0.25, "y": 0.25})
    assert plan.score == pytest.approx(0.25 * 1.0 * 3.0 * (10.0 + 5.0))


def test_bandwidth_pushes_the_drop_upstream() -> None:
    network = (
        NetworkBuilder()
        .node("A", 10.0)
        .node("B", 10.0)
        .input("i1")
        .input("i2")
        .operator("a1", "A", "i1", cost=0.1)
        .operator("a2", "A", "i2", cost=0.1)
        .operator("b1", "B", "a1", cost=0.1)
        .operator("b2", "B", "a2", cost=0.1)
        .output("q1", "b1")
        .output("q2", "b2")
        .link("a1", "b1", 3.0)
        .build()
    )
    plan = Exact(network).plan({"i1": 6.0, "i2": 6.0})
    assert plan.overloaded
    assert plan.feasible
    assert plan.keep == pytest.approx({"i1": 0.5, "i2": 1.0})
    assert plan.links == pytest.approx({"a1->b1": 3.0})


def test_floors_cost_score_and_are_kept() -> None:
    def network(floor: float, input_floor: float = 0.0) -> Network:
        return (
            NetworkBuilder()
            .node("A")
            .input("cheap")
            .input("expensive", floor=input_floor)
            .operator("a", "A", "cheap", cost=1.0)
            .operator("b", "A", "expensive", cost=4.0)
            .output("q1", "a")
            .output("q2", "b", floor=floor)
            .build()
        )

    rates = {"cheap": 2.0, "expensive": 1.0}
    assert Exact(network(0.0)).plan(rates).throughput == pytest.approx({"q1": 1.0, "q2": 0.0})
    for planner in (Exact(network(0.1)), Exact(network(0.0, input_floor=0.1))):
        plan = planner.plan(rates)
        assert plan.throughput == pytest.approx({"q1": 0.6, "q2": 0.1})
        assert planner.plan({"cheap": 2.0, "expensive": 2.0}).throughput == pytest.approx({"q1": 0.2, "q2": 0.2})
    # Half of the expensive input costs 2 CPU seconds, twice what there is: the floor is halved.
    softened = Exact(network(0.5)).plan(rates)
    assert softened.feasible
    assert softened.throughput == pytest.approx({"q1": 0.0, "q2": 0.25}, abs=1e-6)
    assert softened.notes == (
        "floors overload a node by themselves at these rates: those of 'q2' are lowered to 50.0% of what they ask",
    )
    assert Exact(network(0.1)).plan(rates).score == pytest.approx(0.7)
    for floored in (network(0.1), network(0.0, input_floor=0.1)):
        plan = Fit(floored, 0.05).plan(rates)
        assert plan.feasible
        assert plan.throughput["q2"] >= 0.1 - 1e-9
        assert plan.score >= 0.95 * 0.7
    plan = Fit(network(0.5), 0.05).plan(rates)
    assert plan.feasible
    assert plan.throughput == pytest.approx({"q1": 0.0, "q2": 0.25})
    assert plan.notes == ("the floors overload a node by themselves: all are lowered to 50.0% of what they ask for",)


def test_weights_that_differ_by_ten_orders_of_magnitude() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1")
        .input("i2")
        .operator("a", "A", "i1", cost=1e-6)
        .operator("b", "A", "i2", cost=10.0, selectivity=1e-3)
        .output("q1", "a")
        .output("q2", "b")
        .build()
    )
    assert Exact(network).plan({"i1": 0.0, "i2": 2.0}).keep["i2"] == pytest.approx(0.05)


def test_loads_that_differ_by_ten_orders_of_magnitude() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i")
        .operator("a", "A", "i", cost=1.0, selectivity=1e-3)
        .operator("b", "B", "a", cost=1e-6)
        .output("q", "b")
        .build()
    )
    assert Exact(network).plan({"i": 2.0}).keep["i"] == pytest.approx(0.5)
    costs = NetworkBuilder().node("A").input("x").input("y").operator("a", "A", "x", cost=1e-9).operator("b", "A", "y", cost=1e4)
    plan = Greedy(costs.output("q", "a").output("p", "b").build()).plan({"x": 1e10, "y": 0.0})
    assert plan.feasible


def test_numpy_numbers_are_numbers() -> None:
    builder = NetworkBuilder().node("A", np.int64(1)).input("i", np.int64(9)).operator("a", "A", "i", cost=np.float32(0.5))
    assert Exact(builder.output("q", "a").build()).plan({"i": np.int64(4)}).keep["i"] == pytest.approx(0.5)


def test_floors_that_cannot_be_had_are_lowered_by_one_factor() -> None:
    """Against a closed form: on one node, floors that ask for k times the capacity are lowered to 1/k of what they ask."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        builder, asked = NetworkBuilder().node("A", 0.5), 0.0
        rates = {}
        for number in range(5):
            floor, cost = float(rng.uniform(0.2, 0.9)), float(rng.uniform(0.1, 1.0))
            of_input = bool(rng.random() < 0.5)
            builder.input(f"i{number}", floor=floor if of_input else 0.0).operator(f"a{number}", "A", f"i{number}", cost=cost)
            builder.output(f"q{number}", f"a{number}", float(rng.uniform(0.1, 2.0)), floor=0.0 if of_input else floor)
            rates[f"i{number}"] = float(rng.uniform(1.0, 3.0))
            asked += floor * cost * rates[f"i{number}"]
        network = builder.build()
        plan = Exact(network).plan(rates)
        share = min(1.0, 0.5 / asked)
        assert plan.feasible
        assert any("are lowered to" in note for note in plan.notes) == (share < 1.0)
        for number in range(5):
            floor = network.inputs[f"i{number}"].floor + network.outputs[f"q{number}"].floor
            assert plan.keep[f"i{number}"] >= share * floor * (1 - 1e-6), seed


def test_floors_of_another_fragment_stay() -> None:
    builder = NetworkBuilder().node("A").node("B")
    for name, node in (("i", "A"), ("j", "B")):
        builder.input(name, floor=0.5).operator(f"o{name}", node, name, cost=1.0).output(f"q{name}", f"o{name}")
    plan = Exact(builder.build()).plan({"i": 4.0, "j": 1.5})
    assert plan.keep == pytest.approx({"i": 0.25, "j": 1 / 1.5}, rel=1e-6)
    assert plan.notes == (
        "floors overload a node by themselves at these rates: those of 'i' are lowered to 50.0% of what they ask",
    )


def test_new_costs_in_place_give_the_plan_of_a_new_planner() -> None:
    """Warm equals cold, for changes of any size, also to and from a cost of zero; and equals the oracle."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        warm = Exact(network)
        for _ in range(4):
            changed = vary(network, rng)
            facts = Facts.from_declaration(changed)
            warm.update(facts)
            rates = overloading_rates(rng, changed)
            plan = warm.plan(rates)
            cold = Exact(changed).plan(rates)
            assert plan.overloaded == cold.overloaded
            assert plan.feasible
            assert plan.score == pytest.approx(cold.score, rel=1e-9, abs=1e-9), seed
            assert plan.capacities == cold.capacities
        assert plan.score == pytest.approx(oracle_score(changed, rates), rel=1e-7, abs=1e-9), seed


def vary(network: Network, rng: np.random.Generator) -> Network:
    """Return the network with other costs, selectivities and capacities, all multiples of 1/64."""

    def draw(value: float) -> float:
        return 0.0 if rng.random() < 0.1 else max(1.0, round(64 * value * float(np.exp(rng.normal(0.0, 0.7))))) / 64

    operators = {
        name: replace(operator, cost=draw(operator.cost), selectivity=draw(operator.selectivity))
        for name, operator in network.operators.items()
    }
    nodes = {name: replace(node, capacity=max(1 / 64, draw(node.capacity))) for name, node in network.nodes.items()}
    return Network(nodes, network.inputs, operators, network.outputs)


def test_numbers_that_overflow_change_nothing() -> None:
    network = random_network(np.random.default_rng(5))
    exact = Exact(network)
    rates = overloading_rates(np.random.default_rng(6), network)
    before = exact.plan(rates)
    facts = Facts.from_declaration(network)
    with np.errstate(over="ignore"), pytest.raises(PenstockError, match="overflows"):
        exact.update(Facts(facts.costs * 1e200, facts.selectivities * 1e200, facts.capacities))
    assert exact.plan(rates) == before


def test_a_planner_that_plans_ahead_takes_no_new_numbers() -> None:
    network = figure1()
    with pytest.raises(PenstockError, match="fit cannot change the numbers of its network: build a new planner"):
        Fit(network).update(Facts.from_declaration(network))
