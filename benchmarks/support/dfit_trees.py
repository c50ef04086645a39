"""D-FIT on trees of nodes in one process: random trees, measured facts, messages through JSON, and what the nodes let in."""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from penstock.coordination import DFit, Measurements, Message
from penstock.coordination.dfit_survey import Survey
from penstock.coordination.measurements import apply_measurements, compute_flows
from penstock.network import Network, NetworkBuilder
from penstock.network.model import arc_name
from penstock.planning.flows import Flows

__all__ = ["Outcome", "PeerTree", "TreeMailbox", "measure_at_random", "overload", "random_node_tree"]


class TreeMailbox:
    """Delivers messages between peers in one process, each through JSON and back, and counts them."""

    def __init__(self, peers: Mapping[str, DFit]) -> None:
        self._peers = peers
        self._ranks = {name: rank for rank, name in enumerate(peers)}  # parents come first
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.senders: set[str] = set()
        self.receivers: defaultdict[str, set[str]] = defaultdict(set)
        """By kind: who has received a message."""

    def deliver(self, start: Collection[str]) -> None:
        """Let these nodes send, then those that they reach, until nobody has anything to send; always the lowest node first."""
        waiting = [(-self._ranks[name], name) for name in start]
        heapq.heapify(waiting)
        awake = set(start)
        while waiting:
            _, name = heapq.heappop(waiting)
            awake.discard(name)
            for to, kind, body in self._peers[name].take_messages():
                text = json.dumps(body, allow_nan=False)
                self._count(name, "change" if "base" in body else kind, len(text))
                self.receivers[kind].add(to)
                self._peers[to].receive(Message(name, to, 1, sum(self.messages.values()), kind, json.loads(text), 0.0))
                if to not in awake:
                    awake.add(to)
                    heapq.heappush(waiting, (-self._ranks[to], to))

    def _count(self, sender: str, kind: str, size: int) -> None:
        self.messages[kind] += 1
        self.bytes[kind] += size
        self.senders.add(sender)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes out if every node lets in what its D-FIT decides."""

    score: float
    loads: Mapping[str, float]
    """CPU seconds per second, by node."""
    capacities: Mapping[str, float]

    @property
    def greatest_load(self) -> float:
        """The greatest load of a node, as a share of its capacity."""
        return max(load / self.capacities[node] for node, load in self.loads.items())


class PeerTree:
    """The D-FIT peers of all nodes of a network, and the facts that they measured last.

    Parameters
    ----------
    network
        The declared network.
    epsilon
        The relative error that D-FIT may make.

    """

    def __init__(self, network: Network, epsilon: float) -> None:
        self.declared = network
        survey = Survey(network)
        self.order = survey.bounds.order
        """The nodes, each after its parent."""
        self.peers = {node: DFit(network, node, epsilon, survey=survey) for node in self.order}
        self._declared_parts = {node: survey.bounds.partitions[node].part for node in self.order}
        self._parts = dict(self._declared_parts)
        self._measurements = {node: Measurements.from_declaration(part, node) for node, part in self._parts.items()}
        self.started = TreeMailbox(self.peers)
        """The mailbox of the start."""
        for node in reversed(self.order):  # leaves first: so each node builds its table once
            self.started.deliver({node})

    @property
    def measured(self) -> Network:
        """The network with the facts that were measured last."""
        return apply_measurements(self.declared, self._measurements)

    def learn(self, measurements: Collection[Measurements]) -> TreeMailbox:
        """Let nodes measure new facts and send until all tables are current; return the mailbox that counted."""
        for facts in measurements:
            node = facts.node
            self._measurements[node] = facts
            self._parts[node] = apply_measurements(self._declared_parts[node], {node: facts})
            self.peers[node].learn(replace(facts, rates=self.peers[node].rates))
        mailbox = TreeMailbox(self.peers)
        mailbox.deliver({facts.node for facts in measurements})
        return mailbox

    def shed(self, rates: Mapping[str, float]) -> Outcome:
        """Let every node decide at these rates, the root first, each from what arrives from its parent."""
        for node, part in self._parts.items():
            own = {name: rates[origin] for name in part.inputs if (origin := name.partition("->")[0]) in self.declared.inputs}
            self.peers[node].learn(replace(self._measurements[node], rates=own))
        TreeMailbox(self.peers).deliver(self.peers)
        on_arcs: dict[str, float] = {}
        loads: dict[str, float] = {}
        score = 0.0
        for node in self.order:
            part = self._parts[node]
            arriving = {name: rates.get(name.partition("->")[0], on_arcs.get(name, 0.0)) for name in part.inputs}
            limits = self.peers[node].decide(arriving)
            shares = {name: flow / arriving[name] for name, flow in limits.flows.items() if arriving[name] > flow}
            flows = compute_flows(part, arriving, {**limits.keep, **shares})
            loads[node] = sum(
                operator.cost * flows[arc_name(source, name)]
                for name, operator in part.operators.items()
                for source in operator.sources
            )
            for name, output in part.outputs.items():
                on_arcs[name] = flows[arc_name(output.source, name)]
                score += output.weight * on_arcs[name] if name in self.declared.outputs else 0.0
        return Outcome(score, loads, {node: part.nodes[node].capacity for node, part in self._parts.items()})


def random_node_tree(rng: np.random.Generator, nodes: int, *, streams: int = 2, unions: float = 0.15) -> Network:
    """Build a random tree of nodes: streams that enter anywhere, splits, unions, outputs on any node.

    A node gets one or two streams from its parent. So a table has at most two columns, and one more for each stream that enters
    there or below. ``unions`` is the share of nodes with two streams that merge them.
    """
    builder = NetworkBuilder()
    ends: dict[str, list[str]] = {}
    is_used: set[str] = set()
    inputs_left = streams
    counter = iter(range(10**6))

    def add(node: str, *sources: str) -> str:
        name = f"o{next(counter)}"
        is_union = len(sources) > 1
        selectivity = 1.0 if is_union else float(rng.uniform(0.3, 1.5))
        builder.operator(
            name, node, *sources, cost=float(rng.uniform(0.05, 1.0)), selectivity=selectivity, kind="union" if is_union else "map"
        )
        is_used.update(sources)
        return name

    for number in range(nodes):
        node = f"n{number}"
        builder.node(node, float(rng.uniform(0.5, 2.0)))
        entering: list[str] = []
        if number:
            parent = f"n{rng.integers(number)}"
            above = ends[parent]
            entering = list(rng.choice(above, size=min(len(above), int(rng.integers(1, 3))), replace=False))
        nodes_left = nodes - number
        while inputs_left and (
            nodes_left == 1 or (len(entering) < 3 and (number == 0 or rng.random() < inputs_left / nodes_left))
        ):
            inputs_left -= 1
            name = f"i{inputs_left}"
            builder.input(name, max_rate=float(rng.choice([8.0, 50.0, math.inf])))
            entering.append(name)
            if number == 0 and nodes_left > 1 and rng.random() < 0.4:
                break
        found = [add(node, source) for source in entering]
        if len(found) > 1 and rng.random() < unions:
            found = [add(node, *found)]
        ends[node] = found
    for found in ends.values():
        for name in found:
            if name not in is_used or rng.random() < 0.2:
                builder.output(f"q{name}", name, float(rng.uniform(0.2, 2.0)))
    return builder.build()


def measure_at_random(rng: np.random.Generator, network: Network, node: str, most: float = 10.0) -> Measurements:
    """Return facts of a node, each up to ``most`` times as high or low as declared. A capacity is at most the declared one."""
    declared = Measurements.from_declaration(network, node)

    def change() -> float:
        return float(most ** rng.uniform(-1.0, 1.0))

    operators = {
        name: replace(facts, cost=facts.cost * change(), selectivity=facts.selectivity * change())
        for name, facts in declared.operators.items()
    }
    return Measurements(node, declared.capacity * float(most ** rng.uniform(-1.0, 0.0)), operators)


def overload(rng: np.random.Generator, network: Network, loaded: Collection[str], *, near: bool = False) -> dict[str, float]:
    """Return rates that overload some node: by up to eightfold, or by 3% at most; streams that are not loaded are silent."""
    flows = Flows(network)
    direction = np.array([10.0 ** rng.uniform(-2.0, 0.0) if name in loaded else 0.0 for name in flows.inputs])
    loads = flows.full_loads @ direction / flows.capacity
    factor = 1.0 + (rng.random() * 0.03 if near else rng.random() * 7.0)
    vector = direction / float(np.max(loads)) * factor
    return dict(zip(flows.inputs, vector.tolist(), strict=True))
