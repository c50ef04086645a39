"""Bounds on rates and scores that FIT derives from the whole network before the nodes compute their tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, cheapest_path_costs, part_of
from penstock.network.model import Input, Network, Operator, Output

__all__ = ["FitBounds", "NodePartition", "RateBounds", "bound_flows", "partition_node", "partition_part"]

_UNBOUNDED = 100.0


@dataclass(frozen=True, slots=True)
class NodePartition:
    """The operators of one node, divided in two: the trunk leads to child nodes, the local network ends in outputs of this node.

    The inputs of the local network are the inputs of the node that lead to no child, and the points where it branches off the
    trunk.
    """

    node: str
    part: Network
    """All that the node runs."""
    trunk: frozenset[str]
    """The operators and inputs that lead to children."""
    local: Network
    """The operators that lead only to outputs of this node."""

    def is_trunk_arc(self, target: str) -> bool:
        """Return whether the arc to this target leads to a child."""
        return target in self.trunk or (target in self.part.outputs and target not in self.local.outputs)


def partition_node(network: Network, node: str, names: Sequence[str] | None = None) -> NodePartition:
    """Divide the operators of a node, whose names may be known already, into trunk and local network."""
    part = part_of(network, node, names)
    return partition_part(part, node, {name for name in part.outputs if name not in network.outputs})


def partition_part(part: Network, node: str, leaving: Collection[str]) -> NodePartition:
    """Divide what a node runs into trunk and local network, given the outputs that lead to children."""
    trunk: set[str] = set()
    for name in (*reversed(part.order), *part.inputs):
        if any(consumer in trunk or consumer in leaving for consumer in part.consumers[name]):
            trunk.add(name)
    operators: dict[str, Operator] = {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}

    def add_input(name: str) -> None:
        if name in part.inputs:
            inputs[name] = part.inputs[name]
        elif name in trunk:
            inputs[name] = Input(name)

    for name in part.order:
        if name not in trunk:
            operators[name] = part.operators[name]
            for source in part.operators[name].sources:
                add_input(source)
    for name, output in part.outputs.items():
        if name not in leaving:
            outputs[name] = output
            add_input(output.source)
    return NodePartition(node, part, frozenset(trunk), Network(part.nodes, inputs, operators, outputs))


class FitBounds:
    """What FIT must know beside the tables of a node's children to compute the node's table.

    C-FIT derives it from the whole network (``RateBounds``). A node of D-FIT knows its own facts and what its neighbours tell.
    """

    network: Network
    order: tuple[str, ...]
    """The nodes that run operators, each after its parent."""
    partitions: Mapping[str, NodePartition]
    parents: Mapping[str, tuple[str, ...]]
    children: Mapping[str, tuple[str, ...]]
    quality: Mapping[str, float]
    full_limits: Mapping[str, float]
    """By input: the greatest rate that is feasible if all other rates are 0 and nothing is dropped."""
    dimensions: int
    """The number of inputs of all local networks: so often, a rate near 0 is rounded down to 0."""
    roundings: int
    """How often a rate is rounded at most on the way to a leaf."""
    flow_limits: Mapping[str, float]
    """By input and operator: an upper bound of the rate that leaves it."""

    def useful_rate(self, partition: NodePartition, name: str) -> float:
        """Return the greatest useful rate at an input of a node's local network.

        Beyond ``capacity / cost`` of the cheapest path to an output, more tuples add nothing. If a path costs nothing and the
        input has no ``max_rate``, the table ends at a hundred times the greatest rate that is feasible with nothing dropped.
        """
        cost = cheapest_path_costs(partition.local)[name]
        capacity = partition.part.nodes[partition.node].capacity
        node_limit = capacity / cost if cost > 0 else np.inf
        # A name without a limit is an arc from another node, or this node's copy of an input that feeds several nodes.
        source = name if name in self.flow_limits else name.partition("->")[0]
        limit = min(node_limit, self.flow_limits[source])
        if not np.isfinite(limit):  # a branch costs nothing, so that any number of tuples is of use
            finite = [limit for limit in self.full_limits.values() if np.isfinite(limit)]
            if not finite:
                raise PenstockError(f"the rate of {name!r} is unbounded: give a max_rate to the inputs that feed it")
            limit = _UNBOUNDED * max(finite)
        return float(limit)

    def is_shed(self, name: str) -> bool:
        """Return whether what leaves an input or operator may ever be shed: something upstream of it or downstream costs."""
        return self.flow_limits[name if name in self.flow_limits else name.partition("->")[0]] > 0

    def subtree(self, node: str) -> list[str]:
        """Return a node and all nodes that it feeds, directly or indirectly."""
        nodes = [node]
        for member in nodes:
            nodes += self.children[member]
        return nodes


class RateBounds(FitBounds):
    """Bounds on rates and scores, valid for all nodes, from one pass over the network.

    ``least_score`` is a lower bound of the best score at rates that overload the network. Scale such rates down by one factor
    until no node is overloaded. Some node is then exactly full, so the score is at least the smallest ratio of quality to load of
    an input there. FIT measures what it cuts off a table against this score.
    """

    def __init__(self, network: Network) -> None:
        derived = Coefficients(network)
        if derived.not_a_tree is not None:
            raise PenstockError(f"FIT needs a tree of nodes, but {derived.not_a_tree}: use exact or solver")
        if network.bandwidths or network.has_floors:
            raise PenstockError("FIT supports neither bandwidths nor floors: use exact")
        if network.bilinear:
            raise PenstockError(
                f"join {network.bilinear[0]!r} has windows in seconds, so both of its sides must have one keep, which FIT can't "
                "plan: use exact, or give its windows in tuples"
            )
        self.network = network
        used = {operator.node for operator in network.operators.values()}
        self.order = tuple(node for node in derived.node_order or () if node in used)
        names: dict[str, list[str]] = {node: [] for node in self.order}
        for name in network.order:
            names[network.operators[name].node].append(name)
        self.partitions = {node: partition_node(network, node, names[node]) for node in self.order}
        self.parents = derived.parents
        children: dict[str, list[str]] = {node: [] for node in self.order}
        for node in self.order:
            for parent in derived.parents[node]:
                children[parent].append(node)
        self.children = {node: tuple(members) for node, members in children.items()}
        self.quality = derived.quality
        self.full_limits = {
            name: min((network.nodes[node].capacity / load for node, load in loads.items() if load > 0), default=np.inf)
            for name, loads in derived.node_loads.items()
        }
        ratios = [
            self.quality[name] * limit
            for name, limit in self.full_limits.items()
            if self.quality[name] > 0 and np.isfinite(limit)
        ]
        self.least_score = min(ratios, default=0.0)
        self.dimensions = max(1, sum(len(partition.local.inputs) for partition in self.partitions.values()))
        self.roundings = 1 + self._count_merges()
        self.free = frozenset(name for name, limit in self.full_limits.items() if not np.isfinite(limit))
        """The inputs that cost nothing on any node. They are never shed, so no table has a rate for them."""
        self.flow_limits = bound_flows(network, self.free)

    def _count_merges(self) -> int:
        """Return how often streams merge at most on the way to a leaf. Each merge rounds a rate once more."""
        network = self.network
        trunk = {name for partition in self.partitions.values() for name in partition.trunk}
        merges: dict[str, int] = {}
        for name in reversed(network.order):
            downstream = max((merges.get(consumer, 0) for consumer in network.consumers[name]), default=0)
            merges[name] = downstream + (len(network.operators[name].sources) - 1 if name in trunk else 0)
        return max(merges.values(), default=0)


def bound_flows(network: Network, free: Collection[str] = ()) -> dict[str, float]:
    """Return, by input and operator, an upper bound of the rate that leaves it, from the load that no drop can avoid.

    Nothing counts of ``free`` inputs, which are never shed.
    """
    flow_limits: dict[str, float] = {}
    for name, stream in network.inputs.items():
        loads: dict[str, float] = {}
        flow, current = 1.0, name
        while len(network.consumers[current]) == 1 and network.consumers[current][0] in network.operators:
            operator = network.operators[network.consumers[current][0]]
            loads[operator.node] = loads.get(operator.node, 0.0) + flow * operator.cost
            flow *= operator.gain(current)
            current = operator.name
        limits = [network.nodes[node].capacity / load for node, load in loads.items() if load > 0]
        flow_limits[name] = 0.0 if name in free else min([stream.max_rate, *limits])
    for name in network.order:
        operator = network.operators[name]
        gains = [(operator.gain(source), source) for source in operator.sources]
        flow_limits[name] = sum(gain * flow_limits[source] for gain, source in gains if gain > 0)
    return flow_limits
