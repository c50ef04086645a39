"""What follows from a network: loads, qualities, drop locations, the tree of nodes, disjoint fragments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from penstock.errors import PenstockError
from penstock.network.model import Input, Network, Operator, Output, arc_name

__all__ = ["Coefficients", "Location", "cheapest_ways", "part_of"]

_OfOperator = Callable[[Operator], float]
_OfOutput = Callable[[Output], float]


@dataclass(frozen=True, slots=True)
class Location:
    """An arc where dropping may pay: before an input's first operator, or behind a split.

    ``target`` is ``None`` for the place where an input enters, before any split.
    """

    name: str
    source: str
    target: str | None
    node: str | None
    """Where the gate runs: the first node behind an input, the node of the split."""


class Coefficients:
    """The derived quantities of a network, each computed when it is first asked for.

    Figure 7 of paper 000, an operator of cost 1 that feeds branches of cost 2 and 5:

    >>> from penstock.network import NetworkBuilder
    >>> split = (
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=1.0)
    ...     .operator("top", "A", "s", cost=2.0).operator("bottom", "A", "s", cost=5.0)
    ...     .output("q1", "top").output("q2", "bottom").build()
    ... )
    >>> found = Coefficients(split)
    >>> found.load["i"], found.quality["i"]
    (8.0, 2.0)
    >>> [location.name for location in found.locations]
    ['i', 's->top', 's->bottom']
    """

    def __init__(self, network: Network) -> None:
        self.network = network

    @cached_property
    def load(self) -> dict[str, float]:
        """CPU seconds that a tuple costs from an input or from the entry of an operator on, over all branches and nodes.

        Paper 002, equation 2: ``L(o) = c(o) + s(o) * sum of L over what o feeds``.
        """
        return self._upstream(lambda operator: operator.cost, lambda _: 0.0)

    @cached_property
    def quality(self) -> dict[str, float]:
        """Weighted output tuples that a tuple becomes, from an input or from the entry of an operator on."""
        return self._upstream(lambda _: 0.0, lambda output: output.weight)

    def _upstream(self, own: _OfOperator, end: _OfOutput) -> dict[str, float]:
        """Add up along all paths, from the outputs to the inputs. For a binary operator it is the value for its first source."""
        network = self.network
        after: dict[str, float] = {}
        found: dict[str, float] = {}
        for name in reversed(network.order):
            operator = network.operators[name]
            after[name] = sum(self._entering(consumer, name, own, end, after) for consumer in network.consumers[name])
            found[name] = own(operator) + operator.gain(operator.sources[0]) * after[name]
        for name in network.inputs:
            found[name] = sum(self._entering(consumer, name, own, end, after) for consumer in network.consumers[name])
        wrong = [name for name, value in found.items() if not math.isfinite(value)]
        if wrong:
            raise PenstockError(f"from {wrong[0]!r} on, costs and selectivities multiply to more than a number can hold")
        return found

    def _entering(self, target: str, source: str, own: _OfOperator, end: _OfOutput, after: dict[str, float]) -> float:
        operator = self.network.operators.get(target)
        if operator is None:
            return end(self.network.outputs[target])
        return own(operator) + operator.gain(source) * after[target]

    @cached_property
    def node_loads(self) -> dict[str, dict[str, float]]:
        """By input: the CPU seconds that one of its tuples costs on each node."""
        network = self.network
        found: dict[str, dict[str, float]] = {name: {} for name in network.inputs}
        passing: dict[str, dict[str, float]] = {name: {name: 1.0} for name in network.inputs}
        for name in network.order:
            operator = network.operators[name]
            out: dict[str, float] = {}
            for source in operator.sources:
                gain = operator.gain(source)
                for origin, flow in passing[source].items():
                    loads = found[origin]
                    loads[operator.node] = loads.get(operator.node, 0.0) + flow * operator.cost
                    out[origin] = out.get(origin, 0.0) + flow * gain
            passing[name] = out
        return found

    def selectivity(self, source: str, target: str, output: str) -> float:
        """Tuples at an output that one tuple on the arc from source to target becomes."""
        network = self.network
        if target not in network.consumers.get(source, ()):
            raise PenstockError(f"there is no arc {arc_name(source, target)!r}")
        if output not in network.outputs:
            raise PenstockError(f"there is no output {output!r}; there are {', '.join(network.outputs)}")
        if target in network.outputs:
            return 1.0 if target == output else 0.0
        passing = {target: network.operators[target].gain(source)}
        for name in network.order[network.order.index(target) :]:
            if name not in passing:
                continue
            for consumer in network.consumers[name]:
                if consumer in network.operators:
                    more = passing[name] * network.operators[consumer].gain(name)
                    passing[consumer] = passing.get(consumer, 0.0) + more
        return passing.get(network.outputs[output].source, 0.0)

    @cached_property
    def locations(self) -> tuple[Location, ...]:
        """The drop locations of paper 000: where inputs enter, and the arcs behind splits."""
        network = self.network
        found = []
        for name in network.inputs:
            consumers = network.consumers[name]
            first = next((network.node_of(consumer) for consumer in consumers if consumer in network.operators), None)
            found.append(Location(name, name, None, first))
        for name in (*network.inputs, *network.order):
            consumers = network.consumers[name]
            if len(consumers) > 1:
                found += [
                    Location(arc_name(name, consumer), name, consumer, network.node_of(name) or network.node_of(consumer))
                    for consumer in consumers
                ]
        return tuple(found)

    @cached_property
    def crossings(self) -> tuple[tuple[str, str], ...]:
        """The arcs from one node to another."""
        network = self.network
        return tuple(
            (source, name)
            for name in network.order
            for source in network.operators[name].sources
            if source in network.operators and network.operators[source].node != network.operators[name].node
        )

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """By node: the nodes that feed it."""
        operators = self.network.operators
        found: dict[str, dict[str, None]] = {name: {} for name in self.network.nodes}
        for source, target in self.crossings:
            found[operators[target].node][operators[source].node] = None
        return {name: tuple(parents) for name, parents in found.items()}

    @cached_property
    def node_order(self) -> tuple[str, ...] | None:
        """The nodes, each after those that feed it, or ``None`` if they feed each other in a circle."""
        left = {name: set(parents) for name, parents in self.parents.items()}
        order: list[str] = []
        while left:
            ready = [name for name, parents in left.items() if not parents]
            if not ready:
                return None
            order += ready
            for name in ready:
                del left[name]
            for parents in left.values():
                parents.difference_update(ready)
        return tuple(order)

    @cached_property
    def not_a_tree(self) -> str | None:
        """Why the nodes are no trees, in one line, or ``None``: in a tree no node has two parents, and there is no circle."""
        for name, parents in self.parents.items():
            if len(parents) > 1:
                return f"node {name!r} has {len(parents)} parents: {', '.join(parents)}"
        if self.node_order is None:
            return "the nodes feed each other in a circle"
        return None

    @cached_property
    def fragments(self) -> tuple[tuple[str, ...], ...]:
        """Groups of nodes that share no stream and no CPU: each can be planned for itself."""
        network = self.network
        group: dict[str, str] = {}

        def root(name: str) -> str:
            while group.setdefault(name, name) != name:
                group[name] = name = group[group[name]]
            return name

        for operator in network.operators.values():
            for source in operator.sources:
                group[root(f"at {source}")] = root(f"on {operator.node}")
            group[root(f"at {operator.name}")] = root(f"on {operator.node}")
        found: dict[str, list[str]] = {}
        for name in network.nodes:
            found.setdefault(root(f"on {name}"), []).append(name)
        return tuple(tuple(names) for names in found.values())


def cheapest_ways(network: Network) -> dict[str, float]:
    """By input and operator: the least CPU seconds that a tuple which leaves it costs on its way to some output."""
    found: dict[str, float] = {}
    for name in (*reversed(network.order), *network.inputs):
        found[name] = min((_way(network, found, name, consumer) for consumer in network.consumers[name]), default=math.inf)
    return found


def _way(network: Network, found: dict[str, float], source: str, target: str) -> float:
    if target in network.outputs:
        return 0.0
    operator = network.operators[target]
    gain = operator.gain(source)
    return operator.cost + (gain * found[target] if gain > 0 else math.inf)


def part_of(network: Network, node: str) -> Network:
    """Return what one node runs, as a network of its own.

    What enters from other nodes is an input, and what leaves is an output, each named by its arc. So is an input that feeds
    other nodes too: each of them sheds its own copy.
    """
    operators: dict[str, Operator] = {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}
    for name in network.order:
        operator = network.operators[name]
        if operator.node != node:
            continue
        sources = []
        for source in operator.sources:
            arc = arc_name(source, name)
            if source in network.inputs and all(network.node_of(other) == node for other in network.consumers[source]):
                inputs[source] = network.inputs[source]
                sources.append(source)
            elif network.node_of(source) == node:
                sources.append(source)
            else:
                inputs[arc] = Input(arc, network.inputs[source].max_rate) if source in network.inputs else Input(arc)
                sources.append(arc)
        operators[name] = Operator(
            name,
            node,
            tuple(sources),
            operator.cost,
            operator.selectivity,
            operator.kind,
            operator.windows,
            operator.timed,
            operator.line,
        )
        for consumer in network.consumers[name]:
            if consumer in network.outputs:
                outputs[consumer] = network.outputs[consumer]
            elif network.operators[consumer].node != node:
                outputs[arc_name(name, consumer)] = Output(arc_name(name, consumer), name)
    return Network({node: network.nodes[node]}, inputs, operators, outputs)
