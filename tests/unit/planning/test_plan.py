"""What every planner must do, and the plans themselves."""

from __future__ import annotations

import math

import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import (
    PLANNERS,
    Exact,
    Exponential,
    Fit,
    Planner,
    Solver,
)
from tests.networks import figure1, figure7


def build(name: str, network: Network) -> Planner:
    options = {
        "early-fit": {"error": 0.05},
        "solver-w": {"workload": Exponential([1.0] * len(network.inputs), [s.max_rate for s in network.inputs.values()])},
    }.get(name, {})
    return PLANNERS[name](network, **options)


ALL = pytest.mark.parametrize("name", sorted(PLANNERS))


@ALL
def test_nothing_is_dropped_without_overload(name: str) -> None:
    plan = build(name, figure1()).plan({"i1": 0.1, "i2": 0.1})
    assert not plan.overloaded
    assert set(plan.keep.values()) == {1.0}
    assert plan.score == pytest.approx(0.2)
    assert plan.method == name


@ALL
def test_zero_rates(name: str) -> None:
    plan = build(name, figure1()).plan({"i1": 0.0, "i2": 0.0})
    assert (plan.score, plan.overloaded, plan.feasible) == (0.0, False, True)


@ALL
def test_one_rate_is_zero(name: str) -> None:
    plan = build(name, figure1()).plan({"i1": 1.0, "i2": 0.0})
    assert plan.feasible
    assert 0.28 <= plan.score <= 1 / 3 + 1e-9


@ALL
@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"i1": 1.0, "i3": 1.0}, "rate of 'i3': there is no such input; inputs: i1, i2"),
        ({"i1": 1.0}, "no rate for input 'i2'"),
        ({"i1": 1.0, "i2": -1.0}, "rate of 'i2' must be finite and not negative, got -1.0"),
        ({"i1": math.nan, "i2": 1.0}, "rate of 'i1' must be finite and not negative, got nan"),
        ({"i1": math.inf, "i2": 1.0}, "rate of 'i1' must be finite and not negative, got inf"),
        ({"i1": "1", "i2": 1.0}, "rate of 'i1' must be finite and not negative, got '1'"),
    ],
)
def test_bad_rates(name: str, rates: dict[str, float], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        build(name, figure1()).plan(rates)


@ALL
def test_a_rate_above_max_rate_is_noted(name: str) -> None:
    plan = build(name, figure1()).plan({"i1": 5.0, "i2": 1.0})
    assert plan.notes == ("the rate of 'i1' is 5, above its max_rate of 1",)
    assert plan.feasible  # at the real rate
    assert plan.rates == {"i1": 5.0, "i2": 1.0}


@ALL
def test_a_rate_above_max_rate_is_dropped_only_as_far_as_a_node_is_overloaded(name: str) -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1", max_rate=1.0)
        .input("i2", max_rate=1.0)
        .operator("a", "A", "i1", cost=0.1)
        .operator("b", "A", "i2", cost=0.1)
        .output("q1", "a")
        .output("q2", "b")
        .build()
    )
    planner = build(name, network)
    assert planner.plan({"i1": 4.0, "i2": 1.0}).keep == {"i1": 1.0, "i2": 1.0}
    plan = planner.plan({"i1": 16.0, "i2": 1.0})
    assert plan.feasible
    assert plan.score == pytest.approx(10.0)


@ALL
def test_a_rate_above_max_rate_that_overloads_nothing_is_kept_whole(name: str) -> None:
    """It was cut down to ``max_rate`` although there was capacity for it."""
    network = NetworkBuilder().node("A").input("i", max_rate=4.0).operator("a", "A", "i", cost=0.01).output("q", "a").build()
    plan = build(name, network).plan({"i": 50.0})
    assert plan.keep == {"i": 1.0}
    assert plan.notes == ()


@ALL
def test_plans_for_a_network_without_costs_carry_a_note(name: str) -> None:
    network = NetworkBuilder().node("A").input("i", max_rate=9.0).operator("a", "A", "i").output("q", "a").build()
    plan = build(name, network).plan({"i": 9.0})
    assert plan.keep == {"i": 1.0}
    assert plan.notes == ("no operator has a cost, so nothing is ever overloaded",)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, -0.1, math.nan, 2])
@pytest.mark.parametrize("planner", [Solver, Fit])
def test_epsilon_must_lie_between_0_and_1(planner: type[Solver | Fit], epsilon: float) -> None:
    with pytest.raises(PenstockError, match=r"epsilon must lie in \(0, 1\)"):
        planner(figure1(), epsilon)


def test_an_input_to_two_nodes_is_shed_on_each() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i", max_rate=8.0)
        .operator("a", "A", "i", cost=0.25)
        .operator("b", "B", "i", cost=0.5)
        .output("q1", "a")
        .output("q2", "b")
        .build()
    )
    for planner in (Exact(network), Fit(network, 0.05), build("greedy", network), Solver(network, 0.05)):
        plan = planner.plan({"i": 5.0})
        assert plan.feasible
        assert plan.score >= 0.95 * 6.0


def test_worthless_inputs_are_dropped_first() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i", max_rate=4.0)
        .input("j", max_rate=4.0)
        .operator("a", "A", "i", cost=1.0)
        .operator("b", "A", "j", cost=1.0)
        .output("q", "a", 0.0)
        .output("p", "b")
        .build()
    )
    for name in sorted(PLANNERS):
        plan = build(name, network).plan({"i": 2.0, "j": 0.8})
        assert plan.feasible, name
        assert plan.score >= 0.75, name


def test_plans_are_json() -> None:
    values = Exact(figure7()).plan({"i": 0.2}).to_dict()
    assert list(values)[:6] == ["method", "score", "overloaded", "keep", "loads", "throughput"]
    assert values["loads"] == pytest.approx({"A": 1.0})


def test_the_bottleneck_is_the_node_with_the_highest_load() -> None:
    plan = Exact(figure1()).plan({"i1": 1.0, "i2": 0.1})
    assert plan.bottleneck == "B"
