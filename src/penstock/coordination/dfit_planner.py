"""D-FIT as a planner: all nodes and coordinators of clusters in one process, with messages as they would be sent."""

from __future__ import annotations

import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from penstock.coordination.cluster_coordinator import ClusterCoordinator
from penstock.coordination.dfit import DFit
from penstock.coordination.dfit_survey import Survey
from penstock.coordination.follower import Follower
from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import (
    Measurements,
    OperatorMeasurements,
    apply_measurements,
    compute_flows,
    entries_of,
)
from penstock.network.clusters import cluster_of
from penstock.network.facts import Facts
from penstock.network.model import ARROW, Network
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import Planner

__all__ = ["DFitPlanner"]


class DFitPlanner(Planner):
    """Plans as the nodes of D-FIT would among themselves, each for itself and all nodes below it.

    Every node and every coordinator of a cluster runs as on Spark, and every message passes through JSON. Where all nodes let in
    what they decide, the plan has their keeps: also on arcs between nodes, where a node may drop what arrives.

    Where it fails: as D-FIT does. Nodes that do not form a tree must be in clusters that do.

    Parameters
    ----------
    network
        The network to plan for, perhaps with clusters.
    epsilon
        The relative error of the score that tables may cause.

    Examples
    --------
    B and C both feed D, so the three are one cluster:

    >>> from penstock.network import NetworkBuilder
    >>> diamond = (
    ...     NetworkBuilder().node("A").node("B").node("C").node("D").cluster("south", "B", "C", "D").input("i")
    ...     .operator("a", "A", "i", cost=0.1).operator("b", "B", "a", cost=1.0).operator("c", "C", "a", cost=2.0)
    ...     .union("d", "D", "b", "c", cost=0.25).output("q", "d").build()
    ... )
    >>> plan = DFitPlanner(diamond).plan({"i": 8.0})
    >>> round(plan.score, 6), {node: round(load, 6) for node, load in plan.loads.items()}
    (1.5, {'A': 0.1, 'B': 1.0, 'C': 1.0, 'D': 0.375})

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "d-fit"

    def __init__(self, network: Network, epsilon: float = 0.05) -> None:
        survey = Survey(network)
        super().__init__(network, Flows(network, entries=True))
        self._order = survey.bounds.order  # clusters, and nodes outside of them, each after its parent
        self._declared_parts = self._parts = {name: survey.part(name) for name in self._order}
        self._nodes = {name: tuple(node for node, names in part.by_node.items() if names) for name, part in self._parts.items()}
        post = self._post = _Post()
        clusters = cluster_of(network)
        self._managers: dict[str, Manager] = {}
        for name in self._order:
            if name in network.clusters:
                post.add(name, ClusterCoordinator(network, name, post.mailbox(name), epsilon, clock=_stand_still))
                self._managers |= {node: Follower(network, node, clusters[node]) for node in self._nodes[name]}
            else:
                self._managers[name] = DFit(network, name, epsilon, survey=survey)
        for node, manager in self._managers.items():
            post.add(node, _Party(manager, post.mailbox(node)))
        self._entries = {node: entries_of(network, node) for node in self._managers}
        self._measurements = {node: Measurements.from_declaration(network, node) for node in self._managers}
        for node in reversed(list(self._managers)):  # leaves first: so each builds its table once
            self._tell(node, {})
            post.deliver({node, clusters[node]})

    @property
    def messages(self) -> Counter[str]:
        """The number of messages so far, by kind."""
        return self._post.messages

    def update(self, facts: Facts) -> None:
        """Let every node measure other costs, selectivities and capacities. A capacity is at most the declared one."""
        self.flows.update(facts)
        costs, selectivities = (
            dict(zip(self.network.operators, numbers.tolist(), strict=True)) for numbers in (facts.costs, facts.selectivities)
        )
        capacities = dict(zip(self.network.nodes, facts.capacities.tolist(), strict=True))
        for node in self._managers:
            operators = {
                name: OperatorMeasurements(costs[name], 0.0, selectivities[name], 0.0) for name in self.network.by_node[node]
            }
            self._measurements[node] = Measurements(node, capacities[node], operators)
            self._tell(node, {})
        self._parts = {
            name: apply_measurements(part, {node: self._measurements[node] for node in self._nodes[name]})
            for name, part in self._declared_parts.items()
        }
        self._post.deliver(self._post.parties)

    def _tell(self, node: str, rates: Mapping[str, float]) -> None:
        """Let a node know what it has measured, with rates by input or arc."""
        by_entry = {entry: rates.get(entry, rates.get(entry.partition(ARROW)[0], 0.0)) for entry in self._entries[node]}
        self._managers[node].learn(replace(self._measurements[node], rates=by_entry))

    def _keep(self, rates: Vector) -> Vector:
        inputs = dict(zip(self.network.inputs, rates.tolist(), strict=True))
        for node in self._managers:
            self._tell(node, inputs)
        self._post.deliver(self._post.parties)
        keep: dict[str, float] = {}
        on_arcs: dict[str, float] = {}
        for name in self._order:
            part = self._parts[name]
            arriving = {entry: inputs.get(entry.partition(ARROW)[0], on_arcs.get(entry, 0.0)) for entry in part.inputs}
            shares = self._decide(name, arriving)
            for gate, share in shares.items():  # an arc that leaves a split may have a gate at both ends
                keep[gate] = keep.get(gate, 1.0) * share
            flows = compute_flows(part, arriving, shares)
            on_arcs |= {arc: flows[arc] for arc in part.outputs if arc not in self.network.outputs}
        return np.array([keep.get(name, 1.0) for name in self.flows.location_index])

    def _decide(self, name: str, arriving: Mapping[str, float]) -> dict[str, float]:
        """Return the keeps of a node, or of the nodes of a cluster, for what arrives there."""
        if name in self.network.clusters:
            for node in self._nodes[name]:
                self._tell(node, arriving)
            self._post.deliver({name, *self._nodes[name]})
        shares: dict[str, float] = {}
        for node in self._nodes[name]:
            rates = {entry: arriving.get(entry, arriving.get(entry.partition(ARROW)[0], 0.0)) for entry in self._entries[node]}
            shares |= _find_shares(self._managers[node].decide(rates), rates)
        return shares


class _Party:
    """A node: its manager with its mailbox."""

    def __init__(self, manager: Manager, mailbox: Mailbox) -> None:
        self._manager, self._mailbox = manager, mailbox

    def step(self) -> None:
        for message in self._mailbox.receive():
            self._manager.receive(message)
        for to, kind, body in self._manager.take_messages():
            self._mailbox.send(to, kind, body)


class _Post:
    """Delivers messages between parties in one process, each through JSON and back."""

    def __init__(self) -> None:
        self.parties: dict[str, Any] = {}  # each has ``step``
        self.boxes: defaultdict[str, list[Message]] = defaultdict(list)
        self.messages: Counter[str] = Counter()
        self._ranks: dict[str, int] = {}
        self._waiting: list[tuple[int, str]] = []
        self._awake: set[str] = set()

    def add(self, name: str, party: Any) -> None:
        self.parties[name] = party
        self._ranks[name] = -len(self._ranks)

    def mailbox(self, name: str) -> _PostMailbox:
        return _PostMailbox(self, name)

    def send(self, message: Message) -> None:
        self.messages[message.kind] += 1
        self.boxes[message.to].append(message)
        self._wake(message.to)

    def _wake(self, name: str) -> None:
        if name in self._ranks and name not in self._awake:  # while parties are added, messages wait
            self._awake.add(name)
            heapq.heappush(self._waiting, (self._ranks[name], name))

    def deliver(self, start: Collection[str]) -> None:
        """Let these parties act, then those that they reach, until nobody has anything to send; always the lowest first."""
        for name in start:
            self._wake(name)
        while self._waiting:
            _, name = heapq.heappop(self._waiting)
            self._awake.discard(name)
            self.parties[name].step()


class _PostMailbox:
    """The mailbox of one party."""

    def __init__(self, post: _Post, me: str) -> None:
        self._post, self._me, self._number = post, me, 0
        self.ignored: Counter[str] = Counter()

    def send(self, to: str, kind: str, body: Mapping[str, Any], *, replaces: bool = True) -> bool:  # noqa: ARG002 - all arrive
        self._number += 1
        copy = json.loads(json.dumps(body, allow_nan=False))
        self._post.send(Message(self._me, to, 1, self._number, kind, copy, 0.0))
        return True

    def receive(self) -> list[Message]:
        return self._post.boxes.pop(self._me, [])


def _find_shares(limits: Limits, rates: Mapping[str, float]) -> dict[str, float]:
    """Return the keep of each gate at some rates."""
    entering = {name: flow / rates[name] for name, flow in limits.flows.items() if rates.get(name, 0.0) > flow}
    return {**limits.keep, **entering}


def _stand_still() -> float:
    """Return the same time always: nothing is repeated, and nobody is silent."""
    return 0.0
