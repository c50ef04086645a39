"""Properties of D-FIT that hold for every tree of nodes, whatever was measured."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.support.dfit_trees import PeerTree, measure_at_random, overload, random_node_tree
from penstock.coordination.measurements import remove_rate_bounds
from penstock.planning import Exact, Table
from penstock.planning.dominance import DominanceIndex, pareto_front
from penstock.planning.fit_combination import combine_tables

SEEDS = st.integers(0, 2**32 - 1)
EPSILON = 0.2


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SEEDS, st.integers(2, 9), st.integers(1, 3), st.lists(st.sampled_from([1.01, 1.5, 10.0]), min_size=1, max_size=3))
def test_within_epsilon_of_exact_after_any_changes(seed: int, nodes: int, streams: int, changes: list[float]) -> None:
    """One stream loaded or all, near the boundary and far above it; never above a capacity, never a plan of zero."""
    rng = np.random.default_rng(seed)
    tree = PeerTree(random_node_tree(rng, nodes, streams=streams), EPSILON)
    inputs = list(tree.declared.inputs)
    for most in changes:
        changed = [node for node in tree.peers if rng.random() < 0.6]
        tree.learn([measure_at_random(rng, tree.declared, node, most) for node in changed])
        exact = Exact(remove_rate_bounds(tree.measured))
        for loaded in (inputs[:1], inputs):
            for near in (False, True):
                rates = overload(rng, tree.measured, loaded, near=near)
                best, outcome = exact.plan(rates).score, tree.shed(rates)
                assert outcome.score >= (1 - EPSILON - 1e-6) * best > 0, (rates, outcome)
                assert outcome.greatest_load <= 1 + 1e-9, (rates, outcome)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 3), st.integers(1, 80), st.booleans())
def test_both_ways_to_the_pareto_front_agree(seed: int, dimensions: int, count: int, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 5, (count, dimensions)) / 4.0 if coarse else rng.random((count, dimensions))
    scores = rng.integers(0, 6, count) / 2.0
    order = np.lexsort((-scores, *points.T))  # as a table is sorted: the index sees ties only in this order
    points, scores = points[order], scores[order]
    np.testing.assert_array_equal(pareto_front(points, scores), DominanceIndex(points, scores).pareto_front())


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.booleans())
def test_combined_tables_beat_every_combination(seed: int, has_second_stream: bool) -> None:
    """Children behind one split, with a second stream or without: no combination is better than one that is kept."""
    rng = np.random.default_rng(seed)
    children = []
    for node in ("B", "C", "D"):
        columns = (f"s->{node}", *((f"t->{node}",) if has_second_stream and node != "C" else ()))
        points = rng.integers(0, 5, (int(rng.integers(1, 7)), len(columns))) / 4.0
        children.append(Table(node, columns, np.vstack([np.zeros(len(columns)), points]), rng.random(len(points) + 1)))
    rows = combine_tables(children, [name for child in children for name in child.columns], lambda _: None)

    def rate(source: str, picked: list[int]) -> float:
        return max(
            (
                float(child.points[row, column])
                for child, row in zip(children, picked, strict=True)
                for column, name in enumerate(child.columns)
                if name.startswith(source)
            ),
            default=0.0,
        )

    kept = [[int(rows[f"row {child.node}"][number]) for child in children] for number in range(rows.count)]
    summary = [
        (rate("s", picked), rate("t", picked), sum(float(c.scores[r]) for c, r in zip(children, picked, strict=True)))
        for picked in kept
    ]
    np.testing.assert_allclose(rows["score"], [score for _, _, score in summary])
    for first in range(len(children[0])):
        for second in range(len(children[1])):
            for third in range(len(children[2])):
                picked = [first, second, third]
                score = sum(float(c.scores[r]) for c, r in zip(children, picked, strict=True))
                at_s, at_t = rate("s", picked), rate("t", picked)
                assert any(s <= at_s and t <= at_t and total >= score - 1e-12 for s, t, total in summary)
