"""Plans that never drop everything: D-FIT under measured facts against exact plans, and tables of any size.

D-FIT of Staying FIT (Tatbul et al.) on random trees of 3 to 50 nodes. Nodes measure costs, selectivities and capacities up
to tenfold off the declared ones, again and again, from one node to all. After each round, one stream is loaded, or some, or
all, up to eightfold or just above the boundary. All messages travel through JSON. A plan counts as too far off if its score
is more than epsilon below the best for the facts as measured, and a node as overloaded if it is above its capacity at all.
The same between clusters of nodes, where the nodes of a cluster form any graph.

Tables: every planner that plans in advance, with 2 to 10,000 entries and 2 to 8 inputs, at rates just above the boundary. No
plan may drop everything, and no error may be above what the planner reports.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from benchmarks.support.cluster_graphs import check_clusters
from benchmarks.support.dfit_trees import PeerTree, measure_at_random, overload, random_node_tree
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.table_safety import check_tables
from penstock.coordination.measurements import remove_rate_bounds
from penstock.planning import Exact

__all__ = ["check_dfit", "run"]

_SIZES = ((3, 10), (11, 25), (26, 50))
_STREAMS = ((1, 0.05), (2, 0.1), (3, 0.1), (6, 0.1), (2, 0.3), (3, 0.3))
"""The number of streams, and epsilon. Tables grow exponentially with the streams, and at 30% many of them can be built."""
_TREES = 10
_ROUNDS = 4
_PLANS = 5
_ROUNDING = 1e-6


class Part(Protocol):
    """One part of the benchmark."""

    def __call__(self, *, quick: bool, say: Say) -> tuple[Sequence[Row], Sequence[Bar], Sequence[Claim]]:
        """Measure, and return rows, bars and claims."""


def check_dfit(*, quick: bool, say: Say) -> tuple[list[Row], list[Bar], list[Claim]]:
    """Plan with D-FIT on random trees, and return one row per size of tree and number of streams."""
    rows: list[Row] = []
    for (low, high), (streams, epsilon) in itertools.product(_SIZES, _STREAMS):
        count = 1 if quick else _TREES
        say(f"D-FIT: {count} trees of {low} to {high} nodes, {streams} streams at {epsilon:.0%}")
        rng = np.random.default_rng([low, streams, round(100 * epsilon)])
        rows.append(_measure_trees(rng, count, (low, high), streams, epsilon))
    plans = sum(float(row["plans"] or 0) for row in rows)
    bars = [
        Bar.at_most(
            f"D-FIT, {plans:,.0f} plans: greatest error, in epsilons", _greatest(rows, "error / epsilon"), 1.0 + _ROUNDING
        ),
        Bar.at_most("D-FIT: greatest load of a node, of its capacity", _greatest(rows, "greatest load"), 1.0 + _ROUNDING),
        Bar.at_most("D-FIT: plans of zero", sum(float(row["zero"] or 0) for row in rows), 0.0),
    ]
    return rows, bars, []


def _measure_trees(rng: np.random.Generator, count: int, size: tuple[int, int], streams: int, epsilon: float) -> Row:
    errors, whole_errors, loads, zeros, refused, entries = [], [0.0], [], 0, 0, 0
    started = time.perf_counter()
    for _ in range(count):
        tree = PeerTree(random_node_tree(rng, int(rng.integers(size[0], size[1] + 1)), streams=streams), epsilon)
        for _ in range(_ROUNDS):
            changed = rng.choice(list(tree.peers), size=int(rng.integers(1, len(tree.peers) + 1)), replace=False)
            tree.learn([measure_at_random(rng, tree.declared, str(node)) for node in changed])
            refused += sum(peer.trouble is not None for peer in tree.peers.values())
            entries = max([entries, *(len(peer.table) for peer in tree.peers.values() if peer.table is not None)])
            exact = Exact(remove_rate_bounds(tree.measured))
            for number in range(_PLANS):
                inputs = list(tree.declared.inputs)
                loaded = inputs if number == 0 else rng.choice(inputs, size=int(rng.integers(1, len(inputs) + 1)), replace=False)
                rates = overload(rng, tree.measured, [str(name) for name in loaded], near=number % 2 == 1)
                best, outcome = exact.plan(rates).score, tree.shed(rates)
                errors.append(1.0 - outcome.score / best)
                if all(peer.trouble is None for peer in tree.peers.values()):
                    whole_errors.append(errors[-1])
                loads.append(outcome.greatest_load)
                zeros += outcome.score <= 0.0
    return {
        "part": "D-FIT",
        "nodes": f"{size[0]} to {size[1]}",
        "streams": float(streams),
        "epsilon": epsilon,
        "plans": float(len(errors)),
        "error / epsilon": max(errors) / epsilon,
        "with all tables": max(whole_errors) / epsilon,
        "above epsilon": float(sum(error > epsilon * (1.0 + _ROUNDING) for error in errors)),
        "without a table": float(len(errors) + 1 - len(whole_errors)),
        "mean error / epsilon": float(np.mean(errors)) / epsilon,
        "greatest load": max(loads),
        "zero": float(zeros),
        "tables refused": float(refused),
        "entries": float(entries),
        "s": time.perf_counter() - started,
    }


def _greatest(rows: Sequence[Row], column: str) -> float:
    return max(float(row[column] or 0) for row in rows)


_PARTS: tuple[Part, ...] = (check_dfit, check_clusters, check_tables)


def run(*, quick: bool, say: Say) -> Result:
    """Run all parts."""
    rows: list[Row] = []
    bars: list[Bar] = []
    claims: list[Claim] = []
    for part in _PARTS:
        more_rows, more_bars, more_claims = part(quick=quick, say=say)
        rows += more_rows
        bars += more_bars
        claims += more_claims
    return Result("plan-safety", rows, bars=bars, claims=claims)
