"""D-FIT: peers on random trees against exact plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.network_dfit import TreeMailbox, binary_tree
from penstock.coordination import (
    DFit,
    Measurements,
    Message,
)
from penstock.coordination.measurements import (
    compute_flows,
    entries_of,
)
from penstock.errors import PenstockError
from penstock.network import Network
from penstock.planning import Exact
from penstock.planning.flows import Flows
from tests.networks import overloading_rates, random_tree
from tests.unit.coordination.engine import UNIT, Engine, figure1


def connected(network: Network, epsilon: float) -> dict[str, DFit]:
    used = {operator.node for operator in network.operators.values()}
    peers = {node: DFit(network, node, epsilon) for node in network.nodes if node in used}
    TreeMailbox(peers).deliver(set(peers))
    return peers


def shed_by(peers: Mapping[str, DFit], network: Network, rates: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """What comes out if every node sheds by its own table what its parent lets through: score and loads."""
    keep: dict[str, float] = {}
    order = [node for node in peers if peers[node].parent is None]
    for node in order:
        order += peers[node].children
    for node in reversed(order):  # children tell what comes in below
        flows = compute_flows(network, rates, {})
        own = {e: rates[e.partition("->")[0]] for e in entries_of(network, node) if e.partition("->")[0] in network.inputs}
        arriving = {**{entry: flows[entry] for entry in entries_of(network, node)}, **own}
        peers[node].learn(replace(Measurements.from_declaration(network, node), rates=arriving))
        TreeMailbox(peers).deliver({node})
    for node in order:
        flows = compute_flows(network, rates, keep)
        entries = entries_of(network, node)
        arriving = {e: rates[e.partition("->")[0]] if e.partition("->")[0] in network.inputs else flows[e] for e in entries}
        limits = peers[node].decide(arriving)
        for entry in entries:
            if entry in limits.flows:
                keep[entry] = min(1.0, limits.flows[entry] / arriving[entry]) if arriving[entry] > 0 else 1.0
        keep |= limits.keep
    flows = compute_flows(network, rates, keep)
    loads = dict.fromkeys(network.nodes, 0.0)
    for name, operator in network.operators.items():
        loads[operator.node] += operator.cost * sum(flows[f"{source}->{name}"] for source in operator.sources)
    return sum(output.weight * flows[f"{output.source}->{name}"] for name, output in network.outputs.items()), loads


@pytest.mark.parametrize("seed", range(25))
def test_peers_come_within_epsilon_of_the_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    peers = connected(network, 0.1)
    for _ in range(4):
        rates = overloading_rates(rng, network)
        score, loads = shed_by(peers, network, rates)
        best = Exact(network).plan(rates)
        assert score >= (1 - 0.1) * best.score * (1 - 1e-6)
        slack = 1.1  # a node that is fed by others sheds only what is more than a tenth too much
        assert all(load <= slack * network.nodes[node].capacity * (1 + 1e-6) for node, load in loads.items())


@pytest.mark.parametrize("seed", range(25))
def test_peers_know_exactly_when_nothing_is_overloaded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_tree(rng)
    peers = connected(network, 0.2)
    flows = Flows(network)
    used = {operator.node for operator in network.operators.values()}
    for _ in range(4):
        rates = overloading_rates(rng, network, near=True)
        for scale in (0.9999, 0.97, 1.0001):
            vector = np.array([rates[name] * scale for name in network.inputs])
            used_share = float(np.max(flows.full_loads @ vector / flows.capacity))
            vector *= scale / used_share
            now = dict(zip(network.inputs, vector.tolist(), strict=True))
            for root in (node for node in used if peers[node].parent is None):
                below = [root]
                for node in below:
                    below += peers[node].children
                full = flows.full_loads @ vector
                over = any(full[flows.nodes.index(node)] > network.nodes[node].capacity for node in below)
                columns = peers[root].table.columns  # type: ignore[union-attr]
                point = np.array([now[name.partition("->")[0]] for name in columns])
                assert bool(np.any(peers[root].bounds @ point > 1 + 1e-9)) == over


def test_a_change_travels_only_up(tmp_path: Path) -> None:
    network = binary_tree(4)
    peers = connected(network, 0.2)
    before = {node: peer.tables_built for node, peer in peers.items()}
    leaf = "n14"
    measurements = Measurements.from_declaration(network, leaf)
    dear = {name: replace(value, cost=3 * value.cost) for name, value in measurements.operators.items()}
    peers[leaf].learn(replace(measurements, operators=dear))
    mailbox = TreeMailbox(peers)
    mailbox.deliver({leaf})
    assert mailbox.senders <= {"n14", "n6", "n2", "n0"}
    assert {node for node, peer in peers.items() if peer.tables_built > before[node]} <= {"n14", "n6", "n2", "n0"}
    assert mailbox.messages["change"] >= 1
    peers[leaf].learn(replace(measurements, operators=dear))
    nothing = TreeMailbox(peers)
    nothing.deliver({leaf})
    assert not nothing.messages


def test_a_parent_that_missed_a_change_asks_for_the_whole() -> None:
    network = figure1(1.0)
    peers = connected(network, 0.1)
    child, parent = peers["B"], peers["A"]
    measurements = Measurements.from_declaration(network, "B")
    for times in (1.5, 2.0):
        child.learn(
            replace(measurements, operators={n: replace(v, cost=times * v.cost) for n, v in measurements.operators.items()})
        )
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


def test_a_strangers_table_is_refused() -> None:
    network = figure1(1.0)
    peers = connected(network, 0.1)
    for sender, kind, body in (
        ("B", "table", {}),
        ("B", "table", {"version": 1, "table": {"schema": 9}, "bounds": []}),
        ("C", "table", {}),
        ("B", "song", {}),
    ):
        with pytest.raises(PenstockError):
            peers["A"].receive(Message(sender, "A", 1, 1, kind, body, 0.0))
