"""D-FIT: peers on random trees, with facts as measured, against exact plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.network_dfit import binary_tree
from benchmarks.support.dfit_trees import PeerTree, TreeMailbox, measure_at_random, overload, random_node_tree
from penstock.coordination import DFit, Measurements, Message, dfit_tables
from penstock.coordination.measurements import OperatorMeasurements, remove_rate_bounds
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact, FitNode
from penstock.planning.flows import Flows
from penstock.planning.inequalities import InequalityProgram
from tests.networks import figure7, overloading_rates, random_tree
from tests.unit.coordination.engine import UNIT, Engine, figure1


def slower(network: Network, node: str, times: float) -> Measurements:
    declared = Measurements.from_declaration(network, node)
    operators = {name: replace(facts, cost=times * facts.cost) for name, facts in declared.operators.items()}
    return replace(declared, operators=operators)


@pytest.mark.parametrize("seed", range(25))
def test_peers_come_within_epsilon_of_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    tree = PeerTree(network, 0.1)
    for _ in range(4):
        rates = overloading_rates(rng, network)
        outcome = tree.shed(rates)
        assert outcome.score >= (1 - 0.1) * Exact(network).plan(rates).score * (1 - 1e-6)
        assert outcome.greatest_load <= 1 + 1e-6


@pytest.mark.parametrize("seed", range(25))
def test_peers_know_exactly_when_nothing_is_overloaded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    peers = PeerTree(network, 0.5).peers
    flows = Flows(network)
    for _ in range(4):
        rates = overloading_rates(rng, network, near=True)
        for scale in (0.9999, 0.97, 1.0001):
            vector = np.array([rates[name] * scale for name in network.inputs])
            used_share = float(np.max(flows.full_loads @ vector / flows.capacity))
            vector *= scale / used_share
            now = dict(zip(network.inputs, vector.tolist(), strict=True))
            for root in (node for node in peers if peers[node].parent is None):
                below = [root]
                for node in below:
                    below += peers[node].children
                full = flows.full_loads @ vector
                over = any(full[flows.nodes.index(node)] > network.nodes[node].capacity for node in below)
                reach = peers[root].reach
                assert reach is not None
                point = np.array([now[name.partition("->")[0]] for name in reach.columns])
                assert bool(np.any(reach.bounds @ point > 1 + 1e-9)) == over


@pytest.mark.parametrize("capacity", [0.9, 0.8, 0.1])
@pytest.mark.parametrize("node", ["A", "B"])
def test_a_node_slower_than_declared_never_has_everything_dropped(node: str, capacity: float) -> None:
    """Figure 1, one stream loaded or both."""
    network = figure1(1.0)
    tree = PeerTree(network, 0.05)
    tree.learn([replace(Measurements.from_declaration(network, node), capacity=capacity)])
    exact = Exact(tree.measured)
    steps = (0.0, 0.01, 0.1, 0.2, 0.28, 0.31, 0.4, 0.5, 0.7, 1.0, 4.0)
    for i1, i2 in ((first, second) for first in steps for second in steps):
        best = exact.plan({"i1": i1, "i2": i2}).score
        outcome = tree.shed({"i1": i1, "i2": i2})
        assert outcome.score >= (1 - 0.05 - 1e-6) * best
        assert outcome.greatest_load <= 1 + 1e-9


def test_one_stream_loaded_in_the_engine(tmp_path: Path) -> None:
    """The overhead of batches makes B slower than declared; only the first stream is loaded."""
    engine = Engine(tmp_path, DFit)
    engine.rates = {"i1": 120.0, "i2": 10.0}
    flows = engine.settle(20)
    assert flows["b1"] + flows["b2"] >= 0.9 * engine.optimum()


def test_a_child_is_never_loaded_above_its_capacity() -> None:
    """Figure 7 behind a parent that lets everything through: the best that B can do is 0.28."""
    network = (
        NetworkBuilder()
        .node("A", 10.0)
        .node("B")
        .input("i", max_rate=1.0)
        .operator("a", "A", "i", cost=1.0)
        .operator("s", "B", "a", cost=1.0)
        .operator("top", "B", "s", cost=2.0)
        .operator("bottom", "B", "s", cost=5.0)
        .output("q1", "top")
        .output("q2", "bottom")
        .build()
    )
    assert sorted(figure7().operators) == ["bottom", "s", "top"]
    tree = PeerTree(network, 0.05)
    outcome = tree.shed({"i": 0.2})
    assert outcome.score == pytest.approx(0.28, rel=0.05)
    assert outcome.score <= 0.28 + 1e-9
    assert outcome.loads["B"] <= 1.0 + 1e-9


def test_a_change_too_small_for_a_new_table_still_overloads_nothing() -> None:
    network = figure1(1.0)
    tree = PeerTree(network, 0.1)
    tables = {node: peer.tables_built for node, peer in tree.peers.items()}
    tree.learn([replace(Measurements.from_declaration(network, node), capacity=0.9955) for node in ("A", "B")])
    assert {node: peer.tables_built for node, peer in tree.peers.items()} == tables
    for rates in ({"i1": 1.0, "i2": 1.0}, {"i1": 1 / 3, "i2": 0.0}, {"i1": 0.2, "i2": 0.4}):
        outcome = tree.shed(rates)
        assert outcome.greatest_load <= 1 + 1e-9
        assert outcome.score >= 0.9 * Exact(tree.measured).plan(rates).score


def test_a_difference_within_its_error_is_no_change() -> None:
    network = figure1(1.0)
    tree = PeerTree(network, 0.1)
    declared = Measurements.from_declaration(network, "B")
    operators = {
        name: OperatorMeasurements(1.04 * facts.cost, 0.05 * facts.cost, 1.0, 0.0) for name, facts in declared.operators.items()
    }
    assert not tree.learn([replace(declared, operators=operators)]).messages
    operators = {name: replace(facts, cost_error=0.01) for name, facts in operators.items()}
    assert tree.learn([replace(declared, operators=operators)]).messages


def test_a_rate_above_the_declared_one_is_no_reason_to_drop() -> None:
    network = NetworkBuilder().node("A").input("i", max_rate=1.0).operator("a", "A", "i", cost=0.1).output("q", "a").build()
    tree = PeerTree(network, 0.1)
    assert tree.shed({"i": 9.0}).score == pytest.approx(9.0)
    assert tree.shed({"i": 90.0}).score == pytest.approx(10.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_enters_at_two_nodes_and_merges_again(seed: int) -> None:
    """Each node sheds its own copy; the parent's table has a column for the child's."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder().node("A").node("B").node("C").input("i", max_rate=8.0).input("j")
    builder.operator("a", "A", "i", cost=0.5, selectivity=0.8).operator("b", "B", "a", cost=0.7).operator(
        "b2", "B", "i", cost=0.3
    )
    builder.operator("u", "B", "b", "b2", cost=0.2, kind="union").output("q", "u")
    builder.operator("a2", "A", "j", cost=0.4).operator("c", "C", "a2", cost=0.6).operator("c2", "C", "a", cost=0.9)
    network = builder.output("r", "c").output("t", "c2", 0.5).build()
    tree = PeerTree(network, 0.3)
    tree.learn([measure_at_random(rng, network, node) for node in tree.peers])
    exact = Exact(remove_rate_bounds(tree.measured))
    for loaded in (["i"], ["j"], ["i", "j"]):
        rates = overload(rng, tree.measured, loaded)
        outcome = tree.shed(rates)
        assert outcome.score >= (1 - 0.3) * exact.plan(rates).score
        assert outcome.greatest_load <= 1 + 1e-9


def test_what_costs_nothing_is_never_dropped() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1", max_rate=9.0)
        .input("i2", max_rate=9.0)
        .operator("a1", "A", "i1", cost=1.0)
        .operator("a2", "A", "i2", cost=0.0)
        .output("q1", "a1")
        .output("q2", "a2")
        .build()
    )
    tree = PeerTree(network, 0.1)
    assert tree.shed({"i1": 5.0, "i2": 7.0}).score == pytest.approx(8.0, rel=0.01)


def test_what_is_worth_nothing_is_dropped_first() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i1", max_rate=9.0)
        .input("i2", max_rate=9.0)
        .operator("a1", "A", "i1", cost=1.0)
        .operator("a2", "A", "i2", cost=1.0)
        .output("q1", "a1")
        .output("q2", "a2", weight=0.0)
        .build()
    )
    tree = PeerTree(network, 0.1)
    assert tree.shed({"i1": 1e-6, "i2": 5.0}).score == pytest.approx(1e-6)
    assert tree.shed({"i1": 2.0, "i2": 5.0}).score == pytest.approx(1.0)


def refuse(*_: object) -> None:
    raise PenstockError("too large")


def test_without_a_table_the_plan_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    network = figure1(1.0)
    tree = PeerTree(network, 0.1)
    monkeypatch.setattr(FitNode, "table", refuse)
    mailbox = tree.learn([slower(network, "A", 3.0)])
    assert mailbox.messages["want"] == mailbox.messages["inequalities"] == 1  # only B is asked
    outcome = tree.shed({"i1": 1.0, "i2": 1.0})
    assert tree.peers["A"].status()["trouble"] == "too large"
    assert tree.peers["A"].status()["plans"] == tree.peers["B"].status()["plans"] == "exact"
    assert outcome.greatest_load == pytest.approx(1.0)
    assert outcome.score == pytest.approx(Exact(tree.measured).plan({"i1": 1.0, "i2": 1.0}).score)
    monkeypatch.undo()
    tree.learn([slower(network, "A", 2.0)])  # its table fits again
    assert tree.peers["A"].status()["plans"] == tree.peers["B"].status()["plans"] == "table"


def test_until_inequalities_arrive_no_more_is_dropped_than_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    network = figure1(1.0)
    tree = PeerTree(network, 0.1)
    monkeypatch.setattr(FitNode, "table", refuse)
    tree.peers["A"].learn(slower(network, "A", 3.0))
    limits = tree.peers["A"].decide({"i1": 1.0, "i2": 1.0})
    assert limits.reason == "scaled by one factor"
    assert dict(limits.flows) == pytest.approx({"i1": 1 / 9, "i2": 1 / 9})


@pytest.mark.parametrize("restarted", ["A", "B"])
def test_a_restarted_node_gets_inequalities_again(monkeypatch: pytest.MonkeyPatch, restarted: str) -> None:
    network = figure1(1.0)
    monkeypatch.setattr(FitNode, "table", refuse)
    tree = PeerTree(network, 0.1)
    tree.peers[restarted] = DFit(network, restarted, 0.1)
    TreeMailbox(tree.peers).deliver(tree.peers)
    assert tree.peers["A"].status()["plans"] == "exact"
    assert tree.shed({"i1": 1.0, "i2": 1.0}).score == pytest.approx(0.6)


def test_numbers_that_the_solver_rejects_leave_the_scaled_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    network = figure1(1.0)
    monkeypatch.setattr(FitNode, "table", refuse)
    tree = PeerTree(network, 0.1)
    monkeypatch.setattr(InequalityProgram, "update", refuse)
    tree.learn([slower(network, "A", 3.0)])
    assert tree.peers["A"].status()["trouble"] == "too large"
    assert tree.peers["A"].status()["plans"] == "scaled"
    assert tree.shed({"i1": 1.0, "i2": 1.0}).score == pytest.approx(2 / 9)


def test_inequalities_that_make_no_sense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = figure1(1.0)
    monkeypatch.setattr(FitNode, "table", refuse)
    tree = PeerTree(network, 0.1)
    body = {"columns": ["a1->b1"], "worth": [1.0], "upper": [1.0], "limits": [[0], [7], [1.0]], "entering": [[0], [0], [1.0]]}
    for wrong in (body, {**body, "limits": [[0], [0], [1.0]], "worth": [float("nan")]}, {"columns": []}):
        with pytest.raises(PenstockError):
            tree.peers["A"].receive(Message("B", "A", 1, 99, "inequalities", wrong, 0.0))
    with pytest.raises(PenstockError, match="not a child"):
        tree.peers["B"].receive(Message("A", "B", 1, 99, "inequalities", body, 0.0))
    assert tree.shed({"i1": 1.0, "i2": 1.0}).score == pytest.approx(0.6)


@pytest.mark.parametrize("seed", range(20))
def test_peers_without_any_table_plan_exactly(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits, unions and streams that enter anywhere, facts up to tenfold off, through messages."""
    monkeypatch.setattr(FitNode, "table", refuse)
    rng = np.random.default_rng(seed)
    tree = PeerTree(random_node_tree(rng, int(rng.integers(2, 20)), streams=1 + seed % 4), 0.05)
    for _ in range(2):
        tree.learn([measure_at_random(rng, tree.declared, node) for node in tree.peers if rng.random() < 0.5])
        exact = Exact(remove_rate_bounds(tree.measured))
        for near in (False, True):
            rates = overload(rng, tree.measured, list(tree.declared.inputs), near=near)
            outcome = tree.shed(rates)
            assert outcome.score >= 0.995 * exact.plan(rates).score
            assert outcome.greatest_load <= 1 + 1e-9


def test_a_change_travels_only_up() -> None:
    network = binary_tree(4)
    tree = PeerTree(network, 0.2)
    before = {node: peer.tables_built for node, peer in tree.peers.items()}
    mailbox = tree.learn([slower(network, "n14", 1.5)])
    assert mailbox.senders <= {"n14", "n6", "n2", "n0"}
    assert {node for node, peer in tree.peers.items() if peer.tables_built > before[node]} <= {"n14", "n6", "n2", "n0"}
    assert mailbox.messages["change"] >= 1
    assert not tree.learn([slower(network, "n14", 1.5)]).messages


def test_all_nodes_learn_when_far_lower_scores_matter() -> None:
    network = binary_tree(3)
    tree = PeerTree(network, 0.2)
    mailbox = tree.learn([slower(network, "n6", 30.0)])
    assert mailbox.messages["scope"] == 6, "every node but the root"
    assert not tree.learn([slower(network, "n6", 31.0)]).messages["scope"]
    best = Exact(tree.measured).plan({"i": 0.1}).score
    assert tree.shed({"i": 0.1}).score >= 0.8 * best


def test_a_change_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent asks for messages every 50 ms, whether or not its parent has read the last ones."""
    network = figure1(1.0)
    tree = PeerTree(network, 0.1)
    calls: list[str] = []
    compute = dfit_tables.delta_between
    monkeypatch.setattr(dfit_tables, "delta_between", lambda *a: (calls.append("delta"), compute(*a))[1])
    child = tree.peers["B"]
    for times in (1.5, 2.0):
        child.learn(slower(network, "B", times))
        assert [kind for _, kind, _ in child.take_messages()] == ["table"]
    assert len(calls) == 2
    child.note_replaced("A", "table")  # the parent has not read the first change, and cannot use the second alone
    assert [kind for _, kind, _ in child.take_messages()] == ["table"]
    for _ in range(5):
        child.note_replaced("A", "table")  # it has not read the second change, which the whole table replaced
        assert child.take_messages() == []
    assert len(calls) == 2


def test_a_parent_that_missed_a_change_asks_for_the_whole() -> None:
    network = figure1(1.0)
    peers = PeerTree(network, 0.1).peers
    child, parent = peers["B"], peers["A"]
    for times in (1.5, 2.0):
        child.learn(slower(network, "B", times))
        (message,) = (body for to, kind, body in child.take_messages() if kind == "table")
    assert "base" in message, "only what changed"
    parent.receive(Message("B", "A", 1, 1, "table", message, 0.0))  # the first of two got lost
    assert ("B", "resend", {}) in parent.take_messages()
    child.receive(Message("A", "B", 1, 1, "resend", {}, 0.0))
    (whole,) = (body for to, kind, body in child.take_messages() if kind == "table")
    assert "base" not in whole
    parent.receive(Message("B", "A", 1, 2, "table", whole, 0.0))
    parent.refresh()
    assert parent.table is not None
    assert len(parent._child_tables._tables["B"]) == len(child.table or ())


def test_a_restarted_child_learns_what_is_above_it(tmp_path: Path) -> None:
    """A is much cheaper than declared, so far more can come to B than B was told."""
    engine = Engine(tmp_path, DFit)
    engine.costs |= {"a1": UNIT / 4, "a2": UNIT / 2}
    before = engine.settle(20)
    learnt = engine.agents["B"].snapshot()
    engine.agents["B"] = engine.agent("B")
    engine.agents["B"].restore(learnt)
    after = engine.settle(14)
    assert after["b1"] + after["b2"] == pytest.approx(before["b1"] + before["b2"], rel=0.1)


@pytest.mark.parametrize("node", ["n0", "n1", "n3"])
def test_a_restarted_node_ends_where_it_was(node: str) -> None:
    """Facts far from the declared ones, so that everybody needs the scope that he was told."""
    network = binary_tree(3)
    tree = PeerTree(network, 0.1)
    facts = [slower(network, name, 0.1 if name in ("n0", "n1") else 8.0) for name in tree.peers]
    tree.learn(facts)
    rates = {"i": 1.0}
    before = tree.shed(rates)
    tree.peers[node] = DFit(network, node, 0.1)
    TreeMailbox(tree.peers).deliver({node})
    tree.learn(facts)
    after = tree.shed(rates)
    assert after.score == pytest.approx(before.score, rel=1e-9)
    assert all(tree.peers[name]._facts.scope.least_score == tree.peers["n0"]._facts.scope.least_score for name in tree.peers)


def test_a_strangers_table_is_refused() -> None:
    network = figure1(1.0)
    peers = PeerTree(network, 0.1).peers
    table = peers["B"].table
    assert table is not None
    whole = {"version": 9, "table": table.to_message()}
    for sender, kind, body in (
        ("B", "table", {}),
        ("B", "table", {"version": 1, "table": {"schema": 9}, "bounds": []}),
        ("B", "table", {**whole, "bounds": [[1.0, -1.0]], "worth": [1.0, 1.0]}),
        ("B", "table", {**whole, "bounds": [[1.0, 1.0]], "worth": [1.0]}),
        ("C", "table", {}),
        ("B", "song", {}),
    ):
        with pytest.raises(PenstockError):
            peers["A"].receive(Message(sender, "A", 1, 1, kind, body, 0.0))
    for body in (
        {},
        {"least_score": 0.0, "most": {}, "units": {}},
        {"least_score": 1.0, "most": {"a1->b1": "much"}, "units": {}},
    ):
        with pytest.raises(PenstockError):
            peers["B"].receive(Message("A", "B", 1, 1, "scope", body, 0.0))


def test_networks_that_it_cannot_plan_for_are_refused() -> None:
    builder = NetworkBuilder().node("A").node("B").node("C").input("i").operator("a", "A", "i", cost=1.0)
    builder.operator("b", "B", "a", cost=1.0).operator("c", "C", "a", "b", cost=1.0, kind="union").output("q", "c")
    with pytest.raises(PenstockError, match="needs a tree of nodes"):
        DFit(builder.build(), "A")
    floored = NetworkBuilder().node("A").input("i", floor=0.5).operator("a", "A", "i", cost=1.0).output("q", "a").build()
    with pytest.raises(PenstockError, match="neither bandwidths nor floors"):
        DFit(floored, "A")
