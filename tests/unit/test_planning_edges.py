"""Planners on unusual networks and tables. Each of these cases was wrong once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from penstock.cli import main
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder, parse_network
from penstock.planning import (
    EarlyFit,
    Empirical,
    Exact,
    Exponential,
    Fit,
    FitNode,
    Greedy,
    Solver,
    SolverW,
    Table,
    delta_between,
)
from penstock.planning.bounds import RateBounds
from penstock.planning.fit_node import geometric_spread
from penstock.planning.table import Delta
from tests.networks import figure1

runner = CliRunner()


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


def test_weights_that_differ_by_ten_orders_of_magnitude() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1")
        .input("i2")
        .operator("a", "A", "i1", cost=1e-6)
        .operator("b", "A", "i2", cost=10.0, selectivity=1e-3)
        .output("q1", "a")
        .output("q2", "b")
        .build()
    )
    assert Exact(network).plan({"i1": 0.0, "i2": 2.0}).keep["i2"] == pytest.approx(0.05)


def test_loads_that_differ_by_ten_orders_of_magnitude() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i")
        .operator("a", "A", "i", cost=1.0, selectivity=1e-3)
        .operator("b", "B", "a", cost=1e-6)
        .output("q", "b")
        .build()
    )
    assert Exact(network).plan({"i": 2.0}).keep["i"] == pytest.approx(0.5)
    costs = NetworkBuilder().node("A").input("x").input("y").operator("a", "A", "x", cost=1e-9).operator("b", "A", "y", cost=1e4)
    plan = Greedy(costs.output("q", "a").output("p", "b").build()).plan({"x": 1e10, "y": 0.0})
    assert plan.feasible


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
    floored = (
        NetworkBuilder().node("A").input("i", max_rate=4.0).operator("a", "A", "i", cost=1.0).output("q", "a", floor=0.1).build()
    )
    with pytest.raises(PenstockError, match=r"solver does not support floors, .*: use exact"):
        Solver(floored)
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


def test_early_fit_bounds_its_error_over_several_leaves() -> None:
    builder = NetworkBuilder().node("A", 10.0)
    for number in range(3):
        builder.node(f"L{number}").input(f"i{number}", max_rate=5.0).operator(f"a{number}", "A", f"i{number}", cost=0.1)
        builder.operator(f"b{number}", f"L{number}", f"a{number}", cost=0.7).output(f"q{number}", f"b{number}")
    network = builder.build()
    early, exact = EarlyFit(network, error=0.3), Exact(network)
    rng = np.random.default_rng(1)
    for _ in range(100):
        rates = dict(zip(network.inputs, (rng.random(3) * 4).tolist(), strict=True))
        assert early.plan(rates).score >= exact.plan(rates).score - 0.3 - 1e-9


def test_fit_of_a_network_that_is_never_overloaded() -> None:
    network = NetworkBuilder().node("A", 2.0).input("i", max_rate=1.0).operator("a", "A", "i", cost=0.1).output("q", "a").build()
    assert Fit(network).plan({"i": 1.0}).keep == {"i": 1.0}


def test_a_delta_stays_within_the_allowed_difference() -> None:
    known = Table("B", ("i",), np.array([[1.0]]), np.array([1.05]))
    new = Table("B", ("i",), np.array([[1.0], [1.1]]), np.array([1.0, 1.1]))
    assert delta_between(known, new, 0.05)
    rng = np.random.default_rng(2)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        old = Table("B", ("i", "j"), rng.random((20, 2)), rng.random(20) + 0.5)
        now = Table("B", ("i", "j"), rng.random((20, 2)), rng.random(20) + 0.5)
        for allowed in (0.02, 0.2):
            after = delta_between(old, now, allowed).apply(old)
            for _ in range(20):
                rates = rng.random(2) * 1.2
                in_new, in_updated = np.all(now.points <= rates, axis=1), np.all(after.points <= rates, axis=1)
                best = now.scores[in_new].max(initial=0.0)
                if not best:
                    continue
                row = np.flatnonzero(in_updated)[np.argmax(after.scores[in_updated])]
                true = now.scores[np.all(now.points <= after.points[row] * (1 + 1e-9), axis=1)].max(initial=0.0)
                assert true >= (1 - allowed) * best - 1e-9


@pytest.mark.parametrize(
    "message",
    [
        {"schema": 1, "node": "B", "removed": [-1], "points": [], "scores": []},
        {"schema": 1, "node": "B", "removed": [], "points": [[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], "scores": [1.0, 2.0]},
        {"schema": 1, "node": "B", "removed": [], "points": [[float("nan")]], "scores": [1.0]},
        {"schema": 2, "node": "B", "removed": [], "points": [], "scores": []},
    ],
)
def test_malformed_deltas_are_rejected(message: dict[str, object]) -> None:
    table = Table("B", ("i", "j"), np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(PenstockError, match="a change"):
        Delta.from_message(message).apply(table)


def test_a_delta_for_another_node_is_rejected() -> None:
    with pytest.raises(PenstockError, match="does not fit the table of node 'C'"):
        Delta("B", (), np.zeros((0, 1)), np.zeros(0)).apply(Table("C", ("i",), np.zeros((1, 1)), np.zeros(1)))


def test_foreign_and_duplicate_child_tables_are_rejected() -> None:
    bounds = RateBounds(figure1())
    spread = geometric_spread(bounds, 0.2)
    fit_node = FitNode(bounds, "A", spread, step=spread.step)
    table = Fit(figure1(), 0.2).tables["B"]
    with pytest.raises(PenstockError, match="needs the tables of"):
        fit_node.table([table, table])
    foreign = Table("B", ("x->y", "a2->b2"), table.points, table.scores)
    with pytest.raises(PenstockError, match="has a column 'x->y' that node 'A' does not feed"):
        fit_node.table([foreign])


def test_a_builder_can_be_used_after_build() -> None:
    builder = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a")
    first = builder.build()
    builder.operator("b", "A", "a", cost=1.0).output("q2", "b").build()
    assert list(first.operators) == ["a"]
    assert Exact(first).plan({"i": 2.0}).score == pytest.approx(1.0)


def test_a_trace_in_another_order_and_too_few_means() -> None:
    rates = {"i2": np.array([8.0]), "i1": np.array([1.0])}
    workload = Empirical.from_trace(rates, {"i1": 10.0, "i2": 10.0})
    assert workload.mass([0.0, 5.0], [5.0, 10.0]) == 1.0
    with pytest.raises(PenstockError, match="differ in input 'i3'"):
        Empirical.from_trace({"i1": np.ones(1), "i3": np.ones(1)}, {"i1": 1.0})
    with pytest.raises(PenstockError, match="a mean for each of 2 inputs, got 1"):
        Exponential([1.0], [1.0, 1.0])


def test_a_long_chain_of_nodes() -> None:
    builder = NetworkBuilder().input("i", max_rate=10.0)
    source = "i"
    for number in range(1100):
        builder.node(f"N{number}").operator(f"o{number}", f"N{number}", source, cost=0.5)
        source = f"o{number}"
    network = builder.output("q", source).build()
    assert Fit(network, 0.2).plan({"i": 5.0}).score >= 1.6


def test_selectivities_that_overflow_are_rejected() -> None:
    builder = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0, selectivity=1e200)
    network = builder.operator("b", "A", "a", cost=1.0, selectivity=1e200).output("q", "b").build()
    with pytest.raises(PenstockError, match="the product of costs and selectivities overflows"):
        Exact(network)


def test_numpy_numbers_are_numbers() -> None:
    builder = NetworkBuilder().node("A", np.int64(1)).input("i", np.int64(9)).operator("a", "A", "i", cost=np.float32(0.5))
    assert Exact(builder.output("q", "a").build()).plan({"i": np.int64(4)}).keep["i"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {node: A, from: i, cost: 1, cost: 5}", "line 4: operator 'a': has 'cost' twice"),
        ("a: {node: A, from: i, cost: [1]}", "cost must be a number, got a list or a mapping"),
        ("a: {node: A, from: i, cost: 1, [x]: 2}", "the name of a field must be text"),
        ("j: {kind: join, node: A, from: [i, k], cost: 1, windows: [10s, 5]}", "windows must both be in tuples, such as"),
    ],
)
def test_malformed_yaml(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        parse_network(f"nodes: {{A: {{}}}}\ninputs: {{i: {{}}, k: {{}}}}\noperators:\n  {text}\noutputs: {{q: {{from: a}}}}")


def test_errors_in_links_name_the_line() -> None:
    text = "nodes: {A: {}}\ninputs: {i: {}}\noperators: {a: {node: A, from: i, cost: 1}}\noutputs: {q: {from: a}}\n"
    text += "links: {xx: {bandwidth: 1}}"
    with pytest.raises(PenstockError, match="line 5: link 'xx': an arc is written"):
        parse_network(text)


class TestCommandLine:
    NETWORK = str(Path(__file__).parents[2] / "examples" / "table1.yaml")

    def error_line(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        with pytest.raises(SystemExit) as exit_info:
            main(["plan", self.NETWORK, "--rates", "i1=1,i2=1", *arguments])
        captured = capsys.readouterr()
        assert exit_info.value.code == 2
        assert captured.err.count("\n") == 1
        return captured.err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--method", "fit", "--epsilon", "1e-10"],
            ["--method", "early-fit", "--epsilon", "1e-12"],
            ["--method", "early-fit", "--max-entries", "1000000000000000000"],
        ],
    )
    def test_tables_that_would_not_fit_in_memory(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert "too many" in self.error_line(capsys, *arguments)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("i1,i1,i2\n1,2,3\n", "column 'i1' comes twice"),
            ("i1,i2\n10:00:00,1\n", "must be numbers"),
            ("i1,i2\n2020-01-01,1\n", "must be numbers"),
            ("i1,i2\ntrue,1\n", "must be numbers"),
        ],
    )
    def test_files_that_are_not_workloads(
        self, text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / "w.csv").write_text(text)
        assert message in self.error_line(capsys, "--method", "solver-w", "--workload", str(tmp_path / "w.csv"))

    def test_zero_means(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "--means" in self.error_line(capsys, "--method", "solver-w", "--means", "i1=0,i2=1")

    def test_a_rate_above_max_rate_is_not_reported_as_nothing_dropped(self) -> None:
        from penstock.cli import app

        output = runner.invoke(app, ["plan", self.NETWORK, "--rates", "i1=1.2,i2=0"]).stdout
        assert "nothing is dropped" not in output
