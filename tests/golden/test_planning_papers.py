"""Numbers from Staying FIT (Tatbul, Çetintemel, Zdonik) and Dealing with Overload (Tatbul, Zdonik)."""

from __future__ import annotations

import math

import pytest

from penstock.network import Coefficients, NetworkBuilder
from penstock.planning import EarlyFit, Exact, Fit, Greedy, Solver
from penstock.planning.spread import Steps
from tests.networks import figure1, figure7

ONES = {"i1": 1.0, "i2": 1.0}


def test_plan_4_of_table_1() -> None:
    """Both papers, table 1: reduced rates 1/5 and 2/5, both loads 1, throughputs 1/5 and 2/5."""
    plan = Exact(figure1()).plan(ONES)
    assert plan.keep == pytest.approx({"i1": 1 / 5, "i2": 2 / 5}, abs=1e-12)
    assert plan.loads == pytest.approx({"A": 1.0, "B": 1.0}, abs=1e-12)
    assert plan.throughput == pytest.approx({"q1": 1 / 5, "q2": 2 / 5}, abs=1e-12)
    assert plan.score == pytest.approx(0.6, abs=1e-12)
    assert plan.overloaded
    assert plan.feasible


def test_plan_2_of_table_1_is_the_local_optimum_of_node_a() -> None:
    """A keeps all of i1 and drops i2, which is its local optimum. B then has a load of 3 and keeps a third."""
    plan = Greedy(figure1()).plan(ONES)
    assert plan.keep == pytest.approx({"i1": 1.0, "i2": 0.0, "a1->b1": 1 / 3, "a2->b2": 1.0})
    assert plan.throughput == pytest.approx({"q1": 1 / 3, "q2": 0.0})


@pytest.mark.parametrize("planner", [Exact, Greedy])
def test_split_example(planner: type[Exact | Greedy]) -> None:
    """Staying FIT, section 6.2.2: at r = 0.2, shedding 60% of the bottom branch gives 0.28; dropping at the input gives 0.25."""
    plan = planner(figure7()).plan({"i": 0.2})
    assert plan.keep == pytest.approx({"i": 1.0, "s->top": 1.0, "s->bottom": 0.4}, abs=1e-9)
    assert plan.score == pytest.approx(0.28, abs=1e-12)


def test_split_looks_cheaper_to_the_parent() -> None:
    """Staying FIT, section 6.2.2: with local plans, the node accepts rates up to 1/3, not 1/8."""
    fit = Fit(figure7(), epsilon=0.01)
    assert fit.tables["A"].points.max() == pytest.approx(1 / 3)
    assert Fit(figure7(), epsilon=0.01).plan({"i": 0.2}).score == pytest.approx(0.28, rel=0.01)


def test_two_levels_of_splits() -> None:
    """Staying FIT, equations 4 to 8, with all costs and selectivities 1 and weights 1, 2, 3, 4: a tuple of r costs 6.

    By hand, at r = 1 and capacity 1: keeping only E (weight 4) costs x1 + E, so x1 = E = 1/2 with a score of 2. D (weight 3) adds
    a cost of 1 per tuple on top of the same x1, so x1 = D = E = 1/3 gives 7/3.
    """
    network = (
        NetworkBuilder()
        .node("N")
        .input("r")
        .operator("o1", "N", "r", cost=1.0)
        .operator("o2", "N", "o1", cost=1.0)
        .operator("o3", "N", "o2", cost=1.0)
        .operator("o4", "N", "o2", cost=1.0)
        .operator("o5", "N", "o1", cost=1.0)
        .operator("o6", "N", "o1", cost=1.0)
        .output("p1", "o3", 1.0)
        .output("p2", "o4", 2.0)
        .output("p3", "o5", 3.0)
        .output("p4", "o6", 4.0)
        .build()
    )
    plan = Exact(network).plan({"r": 1.0})
    assert plan.score == pytest.approx(7 / 3, abs=1e-9)
    # x6 = E / x1; the paper prints x5 twice.
    assert plan.keep["o1->o6"] == pytest.approx(1.0)
    assert plan.keep["o1->o5"] == pytest.approx(1.0)
    assert plan.keep["o1->o2"] == pytest.approx(0.0)


def test_join_of_equation_9() -> None:
    """Staying FIT, equations 9 to 11, by hand with c = 1, 2, 3, 4, s = 1/2, 1/4, 1/10, 1, w = 10, 20 and p = 2."""
    network = (
        NetworkBuilder()
        .node("N")
        .input("i1")
        .input("i2")
        .operator("o1", "N", "i1", cost=1.0, selectivity=0.5)
        .operator("o2", "N", "i2", cost=2.0, selectivity=0.25)
        .join("o3", "N", "o1", "o2", cost=3.0, selectivity=0.1, windows=(10, 20))
        .operator("o4", "N", "o3", cost=4.0)
        .output("q", "o4", 2.0)
        .build()
    )
    first = 1 + 0.5 * 3 + 0.5 * 20 * 0.1 * 4  # 6.5 s per tuple of i1, which becomes one output tuple
    second = 2 + 0.25 * 3 + 0.25 * 10 * 0.1 * 4  # 3.75 s per tuple of i2, which becomes a quarter of an output tuple
    assert Coefficients(network).load == pytest.approx({"i1": first, "i2": second} | Coefficients(network).load, rel=1e-12)
    plan = Exact(network).plan({"i1": 0.1, "i2": 1.0})
    # i1 is worth 2/6.5 per CPU second, i2 0.5/3.75: i1 comes first, i2 gets the remaining capacity.
    remaining = 1.0 - 0.1 * first
    assert plan.keep == pytest.approx({"i1": 1.0, "i2": remaining / second})
    assert plan.score == pytest.approx(0.1 * 2 + remaining / second * 0.5)


def test_table_of_dealing_with_overload() -> None:
    """Dealing with Overload, section 3.2: steps 0.1 and 0.05 for an error of 0.1. There are 48 points; the paper counts 46."""
    node_b = (
        NetworkBuilder()
        .node("B")
        .input("i1")
        .input("i2")
        .operator("b1", "B", "i1", cost=3.0, selectivity=0.5)
        .operator("b2", "B", "i2", cost=1.0)
        .output("q1", "b1")
        .output("q2", "b2")
        .build()
    )
    fit = EarlyFit(node_b, error=0.1)
    assert fit.tables["B"].generated == 48
    assert fit.tables["B"].scores.max() == pytest.approx(1.0)  # the entry (0, 1.0)
    # Section 3.4 scales (0.5, 0.5) down to (0.15, 0.5). With steps of 0.1 along i1, the best entry is (0.1, 0.5).
    plan = fit.plan({"i1": 0.5, "i2": 0.5})
    assert plan.keep == pytest.approx({"i1": 0.2, "i2": 1.0})
    assert plan.score == pytest.approx(0.55)


@pytest.mark.parametrize(("inputs", "entries"), [(2, 46), (4, None), (8, 42_472)])
def test_counts_behind_table_3(inputs: int, entries: int | None) -> None:
    """Staying FIT, table 3: 46 and 42,472 are the numbers of points of the 10% grid with a load above one half, plus one.

    Each coordinate is a number of tenths of the capacity. C(10 + m, m) points have a sum of at most 10 tenths.
    """
    costs = {2: (0.064, 0.032), 4: (0.032, 0.016) * 2, 8: (0.016, 0.008) * 4}[inputs]
    builder = NetworkBuilder().node("A").node("B")
    for number, cost in enumerate(costs):
        builder.input(f"i{number}")
        builder.operator(f"a{number}", "A", f"i{number}", cost=cost).operator(f"b{number}", "B", f"a{number}", cost=cost)
        builder.output(f"q{number}", f"b{number}")
    fit = Fit(builder.build(), epsilon=0.1, spread=Steps(0.1))
    leaf = fit.tables["B"]
    loads = leaf.points @ costs
    above_half = int((loads > 0.5 + 1e-9).sum())
    assert above_half == math.comb(10 + inputs, inputs) - math.comb(5 + inputs, inputs)
    if entries is not None:
        assert above_half + 1 == entries


def test_figure_5_scales_rates_down_to_the_bottom_of_their_region() -> None:
    """Staying FIT, section 5.1: rates are scaled down to the bottom-most point of their region and use its plan."""
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1", max_rate=100.0)
        .input("i2", max_rate=100.0)
        .operator("a1", "A", "i1", cost=0.01)
        .operator("a2", "A", "i2", cost=0.02)
        .output("q1", "a1")
        .output("q2", "a2")
        .build()
    )
    solver = Solver(network, epsilon=0.99)  # one division: (50, 50) is the bottom of the upper right region
    plan = solver.plan({"i1": 60.0, "i2": 75.0})
    assert plan.keep["i1"] == pytest.approx(50 / 60)
    assert plan.throughput["q1"] == pytest.approx(50.0)
    assert plan.throughput["q2"] == pytest.approx(25.0)
