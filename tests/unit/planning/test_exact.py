"""The exact planner."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import (
    Exact,
    Fit,
    Greedy,
)


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
    with pytest.raises(PenstockError, match="the floors can't be kept at these rates"):
        Exact(network(0.5)).plan(rates)
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
