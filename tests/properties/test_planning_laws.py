"""Properties that hold for every network and all rates."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.network import Coefficients, Network, NetworkBuilder
from penstock.planning import Exact, Fit, FitNode, Greedy, Solver, Table
from penstock.planning.bounds import RateBounds
from penstock.planning.column_effects import ColumnEffects
from penstock.planning.directions import DirectionGrid, finest_parts
from penstock.planning.dominance import DominanceIndex, pareto_front
from penstock.planning.fit_node import geometric_spread
from penstock.planning.flows import Flows
from penstock.planning.lookup import ClippingLookup
from penstock.planning.parametric import Parametric
from penstock.planning.point_quadtree import PointQuadtree
from tests.networks import oracle_score, overloading_rates, random_network, random_single_node, random_tree

SEEDS = st.integers(0, 2**32 - 1)


def test_exact_against_the_oracle_on_a_thousand_networks() -> None:
    """The oracle has another formulation and other arithmetic: see ``oracle_score``."""
    overloaded = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        shape = {"nodes": int(rng.integers(1, 5)), "inputs": int(rng.integers(1, 5)), "operators": int(rng.integers(4, 9))}
        network = random_network(rng, **shape)
        rates = {name: round(float(rng.random() * 4) * 8) / 8 for name in network.inputs}
        plan = Exact(network).plan(rates)
        best = oracle_score(network, rates)
        assert plan.feasible, seed
        assert plan.score == pytest.approx(best, rel=1e-9, abs=1e-9), seed
        overloaded += plan.overloaded
    assert overloaded > 500


def test_exact_is_exact_after_a_warm_start() -> None:
    """One model, many rates: a plan does not depend on earlier plans."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        warm = Exact(network)
        for _ in range(20):
            rates = overloading_rates(rng, network)
            assert warm.plan(rates).score == pytest.approx(Exact(network).plan(rates).score, rel=1e-9, abs=1e-12)


def test_parametric_equals_exact() -> None:
    """A basis that is still feasible is optimal: ``Parametric`` gives the scores and keeps of ``Exact``, also at zero rates."""
    saved = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        exact, parametric = Exact(network), Parametric(Exact(network))
        rates = rng.random((100, len(network.inputs))) * 4.0 * (rng.random((100, len(network.inputs))) > 0.2)
        scores, numbers = parametric.solve(rates)
        saved += 100 - parametric.programs_solved
        for row, score, number in zip(rates, scores, numbers, strict=True):
            assert score == pytest.approx(exact.score(row), rel=1e-9, abs=1e-9), seed
            y = exact.flows.propagate(row, parametric.keep(row, int(number)))
            assert float(exact.flows.value @ y) == pytest.approx(score, rel=1e-8, abs=1e-8), seed
            assert np.all(exact.flows.loads @ y <= exact.flows.capacity * (1 + 1e-9))
    assert saved > 3000


def test_greedy_equals_exact_on_one_node() -> None:
    for seed in range(400):
        rng = np.random.default_rng(seed)
        network = random_single_node(rng)
        rates = overloading_rates(rng, network, near=bool(seed % 2))
        greedy, exact = Greedy(network).plan(rates), Exact(network).plan(rates)
        assert greedy.feasible, seed
        assert greedy.score == pytest.approx(exact.score, rel=1e-9, abs=1e-9), seed


def test_greedy_never_beats_exact_and_is_feasible_on_several_nodes() -> None:
    tried = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        network = random_network(rng)
        if Coefficients(network).node_order is None:
            continue
        tried += 1
        rates = overloading_rates(rng, network)
        greedy = Greedy(network).plan(rates)
        assert greedy.feasible, seed
        assert greedy.score <= Exact(network).plan(rates).score * (1 + 1e-9) + 1e-12
    assert tried > 30


@pytest.mark.parametrize("epsilon", [0.05, 0.2])
def test_solver_is_never_further_than_epsilon_from_exact(epsilon: float) -> None:
    for seed in range(25):
        rng = np.random.default_rng(seed)
        network = random_tree(rng)
        solver, exact = Solver(network, epsilon), Exact(network)
        assert solver.error <= epsilon
        for number in range(40):
            rates = overloading_rates(rng, network, near=bool(number % 2))
            plan = solver.plan(rates)
            assert plan.feasible
            assert plan.score >= (1 - epsilon - 1e-6) * exact.plan(rates).score, (seed, rates)


@pytest.mark.parametrize("epsilon", [0.15, 0.3])
def test_fit_is_never_further_than_epsilon_from_exact(epsilon: float) -> None:
    """Trees with splits, unions, several children, outputs on any node; near the boundary too."""
    shapes = {"several nodes": 0, "children": 0, "local plans": 0, "merges": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network = random_tree(rng, streams=int(rng.integers(1, 3)))
        fit, exact = Fit(network, epsilon), Exact(network)
        shapes["several nodes"] += len(fit.tables) > 1
        shapes["children"] += any(len(table.child_rows) > 1 for table in fit.tables.values())
        shapes["local plans"] += any(table.keeps for table in fit.tables.values())
        shapes["merges"] += fit.bounds.roundings > 1
        for number in range(30):
            rates = overloading_rates(rng, network, near=bool(number % 2))
            plan = fit.plan(rates)
            assert plan.feasible, (seed, rates)
            assert plan.score >= (1 - epsilon - 1e-6) * exact.plan(rates).score, (seed, rates)
    assert all(count > 3 for count in shapes.values()), shapes


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, st.integers(1, 200), st.sampled_from([Fit, Solver]))
def test_a_bounded_table_keeps_what_it_promises(seed: int, entries: int, planner: type[Fit | Solver]) -> None:
    """However few its entries: no plan of zero, nothing overloaded, and no error above the one reported."""
    rng = np.random.default_rng(seed)
    network = random_tree(rng, streams=int(rng.integers(1, 4)))
    limit = {"max_entries": entries} if planner is Fit else {"max_programs": entries}
    tables, exact = planner(network, 0.05, **limit), Exact(network)
    for near in (True, True, False):
        rates = overloading_rates(rng, network, near=near)
        plan, best = tables.plan(rates), exact.plan(rates).score
        assert plan.feasible
        assert plan.score >= (1.0 - tables.error - 1e-6) * best
        assert plan.score > 0.0 or best == 0.0


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(2, 7), st.integers(1, 12))
def test_directions_are_no_further_from_the_best_than_their_bound(seed: int, inputs: int, parts: int) -> None:
    """Several nodes limit different inputs, and the worth of inputs differs by up to ten times."""
    rng = np.random.default_rng(seed)
    effects = ColumnEffects(rng.uniform(0.1, 1.0, (int(rng.integers(1, 4)), inputs)), rng.uniform(0.1, 1.0, inputs))
    grid = DirectionGrid.divide(effects, min(parts, finest_parts(inputs, 3000)))
    lookup = ClippingLookup(Table("A", tuple(map(str, range(inputs))), grid.points, grid.scores), *effects)
    builder = NetworkBuilder()
    for node, shares in enumerate(effects.shares):
        builder.node(f"N{node}")
        for number, share in enumerate(shares.tolist()):
            source = f"i{number}" if node == 0 else f"o{node - 1}_{number}"
            builder.operator(f"o{node}_{number}", f"N{node}", source, cost=share)
    for number, worth in enumerate(effects.worth.tolist()):
        builder.input(f"i{number}").output(f"q{number}", f"o{len(effects.shares) - 1}_{number}", worth)
    exact = Exact(builder.build())
    for _ in range(20):
        direction = rng.random(inputs) ** 4
        rates = direction / float(np.max(effects.shares @ direction)) * (1.0 + rng.exponential(1.0))
        feasible = lookup.find(rates.tolist()).rates
        assert np.max(effects.shares @ feasible) <= 1.0 + 1e-9
        assert effects.worth @ feasible >= (1.0 - grid.error - 1e-9) * exact.score(rates)


def test_distributed_fit_computes_the_same_tables() -> None:
    for seed in range(20):
        network = random_tree(np.random.default_rng(seed))
        together = Fit(network, 0.2).tables
        bounds = RateBounds(network)
        spread = geometric_spread(bounds, 0.2)
        apart: dict[str, Table] = {}
        for node in reversed(bounds.order):
            messages = [json.dumps(apart[child].to_message()) for child in bounds.children[node]]
            received = [Table.from_message(json.loads(message)) for message in messages]
            apart[node] = FitNode(bounds, node, spread, step=spread.step).table(received)
        for node, table in together.items():
            np.testing.assert_array_equal(table.points, apart[node].points)
            np.testing.assert_array_equal(table.scores, apart[node].scores)


def test_all_table_entries_are_pareto_optimal() -> None:
    for seed in range(20):
        fit = Fit(random_tree(np.random.default_rng(seed)), 0.2)
        for table in fit.tables.values():
            better = table.scores[:, None] >= table.scores[None, :]
            for column in table.points.T:  # one plane at a time: all at once would take gigabytes
                better &= column[:, None] <= column[None, :]
            np.fill_diagonal(better, val=False)
            assert not better.any()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS)
def test_scores_never_rise_when_a_rate_or_a_capacity_falls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng)
    rates = overloading_rates(rng, network)
    best = Exact(network).plan(rates).score
    name = list(rates)[rng.integers(len(rates))]
    less = Exact(network).plan(rates | {name: rates[name] * rng.random()}).score
    assert less <= best * (1 + 1e-9) + 1e-12
    node = list(network.nodes)[rng.integers(len(network.nodes))]
    weaker = _with_capacity(network, node, network.nodes[node].capacity * (0.1 + 0.9 * rng.random()))
    assert Exact(weaker).plan(rates).score <= best * (1 + 1e-9) + 1e-12


def _with_capacity(network: Network, node: str, capacity: float) -> Network:
    nodes = dict(network.nodes)
    nodes[node] = type(nodes[node])(node, capacity)
    return Network(nodes, network.inputs, network.operators, network.outputs)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_keeps_recovered_from_flows_give_the_same_flows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flows = Flows(random_network(rng))
    rates = rng.random(len(flows.inputs))
    keep = rng.random(len(flows.locations))
    y = flows.propagate(rates, keep)
    again = flows.propagate(rates, flows.keep(rates, y))
    np.testing.assert_allclose(again, y, rtol=1e-9, atol=1e-12)


@settings(max_examples=80, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 60), st.booleans())
def test_both_indexes_find_the_best_entry_component_wise_at_most_the_rates(
    seed: int, dimensions: int, count: int, coarse: bool
) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 5, (count, dimensions)) / 4.0 if coarse else rng.random((count, dimensions))
    scores = points.sum(axis=1) + rng.random(count)
    index, tree = DominanceIndex(points, scores), PointQuadtree(points, scores)
    for _ in range(10):
        rates = rng.random(dimensions) * 1.2
        qualifying = np.flatnonzero(np.all(points <= rates, axis=1))
        best = scores[qualifying].max() if qualifying.size else None
        for row in (index.find(rates.tolist()), tree.find(rates.tolist())):
            assert (None if row is None else scores[row]) == best
            assert row is None or np.all(points[row] <= rates)


def test_an_index_with_more_values_than_steps() -> None:
    rng = np.random.default_rng(1)
    points, scores = rng.random((3000, 3)), rng.random(3000)
    index = DominanceIndex(points, scores)
    for _ in range(50):
        rates = rng.random(3)
        qualifies = np.all(points <= rates, axis=1)
        row = index.find(rates.tolist())
        assert (None if row is None else scores[row]) == (scores[qualifies].max() if qualifies.any() else None)
    front = pareto_front(points, scores)
    for row in range(200):
        better = np.all(points <= points[row], axis=1) & (scores >= scores[row])
        better[row] = False
        assert (row in front) == (not better.any())
