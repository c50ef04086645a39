"""Planners: bad input, limits, floors, tables and their deltas."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import (
    PLANNERS,
    EarlyFit,
    Empirical,
    Exact,
    Exponential,
    Fit,
    FitNode,
    Planner,
    Solver,
    SolverW,
    Table,
    delta_between,
)
from penstock.planning.bounds import RateBounds
from penstock.planning.fit_node import geometric_spread
from penstock.planning.spread import AbsoluteError, Geometric, Steps, TableSize
from penstock.planning.table import Delta
from tests.networks import figure1, figure7, overloading_rates, random_tree


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
def test_a_rate_above_max_rate_is_capped_and_noted(name: str) -> None:
    plan = build(name, figure1()).plan({"i1": 5.0, "i2": 1.0})
    assert plan.notes == ("the rate of 'i1' is 5, above its max_rate: planned for 1",)
    assert plan.feasible  # at the real rate
    assert plan.rates == {"i1": 5.0, "i2": 1.0}


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


def test_solver_needs_a_max_rate() -> None:
    network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a").build()
    with pytest.raises(PenstockError, match="input 'i' has no max_rate"):
        Solver(network)


def test_joins_with_windows_in_seconds_are_rejected_with_a_remedy() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("x")
        .input("y")
        .operator("j", "A", "x", "y", cost=1.0, kind="join", windows=(10.0, 5.0), timed=True)
        .output("q", "j")
        .build()
    )
    with pytest.raises(PenstockError, match=r"join 'j' has windows in seconds.*shed both sides by key"):
        Exact(network)


def test_two_parents_are_rejected_by_fit_and_planned_by_exact() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .input("i", max_rate=4.0)
        .input("j", max_rate=4.0)
        .operator("a", "A", "i", cost=0.5)
        .operator("b", "B", "j", cost=0.5)
        .operator("c", "C", "a", "b", cost=0.5, kind="union")
        .output("q", "c")
        .build()
    )
    with pytest.raises(PenstockError, match="node 'C' has 2 parents: A, B: use exact or solver"):
        Fit(network)
    assert Exact(network).plan({"i": 3.0, "j": 3.0}).score == pytest.approx(2.0)
    assert Solver(network, 0.1).plan({"i": 3.0, "j": 3.0}).score >= 1.8


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
    with pytest.raises(PenstockError, match="FIT supports neither bandwidths nor floors"):
        Fit(network(0.1))


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


def test_solver_stops_at_its_limits() -> None:
    few = Solver(figure1(), 0.01, max_programs=20)
    assert few.programs <= 24  # a division in progress is completed
    assert few.error > 0.01
    ticks = iter(range(1000))
    quick = Solver(figure1(), 0.001, max_seconds=5, clock=lambda: float(next(ticks)))
    assert quick.regions <= 1 + 3 * 5
    assert few.plan({"i1": 0.9, "i2": 0.9}).feasible


def test_solver_w_plans_more_points_where_rates_are_probable() -> None:
    light = SolverW(figure1(), 0.02, workload=Exponential([0.05, 0.05], [1.0, 1.0]))
    heavy = SolverW(figure1(), 0.02, workload=Exponential([0.5, 0.5], [1.0, 1.0]))
    assert light.programs < heavy.programs
    assert heavy.error <= 0.02
    recorded = np.array([[0.9, 0.9], [0.91, 0.92]])
    empirical = SolverW(figure1(), 0.02, workload=Empirical(recorded, [1.0, 1.0]))
    best = Exact(figure1()).plan({"i1": 0.9, "i2": 0.9}).score
    assert empirical.plan({"i1": 0.9, "i2": 0.9}).score >= 0.96 * best
    assert empirical.programs < heavy.programs


def test_probabilities_of_regions_sum_to_1() -> None:
    rng = np.random.default_rng(1)
    for workload in (Exponential([2.0, 3.0], [8.0, 8.0]), Empirical(rng.random((50, 2)) * 10, [8.0, 8.0])):
        cells = [workload.mass([x, y], [x + 4, y + 4]) for x in (0.0, 4.0) for y in (0.0, 4.0)]
        assert sum(cells) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: Exponential([0.0], [1.0]), "must be positive"),
        (lambda: Empirical(np.zeros((0, 2)), [1.0, 1.0]), "needs samples"),
        (lambda: Empirical(np.array([[-1.0]]), [1.0]), "finite and not negative"),
        (lambda: Empirical.from_trace({"a": np.ones(2), "b": np.ones(3)}, {"a": 1.0, "b": 1.0}), "differ in length"),
        (lambda: EarlyFit(figure1()), "either an absolute error or the size"),
        (lambda: EarlyFit(figure1(), error=-1.0), "must be positive and finite"),
        (lambda: EarlyFit(figure1(), size=0), "size of a table must be positive"),
        (lambda: Fit(figure1(), max_entries=0), "max_entries must be positive"),
        (lambda: Steps(0.0), "epsilon must lie"),
    ],
)
def test_bad_options(construct: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        construct()  # type: ignore[operator]


def test_spreads() -> None:
    (geometric,) = Geometric(0.1, least=0.01, total=0.2).samples([2.0], [1.0])
    assert (geometric[0], geometric[-1]) == (0.0, 2.0)
    # A tenth of the rate, or 0.01 where that is more.
    assert np.all(np.diff(geometric) <= np.maximum(0.1 * geometric[1:], 0.01) * (1 + 1e-9))
    assert geometric.size < 50
    (tenths,) = Steps(0.1).samples([3.0], [1.0])
    assert tenths.size == 11
    assert tenths[-1] == pytest.approx(3.0)
    first, second = AbsoluteError(0.1).samples([1 / 3, 1.0], [0.5, 1.0])
    assert (first.size, second.size) == (4, 21)
    sizes = [samples.size for samples in TableSize(100).samples([1.0, 1.0], [1.0, 2.0])]
    assert math.prod(sizes) <= 100
    assert math.prod(sizes) >= 60


def test_max_entries_bounds_the_tables() -> None:
    whole, small = Fit(figure1(), 0.02), Fit(figure1(), 0.02, max_entries=30)
    assert whole.entries > 30
    assert all(len(table) <= 30 for table in small.tables.values())
    plan = small.plan({"i1": 1.0, "i2": 1.0})
    assert plan.feasible
    assert plan.score > 0.45


def test_the_error_for_a_table_too_large_says_what_to_do() -> None:
    builder = NetworkBuilder().node("A")
    for number in range(7):
        builder.input(f"i{number}").operator(f"a{number}", "A", f"i{number}", cost=1.0).output(f"q{number}", f"a{number}")
    with pytest.raises(PenstockError, match=r"node 'A': .* use a larger epsilon, max_entries, or the method exact"):
        Fit(builder.build(), 0.02)


def test_a_node_needs_the_tables_of_its_children() -> None:
    bounds = RateBounds(figure1())
    spread = geometric_spread(bounds, 0.1)
    with pytest.raises(PenstockError, match=r"node 'A' needs the tables of \['B'\], got \[\]"):
        FitNode(bounds, "A", spread, step=spread.step).table([])


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"schema": 9},
        {"schema": 1, "node": "B", "columns": ["i"], "points": [[math.nan]], "scores": [1.0]},
        {"schema": 1, "columns": 3},
    ],
)
def test_messages_that_are_not_tables_are_rejected(message: dict[str, object]) -> None:
    with pytest.raises(PenstockError, match="table"):
        Table.from_message(message)


def _table(network: Network, epsilon: float = 0.1) -> Table:
    return Fit(network, epsilon).tables["B"]


def _with_operator_b1(cost: float = 3.0, selectivity: float = 1.0) -> Network:
    network = figure1()
    changed = replace(network.operators["b1"], cost=cost, selectivity=selectivity)
    return Network(network.nodes, network.inputs, {**network.operators, "b1": changed}, network.outputs)


def test_nothing_is_sent_if_nothing_changed() -> None:
    known = _table(figure1())
    change = delta_between(known, _table(figure1()))
    assert not change
    assert change.apply(known).points.tolist() == known.points.tolist()


@pytest.mark.parametrize(("cost", "selectivity"), [(3.0, 0.9), (3.0, 0.5), (4.0, 1.0), (2.0, 1.0)])
def test_after_a_delta_the_parent_plans_as_well_as_with_the_whole_table(cost: float, selectivity: float) -> None:
    known, new = _table(figure1()), _table(_with_operator_b1(cost, selectivity))
    sent = []
    for allowed in (0.0, 0.05, 0.2):
        change = Delta.from_message(delta_between(known, new, allowed).to_message())
        after = change.apply(known)
        sent.append(len(change.scores))
        rng = np.random.default_rng(3)
        for _ in range(200):
            rates = rng.random(2)
            in_new = np.all(new.points <= rates, axis=1)
            in_updated = np.all(after.points <= rates * (1 + 1e-9), axis=1)
            best = new.scores[in_new].max(initial=0.0)
            assert after.scores[in_updated].max(initial=0.0) >= best * (1 - allowed) - 1e-9
        # Every entry of the parent is feasible: some new entry is component-wise at least it.
        for point in after.points:
            assert np.any(np.all(new.points >= point * (1 - 1e-9), axis=1))
    assert sent == sorted(sent, reverse=True)
    assert sent[0] > 0


def test_a_delta_for_another_table_is_rejected() -> None:
    table = _table(figure1())
    with pytest.raises(PenstockError, match="send the whole table"):
        delta_between(table, Table("B", ("x",), np.zeros((1, 1)), np.zeros(1)))
    with pytest.raises(PenstockError, match="allowed difference"):
        delta_between(table, table, 1.0)
    with pytest.raises(PenstockError, match="removes row 9999"):
        Delta("B", (9999,), np.zeros((0, 2)), np.zeros(0)).apply(table)
    with pytest.raises(PenstockError, match="not a change of a table"):
        Delta.from_message({"node": "B"})


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


def test_rates_near_the_boundary_always_have_an_entry() -> None:
    """The feasibility triangle as the paper prints it leaves rates just above it without an entry."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        network = random_tree(rng)
        fit, exact = Fit(network, 0.2), Exact(network)
        for _ in range(50):
            rates = overloading_rates(rng, network, near=True)
            assert fit.plan(rates).score >= 0.8 * exact.plan(rates).score - 1e-9
