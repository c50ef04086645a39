"""The solver: plans for regions of rates."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import (
    Empirical,
    Exact,
    Exponential,
    Solver,
    SolverW,
)
from tests.networks import figure1, overloading_rates


def with_worthless_input() -> Network:
    return (
        NetworkBuilder()
        .node("A")
        .input("i1", max_rate=10.0)
        .input("i2", max_rate=10.0)
        .operator("a", "A", "i1", cost=1.0)
        .operator("b", "A", "i2", cost=1.0)
        .output("q1", "a")
        .output("q2", "b", 0.0)
        .build()
    )


def test_solver_w_with_a_worthless_input() -> None:
    for workload in (Exponential([5.0, 5.0], [10.0, 10.0]), Empirical(np.array([[5.0, 5.0], [2.0, 9.0]]), [10.0, 10.0])):
        solver = SolverW(with_worthless_input(), 0.05, workload=workload)
        assert solver.plan({"i1": 5.0, "i2": 5.0}).score >= 0.9
    assert isinstance(Solver(with_worthless_input(), 0.1).lookup([5.0, 5.0]), int)


def test_solver_rejects_unsupported_networks() -> None:
    for options in ({"max_programs": 0}, {"max_programs": -3}, {"max_seconds": 0.0}):
        with pytest.raises(PenstockError, match="must be positive"):
            Solver(figure1(), **options)
    many = NetworkBuilder().node("A")
    for number in range(14):
        many.input(f"i{number}", max_rate=1.0).operator(f"a{number}", "A", f"i{number}", cost=1.0).output(
            f"q{number}", f"a{number}"
        )
    with pytest.raises(PenstockError, match=r"into 2\^14 parts: use exact"):
        Solver(many.build())


def test_a_space_far_larger_than_the_feasible_part() -> None:
    network = NetworkBuilder().node("A").input("i", max_rate=1e9).operator("a", "A", "i", cost=1.0).output("q", "a").build()
    solver = Solver(network, 0.05)
    assert solver.error <= 0.05
    for rate in (2.0, 500.0, 1e9):
        assert solver.plan({"i": rate}).score >= 0.95


def test_plans_of_a_solver_that_stopped_early_carry_a_note() -> None:
    plan = Solver(figure1(), 0.01, max_programs=20).plan({"i1": 1.0, "i2": 1.0})
    assert any("above its epsilon of 1.00%" in note for note in plan.notes)


def test_solver_needs_a_max_rate() -> None:
    network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a").build()
    with pytest.raises(PenstockError, match="input 'i' has no max_rate"):
        Solver(network)


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


@pytest.mark.parametrize("max_programs", [1, 2, 5, 20, 100])
def test_a_solver_that_stopped_early_drops_no_more_than_it_reports(max_programs: int) -> None:
    """The plan of a region's bottom-most point drops everything where that point is the origin."""
    network, exact = figure1(), Exact(figure1())
    solver = Solver(network, 0.01, max_programs=max_programs)
    assert solver.error < 1.0
    rng = np.random.default_rng(max_programs)
    for rates in (overloading_rates(rng, network, near=near) for near in (True, False) for _ in range(40)):
        plan, best = solver.plan(rates), exact.plan(rates).score
        assert plan.feasible
        assert plan.score >= (1.0 - solver.error) * best - 1e-9
        assert plan.score > 0.0
