"""FIT: tables of plans, made before rates are known."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from benchmarks.support.fit_networks import chains
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
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
    with pytest.raises(
        PenstockError, match=r"take about [\d,]+ entries, .*: use an epsilon of 0.\d+, max_entries, or the method exact"
    ):
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


def wide(inputs: int, max_rate: float = 1000.0) -> Network:
    return chains((32.0, 16.0, 24.0, 12.0, 28.0, 8.0, 20.0, 10.0)[:inputs], max_rate=max_rate)


@pytest.mark.parametrize("inputs", [2, 4, 8])
@pytest.mark.parametrize("max_entries", [1, 2, 7, 30, 300])
def test_max_entries_is_a_promise(inputs: int, max_entries: int) -> None:
    """Before, four inputs at 10% with 1,000 entries dropped everything at half of the rates just above the boundary."""
    network = wide(inputs)
    fit, exact = Fit(network, 0.1, max_entries=max_entries), Exact(network)
    assert fit.entries <= max_entries
    assert fit.error < 1.0
    rng = np.random.default_rng(inputs)
    for rates in (overloading_rates(rng, network, near=near) for near in (True, False) for _ in range(20)):
        plan, best = fit.plan(rates), exact.plan(rates).score
        assert plan.feasible
        assert plan.score > 0.0
        assert plan.score >= (1.0 - fit.error) * best - 1e-9


@pytest.mark.parametrize("max_entries", [1, 3, 20, 200])
def test_max_entries_where_streams_split_and_merge(max_entries: int) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        network = random_tree(rng)
        fit, exact = Fit(network, 0.1, max_entries=max_entries), Exact(network)
        assert all(len(table) <= max_entries for table in fit.tables.values())
        for _ in range(20):
            rates = overloading_rates(rng, network, near=bool(rng.random() < 0.5))
            plan, best = fit.plan(rates), exact.plan(rates).score
            assert plan.feasible
            assert plan.score >= (1.0 - fit.error) * best - 1e-9
            assert plan.score > 0.0 or best == 0.0


def test_epsilon_follows_from_a_number_of_entries() -> None:
    network = wide(4)
    errors = [Fit(network, None, max_entries=entries).error for entries in (10, 100, 1000, 10_000)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.06
    fit = Fit(network, None, max_entries=1000)
    assert fit.epsilon == fit.error  # nothing else was asked for, so plans carry no note
    assert not fit.plan(dict.fromkeys(network.inputs, 50.0)).notes
    assert any("not 1.00%" in note for note in Fit(network, 0.01, max_entries=50).plan(dict.fromkeys(network.inputs, 50.0)).notes)
    with pytest.raises(PenstockError, match="fit needs an epsilon, max_entries, or both"):
        Fit(network, None)


def test_five_inputs_within_fifteen_percent() -> None:
    fit = Fit(wide(5), 0.15)
    assert fit.error <= 0.15
    assert fit.entries < 20_000


def test_a_table_too_large_is_refused_before_it_takes_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PenstockError, match=r"8 inputs with an epsilon of 0.1 take about [\d,]+ entries"):
            Fit(wide(8), 0.1)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_inputs_and_branches_that_cost_nothing() -> None:
    """A measured cost may be 0. Before, FIT asked for a max_rate and the coordinator ended."""
    network = (
        NetworkBuilder()
        .node("A")
        .input("free")
        .input("i")
        .input("j")
        .operator("f", "A", "free")
        .operator("a", "A", "i", cost=1.0)
        .operator("half", "A", "j", cost=0.0)
        .operator("dear", "A", "half", cost=2.0)
        .union("u", "A", "f", "a")
        .output("q1", "u")
        .output("q2", "half")
        .output("q3", "dear")
        .build()
    )
    fit, exact = Fit(network, 0.1), Exact(network)
    for rates in ({"free": 50.0, "i": 2.0, "j": 0.1}, {"free": 0.0, "i": 0.1, "j": 3.0}, {"free": 9.0, "i": 3.0, "j": 3.0}):
        plan = fit.plan(rates)
        assert plan.feasible
        assert plan.keep["free"] == 1.0
        assert plan.score >= 0.9 * exact.plan(rates).score


@pytest.mark.parametrize("splits", [False, True])
def test_bandwidths(splits: bool) -> None:
    builder = NetworkBuilder().node("A").node("B").input("i", max_rate=40.0).input("j", max_rate=40.0)
    builder.operator("a", "A", "i", cost=0.02).operator("b", "A", "j", cost=0.04)
    builder.operator("c", "B", "a", cost=0.01).operator("d", "B", "b", cost=0.01)
    builder.output("q1", "c").output("q2", "d").link("a", "c", 6.0)
    if splits:
        builder.operator("e", "B", "a", cost=0.02).output("q3", "e")
    network = builder.build()
    fit, exact = Fit(network, 0.3 if splits else 0.1), Exact(network)
    assert fit.error <= 0.1 or splits
    for rates in ({"i": 40.0, "j": 1.0}, {"i": 20.0, "j": 20.0}, {"i": 6.1, "j": 0.0}, {"i": 1.0, "j": 40.0}):
        plan = fit.plan(rates)
        assert plan.feasible
        assert plan.score >= (1.0 - fit.error) * exact.plan(rates).score - 1e-9
