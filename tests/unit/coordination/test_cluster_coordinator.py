"""The coordinator of a cluster, with nodes and other clusters, through a directory of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.coordination import ClusterCoordinator, DFit, DirectoryMailbox, Follower, Manager, Measurements, manager_named
from penstock.coordination.mailbox import Message
from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact


def diamond() -> Network:
    """A feeds B and C, and both feed D: no tree, unless B, C and D are one."""
    return (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .node("D")
        .cluster("south", "B", "C", "D")
        .input("i")
        .input("j")
        .operator("a", "A", "i", cost=0.1)
        .operator("b", "B", "a", cost=1.0)
        .operator("c", "C", "a", cost=2.0)
        .operator("e", "C", "j", cost=0.5)
        .union("d", "D", "b", "c", cost=0.25)
        .output("q", "d")
        .output("r", "e", 0.1)
        .build()
    )


class Site:
    """All nodes and the coordinator of the cluster, each with its mailbox."""

    def __init__(self, root: Path) -> None:
        self.root, self.network, self.now_s = root, diamond(), 100.0
        self.managers: dict[str, Manager] = {}
        self.mailboxes: dict[str, DirectoryMailbox] = {}
        for node in self.network.nodes:
            self.start_node(node)
        self.coordinator = self.start_coordinator()

    def start_node(self, node: str) -> None:
        self.managers[node] = manager_named("d-fit", self.network, node, epsilon=0.1)
        self.mailboxes[node] = DirectoryMailbox(self.root / "messages", node, self.managers[node].peers, "x")

    def start_coordinator(self) -> ClusterCoordinator:
        peers = ClusterCoordinator.peers_of(self.network, "south")
        assert set(peers) == {"A", "B", "C", "D"}
        mailbox = DirectoryMailbox(self.root / "messages", "south", peers, "x")
        state = self.root / "state.json"
        self.coordinator = ClusterCoordinator(self.network, "south", mailbox, 0.1, state=state, clock=lambda: self.now_s)
        return self.coordinator

    def measure(self, rates: Mapping[str, Mapping[str, float]], slower: Mapping[str, float] | None = None) -> None:
        for node, of_node in rates.items():
            facts = Measurements.from_declaration(self.network, node)
            times = (slower or {}).get(node, 1.0)
            operators = {name: replace(operator, cost=times * operator.cost) for name, operator in facts.operators.items()}
            self.managers[node].learn(replace(facts, rates=of_node, operators=operators))
        self.pump()

    def pump(self) -> None:
        for _ in range(6):
            for node, manager in self.managers.items():
                for message in self.mailboxes[node].receive():
                    manager.receive(message)
                for to, kind, body in manager.take_messages():
                    if not self.mailboxes[node].send(to, kind, body):
                        manager.note_replaced(to, kind)
            self.coordinator.step()


RATES = {"A": {"i": 8.0}, "B": {"a->b": 1.0}, "C": {"a->c": 1.0, "j": 4.0}, "D": {"b->d": 1.0, "c->d": 0.5}}


def test_a_graph_of_nodes_plans_as_one_in_a_tree(tmp_path: Path) -> None:
    site = Site(tmp_path)
    assert isinstance(site.managers["A"], DFit)
    assert all(isinstance(site.managers[node], Follower) for node in "BCD")
    assert site.managers["B"].peers == ("south",)
    assert site.managers["A"].peers == ("south",)
    site.measure(RATES)
    # C has room for 0.5 rows of a, worth 1, or 2 of j, worth 0.1: i comes first. So B gets 1 and C 0.5 of the 1.0 that A lets in.
    limits = site.managers["A"].decide({"i": 8.0})
    assert limits.flows["i"] == pytest.approx(1.0)
    assert limits.keep["a->c"] == pytest.approx(0.5)
    site.measure(RATES | {"C": {"a->c": 0.5, "j": 4.0}})
    assert dict(site.managers["C"].decide(RATES["C"]).flows) == pytest.approx({"a->c": 0.5, "j": 0.0}, abs=1e-5)
    assert site.managers["D"].decide(RATES["D"]).flows == {}, "what comes from a node of the cluster was limited there"
    assert site.coordinator.status()["d-fit"]["plans"] == "exact"
    assert Exact(site.network).plan({"i": 8.0, "j": 4.0}).score == pytest.approx(1.5)


def test_not_overloaded_nothing_is_limited(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.measure({"A": {"i": 0.2}, "B": {"a->b": 0.2}, "C": {"a->c": 0.2, "j": 0.2}, "D": {"b->d": 0.2, "c->d": 0.2}})
    assert site.coordinator.status()["plan"] == 0
    for node, manager in site.managers.items():
        assert manager.decide(dict.fromkeys(RATES[node], 0.2)).flows == {}


def test_whoever_restarts_it_goes_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    slow = {"B": 2.0}
    site.measure(RATES, slow)
    number = site.coordinator.status()["plan"]
    assert number
    assert site.managers["A"].decide({"i": 8.0}).flows["i"] == pytest.approx(0.5)
    site.start_coordinator()
    assert site.coordinator.status()["plan"] == number
    site.now_s += 10.0
    site.pump()
    assert site.coordinator.status()["reporting"] == ["B", "C", "D"]
    assert site.coordinator.status()["d-fit"]["plans"] == "exact", "A has asked again"
    assert site.managers["A"].decide({"i": 8.0}).flows["i"] == pytest.approx(0.5)
    for node in "ABC":
        site.start_node(node)
        site.pump()
        site.measure(RATES, slow)
        assert site.managers["A"].decide({"i": 8.0}).flows["i"] == pytest.approx(0.5)
        assert site.managers["B"].decide(RATES["B"]).reason.startswith("plan")


def test_before_all_have_reported_nodes_shed_for_themselves(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.measure({"C": {"a->c": 1.0, "j": 4.0}})  # nobody has said how much arrives at B
    assert site.coordinator.status()["plan"] is None
    assert site.managers["C"].decide(RATES["C"]).reason == "local plan"


def test_a_planner_that_fails_leaves_the_last_plan_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    site.measure(RATES)
    number = site.coordinator.status()["plan"]

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("lost")

    monkeypatch.setattr(DFit, "decide", fail)
    site.measure(RATES | {"C": {"a->c": 1.0, "j": 9.0}})
    assert site.coordinator.status()["plan"] == number
    assert site.coordinator.trouble == "lost"


def test_messages_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.mailboxes["B"].send("south", "dance", {})
    site.mailboxes["B"].send("south", "measurements", {"node": "C"})
    site.mailboxes["A"].send("south", "scope", {"least_score": -1.0, "most": {}, "units": {}})
    site.coordinator.step()
    assert site.coordinator.rejected == {"B": 2, "A": 1}
    site.measure(RATES)
    assert site.coordinator.status()["plan"]


def test_a_state_that_cannot_be_read_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{torn")
    site = Site(tmp_path)
    assert site.coordinator.status()["plan"] is None


def test_what_is_no_cluster_is_named() -> None:
    network = diamond()
    with pytest.raises(PenstockError, match="there is no cluster 'north'; there are south"):
        ClusterCoordinator.peers_of(network, "north")
    with pytest.raises(PenstockError, match=r"there is no cluster 'north'; there are none: list them .* clusters: "):
        ClusterCoordinator.peers_of(replace(network, clusters={}), "north")
    nodes, clusters = {**network.nodes, "E": replace(network.nodes["A"], name="E")}, {**network.clusters, "rest": ("E",)}
    idle = replace(network, nodes=nodes, clusters=clusters)
    with pytest.raises(PenstockError, match="no operator runs on a node of cluster 'rest'"):
        ClusterCoordinator.peers_of(idle, "rest")


def test_clusters_that_do_not_form_a_tree_are_named() -> None:
    network = replace(diamond(), clusters={"west": ("B", "C")})  # fine: A -> west -> D
    assert isinstance(manager_named("d-fit", network, "D"), DFit)
    for clusters, message in (
        (
            {"west": ("A", "B")},
            r"needs a tree of clusters, and node 'D' has 2 parents: .* \(clusters are west\): put nodes",
        ),
        ({"west": ("A", "D")}, r"D-FIT needs a tree of clusters, and (node 'west' has 2 parents|the nodes feed each other)"),
    ):
        for node in network.nodes:
            with pytest.raises(PenstockError, match=message):
                manager_named("d-fit", replace(network, clusters=clusters), node)
    with pytest.raises(PenstockError, match=r"node 'D' has 2 parents: .* or put such nodes into one cluster"):
        manager_named("d-fit", replace(network, clusters={}), "A")
    assert isinstance(manager_named("exact", network, "A"), Follower)
    assert manager_named("exact", network, "B").peers == ("coordinator",)


def test_a_message_of_a_stranger_is_refused(tmp_path: Path) -> None:
    peer = DFit(diamond(), "south", 0.1)
    with pytest.raises(PenstockError, match="not a child"):
        peer.receive(Message("A", "south", 1, 1, "inequalities", {}, 0.0))
