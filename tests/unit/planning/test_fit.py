"""FIT: tables of plans, made before rates are known."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import NetworkBuilder
from penstock.planning import (
    Exact,
    Fit,
    Solver,
)
from tests.networks import figure1, overloading_rates, random_tree


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


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: Fit(figure1(), max_entries=0), "max_entries must be positive"),
    ],
)
def test_bad_options(construct: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        construct()  # type: ignore[operator]


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


def test_rates_near_the_boundary_always_have_an_entry() -> None:
    """The feasibility triangle as the paper prints it leaves rates just above it without an entry."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        network = random_tree(rng)
        fit, exact = Fit(network, 0.2), Exact(network)
        for _ in range(50):
            rates = overloading_rates(rng, network, near=True)
            assert fit.plan(rates).score >= 0.8 * exact.plan(rates).score - 1e-9


def test_a_union_of_unequal_streams_on_the_way_to_a_leaf() -> None:
    """Entries with far lower rates may have the same score; they were left out at the root."""
    network = (
        NetworkBuilder()
        .node("A")
        .node("B", 100.0)
        .input("x", max_rate=8.0)
        .input("y", max_rate=8.0)
        .operator("f", "A", "x", cost=1.0)
        .operator("g", "A", "y", cost=1.0, selectivity=0.02)
        .union("u", "A", "f", "g")
        .operator("b", "B", "u", cost=1e-3)
        .output("q", "b")
        .build()
    )
    for epsilon, rates in ((0.1, {"x": 0.5, "y": 0.6}), (0.05, {"x": 0.6, "y": 0.5})):
        assert Fit(network, epsilon).plan(rates).score >= (1 - epsilon) * Exact(network).plan(rates).score


def test_an_input_that_feeds_an_output_beside_an_operator() -> None:
    network = (
        NetworkBuilder()
        .node("A", 0.5)
        .input("i0", max_rate=1.0)
        .input("i1", max_rate=8.0)
        .operator("o0", "A", "i0", cost=1.0)
        .operator("o1", "A", "i1", cost=0.1)
        .output("q0", "o0", 0.0)
        .output("q1", "o1")
        .output("q2", "i0")
        .build()
    )
    rates = {"i0": 0.55, "i1": 2.65}
    assert Fit(network, 0.05).plan(rates).score >= 0.95 * Exact(network).plan(rates).score


def test_fit_of_a_network_that_is_never_overloaded() -> None:
    network = NetworkBuilder().node("A", 2.0).input("i", max_rate=1.0).operator("a", "A", "i", cost=0.1).output("q", "a").build()
    assert Fit(network).plan({"i": 1.0}).keep == {"i": 1.0}


def test_a_long_chain_of_nodes() -> None:
    builder = NetworkBuilder().input("i", max_rate=10.0)
    source = "i"
    for number in range(1100):
        builder.node(f"N{number}").operator(f"o{number}", f"N{number}", source, cost=0.5)
        source = f"o{number}"
    network = builder.output("q", source).build()
    assert Fit(network, 0.2).plan({"i": 5.0}).score >= 1.6
