"""Entries that must drop the same keys or windows get the same keep, on one node or on several."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination import COORDINATOR, Coordinator, DFit, DirectoryMailbox, Follower, Local
from penstock.coordination.agent import Agent
from penstock.coordination.measurements import (
    Measurements,
    OperatorMeasurements,
    apply_measurements,
    compute_flows,
)
from penstock.coordination.node_statistics import NodeStatistics
from penstock.errors import PenstockError
from penstock.network import parse_network
from penstock.planning import Exact

JOIN = parse_network(
    """
nodes: {A: , B: }
inputs: {x: {max_rate: 1000}, y: {max_rate: 1000}}
operators:
  a: {node: A, from: x, cost: 0.002, select: [key, t]}
  j: {node: B, kind: join, from: [a, y], cost: 0.001, selectivity: 0.0001, windows: [10s, 10s], on: left.key = right.key}
outputs: {q: {from: j}}
"""
)
UNION = parse_network(
    """
nodes: {A: }
inputs: {i: , j: }
operators:
  a: {node: A, from: i, cost: 0.004, select: [t]}
  u: {node: A, kind: union, from: [a, j], cost: 0.001}
  n: {node: A, kind: aggregate, from: u, cost: 0.001, group: ["window(t, '1 second')"], agg: [count(*)]}
outputs: {q: {from: n}}
"""
)


def test_a_node_for_itself_gives_one_keep_to_what_decides_alike() -> None:
    limits = Local(UNION, "A").decide({"i": 200.0, "j": 100.0})
    assert not limits.flows, "a flow would become another share at each entry, by the sizes of their batches"
    assert limits.keep["i"] == limits.keep["j"] == pytest.approx(1.0 / (200 * 0.006 + 100 * 0.002))
    assert Local(UNION, "A").decide({"i": 10.0, "j": 10.0}).reason == "not overloaded"


def test_a_node_for_itself_plans_the_timed_join_that_it_runs() -> None:
    limits = Local(JOIN, "B").decide({"a->j": 600.0, "y": 900.0})
    assert limits.keep["a->j"] == limits.keep["y"] == pytest.approx(1.0 / (1_500 * 0.001))
    assert Local(JOIN, "A").decide({"x": 1_000.0}).flows["x"] == pytest.approx(500.0)


def test_nodes_under_a_coordinator_get_the_same_keep_for_both_sides_of_a_join(tmp_path: Path) -> None:
    now = [1_000.0]
    agents = {}
    for node, queries in (("A", {"a": ["a"]}), ("B", {"j": ["j"]})):
        mailbox = DirectoryMailbox(tmp_path, node, [COORDINATOR], "x")
        agents[node] = Agent(JOIN, node, Follower(JOIN, node), mailbox, 2.0, queries=queries, clock=lambda: now[0])
    mail = DirectoryMailbox(tmp_path, COORDINATOR, ["A", "B"], "x")
    coordinator = Coordinator(JOIN, mail, "exact", clock=lambda: now[0])
    keeps = []
    for step in range(12):
        now[0] += 2.0
        x_rows, y_rows = 1_600 + 200 * (step % 3), 900 + 100 * (step % 2)  # batches of all sizes
        of_x = agents["A"].decide_batch("a", {"x": x_rows})["x"]
        kept = int(x_rows * of_x)
        agents["A"].learn("a", {"a": kept}, {"a": kept}, 0.01 + 0.002 * kept)
        decided = agents["B"].decide_batch("j", {"a->j": kept, "y": y_rows})
        rows = int(kept * decided["a->j"] + y_rows * decided["y"])
        agents["B"].learn("j", {"j": rows}, {"j": 2 * rows}, 0.01 + 0.001 * rows)
        keeps.append((of_x, decided["y"], decided["a->j"]))
        for agent in agents.values():
            agent.exchange_messages(now[0])
        coordinator.step()
    assert coordinator.number
    for of_x, of_y, of_arc in keeps[-4:]:
        assert of_x == of_y < 0.7
        assert of_arc == 1.0, "what has come through already stays"


def test_a_coordinator_plans_in_place_once_a_timed_join_is_measured(tmp_path: Path) -> None:
    nodes = {node: DirectoryMailbox(tmp_path, node, [COORDINATOR], "x") for node in ("A", "B")}
    coordinator = Coordinator(JOIN, DirectoryMailbox(tmp_path, COORDINATOR, ["A", "B"], "x"), "exact")

    def report(cost: float, ratio: float | None) -> tuple[object, float]:
        """Report costs and what the join puts out per row; return the planner and how far its score is from a new one's."""
        measured = {
            "A": Measurements("A", 0.9, {"a": OperatorMeasurements(0.002, 0.0, 1.0, 0.0)}, {"x": 800.0}),
            "B": Measurements(
                "B", 0.9, {} if ratio is None else {"j": OperatorMeasurements(cost, 0.0, ratio, 0.0)}, {"y": 900.0, "a->j": 400.0}
            ),
        }
        for node, measurements in measured.items():
            nodes[node].send(COORDINATOR, "measurements", measurements.to_body())
        coordinator.step()
        assert coordinator.trouble is None
        best = Exact(apply_measurements(JOIN, measured)).plan({"x": 800.0, "y": 900.0})
        assert coordinator.status()["keep"] == pytest.approx(best.keep)
        return coordinator._planner, coordinator.status()["score"] / best.score

    assert report(0.001, None)[1] == pytest.approx(1.0)
    first, share = report(0.001, 2.5)
    assert share == pytest.approx(1.0)
    second, share = report(0.002, 1.5)
    assert share == pytest.approx(1.0)
    assert second is first, "new numbers, the same program"


def test_a_timed_join_is_measured_in_rows_out_per_row_in() -> None:
    """Whole keys leave that ratio as it is, whatever the keep; the share of pairs that match would change with it."""
    statistics = NodeStatistics(JOIN, {"j": ["j"]})
    # 1,000 a second on both sides with 10 s each: 0.0001 * 10,000 partners per row.
    assert statistics.estimate_operators()["j"].selectivity == pytest.approx(1.0)
    for keep in (1.0, 0.5, 0.1) * 20:
        statistics.learn("j", {"j": int(2_000 * keep)}, {"j": int(5_000 * keep)}, None)
    measured = statistics.estimate_operators()["j"]
    assert measured.selectivity == pytest.approx(2.5, rel=0.05)
    network = apply_measurements(JOIN, {"B": Measurements("B", 0.8, {"j": measured})})
    join = network.operators["j"]
    assert join.gain("a") == join.gain("y") == pytest.approx(measured.selectivity)
    plan = Exact(network).plan({"x": 100.0, "y": 900.0})
    assert plan.keep["x"] == plan.keep["y"] == pytest.approx(0.8)
    assert plan.throughput["q"] == pytest.approx(800.0 * measured.selectivity)


def test_flows_behind_a_timed_join_are_those_of_the_plan() -> None:
    rates = {"x": 800.0, "y": 400.0}
    plan = Exact(JOIN).plan(rates)
    flows = compute_flows(JOIN, plan.rates, plan.keep)
    assert flows["j->q"] == pytest.approx(plan.throughput["q"]) == pytest.approx(plan.keep["x"] * 0.0001 * 800 * 400 * 20)
    assert compute_flows(JOIN, rates, {})["j->q"] == pytest.approx(0.0001 * 800 * 400 * 20)


def test_d_fit_refuses_a_timed_join_by_name() -> None:
    with pytest.raises(
        PenstockError, match="join 'j' has windows in seconds, so both of its sides must have one keep, which FIT"
    ):
        DFit(JOIN, "A", 0.1)


def test_a_declared_timed_join_has_no_measurements_yet() -> None:
    assert "j" not in Measurements.from_declaration(JOIN, "B").operators
    assert Measurements.from_declaration(JOIN, "A").operators == {"a": OperatorMeasurements(0.002, 0.0, 1.0, 0.0)}
