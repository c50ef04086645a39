"""The greedy planner."""

from __future__ import annotations

import pytest

from penstock.network import Network, NetworkBuilder
from penstock.planning import (
    Exact,
    Fit,
    Greedy,
)


def merge_then_split() -> Network:
    return (
        NetworkBuilder()
        .node("A")
        .input("i", max_rate=100.0)
        .operator("s", "A", "i", cost=0.1)
        .operator("a", "A", "s", cost=1.0)
        .operator("b", "A", "s", cost=0.1)
        .union("u", "A", "a", "b")
        .operator("c", "A", "u", cost=0.5)
        .operator("d", "A", "u", cost=1.0)
        .output("q1", "c")
        .output("q2", "d")
        .build()
    )


def test_branches_that_merge_and_split_again() -> None:
    """The load that a dropped branch would have saved was subtracted upstream twice."""
    network = merge_then_split()
    best = Exact(network).plan({"i": 50.0}).score
    greedy = Greedy(network).plan({"i": 50.0})
    assert greedy.feasible
    assert greedy.score == pytest.approx(best, rel=1e-9)
    assert Fit(network, 0.1).plan({"i": 50.0}).score >= 0.9 * best


def test_many_stacked_diamonds_are_planned_quickly() -> None:
    builder = NetworkBuilder().node("A").input("i", max_rate=10.0)
    source = "i"
    for number in range(25):
        builder.operator(f"l{number}", "A", source, cost=0.1, selectivity=0.5)
        builder.operator(f"r{number}", "A", source, cost=0.2, selectivity=0.5)
        builder.union(f"u{number}", "A", f"l{number}", f"r{number}")
        source = f"u{number}"
    network = builder.output("q", source).build()
    assert Greedy(network).plan({"i": 5.0}).feasible
