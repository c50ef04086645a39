"""Fragments: parts of a network that share nothing."""

from __future__ import annotations

import time

import numpy as np
import pytest

from penstock.network import Network, NetworkBuilder
from penstock.network.facts import Facts
from penstock.network.fragments import split_into_fragments
from penstock.planning import Empirical, Exact, Exponential, Fit, Planner, Solver, SolverW
from tests.networks import figure1, oracle_score


def side_by_side(*networks: Network) -> Network:
    """Several networks as one."""
    builder = NetworkBuilder()
    for number, network in enumerate(networks):
        for node in network.nodes.values():
            builder.node(f"{node.name}.{number}", node.capacity)
        for stream in network.inputs.values():
            builder.input(f"{stream.name}.{number}", stream.max_rate, floor=stream.floor)
        for operator in network.operators.values():
            sources = [f"{source}.{number}" for source in operator.sources]
            builder.operator(f"{operator.name}.{number}", f"{operator.node}.{number}", *sources, cost=operator.cost)
        for output in network.outputs.values():
            builder.output(f"{output.name}.{number}", f"{output.source}.{number}", output.weight)
    return builder.build()


def test_a_connected_network_is_its_own_fragment() -> None:
    network = figure1()
    assert split_into_fragments(network) == (network,)
    assert split_into_fragments(network)[0] is network


def test_fragments_have_all_parts_once() -> None:
    network = side_by_side(figure1(), figure1())
    parts = split_into_fragments(network)
    assert len(parts) == 2
    for kind in ("nodes", "inputs", "operators", "outputs"):
        assert {name for part in parts for name in getattr(part, kind)} == set(getattr(network, kind))


def test_parts_that_cannot_be_overloaded_are_left_out() -> None:
    builder = NetworkBuilder().node("A").node("idle").input("i").input("j").operator("a", "A", "i", cost=1.0)
    network = builder.output("q", "a").output("r", "j").build()
    assert [list(part.inputs) for part in split_into_fragments(network)] == [["i"]]
    plan = Exact(network).plan({"i": 4.0, "j": 9.0})
    assert plan.keep == pytest.approx({"i": 0.25, "j": 1.0})
    assert plan.loads == pytest.approx({"A": 1.0, "idle": 0.0})


def test_a_limited_link_alone_can_be_overloaded() -> None:
    builder = NetworkBuilder().node("A").input("i").input("j").operator("a", "A", "i", cost=1.0)
    network = builder.output("q", "a").output("r", "j").link("j", "r", 2.0).build()
    plan = Exact(network).plan({"i": 0.5, "j": 8.0})
    assert plan.keep == pytest.approx({"i": 1.0, "j": 0.25})


PLANNERS = [
    Exact,
    lambda network: Solver(network, 0.05),
    lambda network: SolverW(network, 0.05, workload=Exponential([1.0] * 6, [s.max_rate for s in network.inputs.values()])),
    lambda network: Fit(network, 0.1),
]


@pytest.mark.parametrize("build", PLANNERS)
def test_every_planner_plans_fragments_apart(build: object) -> None:
    """At 5%, Solver took over 60 seconds and 2 GB for two networks that it plans in 0.06 s each."""
    network = side_by_side(figure1(), figure1(), figure1())
    start_s = time.perf_counter()
    planner: Planner = build(network)  # type: ignore[operator]
    assert time.perf_counter() - start_s < 5.0
    assert len(planner.fragments) == 3
    rates = dict.fromkeys(network.inputs, 1.0)
    plan = planner.plan(rates)
    assert plan.feasible
    assert plan.score >= (1 - getattr(planner, "epsilon", 0.0) - 1e-9) * oracle_score(network, rates)


def test_a_fragment_that_is_not_overloaded_drops_nothing() -> None:
    network = side_by_side(figure1(), figure1())
    plan = Exact(network).plan({"i1.0": 1.0, "i2.0": 1.0, "i1.1": 0.1, "i2.1": 0.1})
    assert plan.keep == pytest.approx({"i1.0": 0.2, "i2.0": 0.4, "i1.1": 1.0, "i2.1": 1.0})


def test_new_costs_reach_the_fragments() -> None:
    network = side_by_side(figure1(), figure1())
    exact, rates = Exact(network), dict.fromkeys(network.inputs, 1.0)
    before = exact.plan(rates)
    facts = Facts.from_declaration(network)
    exact.update(Facts(np.concatenate([facts.costs[:4], 2.0 * facts.costs[4:]]), facts.selectivities, facts.capacities))
    plan = exact.plan(rates)
    assert plan.score == pytest.approx(0.75 * before.score)
    assert plan.loads["A.0"] == pytest.approx(before.loads["A.0"])


def test_the_expected_error_of_fragments_adds_up() -> None:
    network = side_by_side(figure1(), figure1())
    rng = np.random.default_rng(1)
    samples = rng.random((200, 4))
    workload = Empirical(samples, [stream.max_rate for stream in network.inputs.values()])
    solver = SolverW(network, 0.02, workload=workload)
    assert solver.error <= 0.02
    exact = Exact(network)
    errors = []
    for sample in samples:
        rates = dict(zip(network.inputs, sample.tolist(), strict=True))
        errors.append(1.0 - solver.plan(rates).score / exact.plan(rates).score)
    assert np.mean(errors) <= solver.expected_error(workload) + 1e-9 <= 0.02 + 1e-9
    assert solver.regions == sum(fragment.planner.regions for fragment in solver.fragments)
    assert solver.programs >= solver.programs_solved > 0
    assert isinstance(solver.lookup([0.5] * 4), int)


def test_solver_stops_by_default() -> None:
    """Without a limit it ran for minutes and filled the memory."""
    builder = NetworkBuilder().node("A")
    rng = np.random.default_rng(3)
    for number in range(8):
        builder.input(f"i{number}", max_rate=100.0)
        builder.operator(f"a{number}", "A", f"i{number}", cost=float(rng.uniform(0.01, 0.1))).output(f"q{number}", f"a{number}")
    solver = Solver(builder.build(), 0.05, max_programs=3_000)
    assert solver.programs < 3_000 + 2 * 2**8
    assert "solver stopped at an error of" in solver.plan(dict.fromkeys(solver.network.inputs, 50.0)).notes[0]
    defaults = Solver.__init__.__kwdefaults__ or {}
    assert defaults["max_programs"] == (SolverW.__init__.__kwdefaults__ or {})["max_programs"] == 200_000
