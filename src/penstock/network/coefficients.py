"""Quantities derived from a network: loads, qualities, drop locations, the tree of nodes, disjoint fragments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from penstock.errors import PenstockError
from penstock.network.fragments import number_fragments
from penstock.network.model import Input, Network, Operator, Output, arc_name

__all__ = ["Coefficients", "Location", "cheapest_path_costs", "linearize", "part_of"]

_OperatorValue = Callable[[Operator], float]
_OutputValue = Callable[[Output], float]


@dataclass(frozen=True, slots=True)
class Location:
    """An arc where dropping may pay off: where an input enters, or directly after a split.

    ``target`` is ``None`` where an input enters, upstream of any split.
    """

    name: str
    source: str
    target: str | None
    node: str | None
    """The node that runs the gate: the first node that an input feeds, or the node of the split."""


class Coefficients:
    """The quantities derived from a network, each computed on first access.

    The load of a tuple follows SEaMLeSS (Pham, Chrysanthis, Labrinidis), equation 2; drop locations follow Staying FIT (Tatbul,
    Çetintemel, Zdonik), section 3. Operators with several sources have one cost for all of them.

    Examples
    --------
    Figure 7 of Staying FIT, an operator of cost 1 that feeds branches of cost 2 and 5:

    >>> from penstock.network import NetworkBuilder
    >>> split = (
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=1.0)
    ...     .operator("top", "A", "s", cost=2.0).operator("bottom", "A", "s", cost=5.0)
    ...     .output("q1", "top").output("q2", "bottom").build()
    ... )
    >>> coefficients = Coefficients(split)
    >>> coefficients.load["i"], coefficients.quality["i"]
    (8.0, 2.0)
    >>> [location.name for location in coefficients.locations]
    ['i', 's->top', 's->bottom']
    """

    def __init__(self, network: Network) -> None:
        self.network = network

    @cached_property
    def load(self) -> dict[str, float]:
        """By input and operator: CPU seconds per tuple that enters it, summed over all branches and nodes downstream.

        SEaMLeSS, equation 2: ``L(o) = c(o) + s(o) * sum of L over what o feeds``.
        """
        return self._accumulate_upstream(lambda operator: operator.cost, lambda _: 0.0)

    @cached_property
    def quality(self) -> dict[str, float]:
        """By input and operator: weighted output tuples per tuple that enters it."""
        return self._accumulate_upstream(lambda _: 0.0, lambda output: output.weight)

    def _accumulate_upstream(self, of_operator: _OperatorValue, of_output: _OutputValue) -> dict[str, float]:
        """Sum along all paths, from outputs to inputs. For an operator with several sources: the value for the first of them."""
        network = self.network
        downstream: dict[str, float] = {}
        totals: dict[str, float] = {}

        def entering(target: str, source: str) -> float:
            operator = network.operators.get(target)
            if operator is None:
                return of_output(network.outputs[target])
            return of_operator(operator) + operator.gain(source) * downstream[target]

        for name in reversed(network.order):
            operator = network.operators[name]
            downstream[name] = sum(entering(consumer, name) for consumer in network.consumers[name])
            totals[name] = of_operator(operator) + operator.gain(operator.sources[0]) * downstream[name]
        for name in network.inputs:
            totals[name] = sum(entering(consumer, name) for consumer in network.consumers[name])
        overflows = [name for name, value in totals.items() if not math.isfinite(value)]
        if overflows:
            raise PenstockError(f"downstream of {overflows[0]!r}, the product of costs and selectivities overflows")
        return totals

    @cached_property
    def node_loads(self) -> dict[str, dict[str, float]]:
        """By input: the CPU seconds that one of its tuples costs on each node."""
        network = self.network
        by_input: dict[str, dict[str, float]] = {name: {} for name in network.inputs}
        flows: dict[str, dict[str, float]] = {name: {name: 1.0} for name in network.inputs}
        for name in network.order:
            operator = network.operators[name]
            out: dict[str, float] = {}
            for source in operator.sources:
                gain = operator.gain(source)
                for origin, flow in flows[source].items():
                    loads = by_input[origin]
                    loads[operator.node] = loads.get(operator.node, 0.0) + flow * operator.cost
                    out[origin] = out.get(origin, 0.0) + flow * gain
            flows[name] = out
        return by_input

    def selectivity(self, source: str, target: str, output: str) -> float:
        """How many tuples reach an output per tuple on the arc from ``source`` to ``target``."""
        network = self.network
        if target not in network.consumers.get(source, ()):
            raise PenstockError(f"there is no arc {arc_name(source, target)!r}")
        if output not in network.outputs:
            raise PenstockError(f"there is no output {output!r}; there are {', '.join(network.outputs)}")
        if target in network.outputs:
            return 1.0 if target == output else 0.0
        flows = {target: network.operators[target].gain(source)}
        for name in network.order[network.order.index(target) :]:
            if name not in flows:
                continue
            for consumer in network.consumers[name]:
                if consumer in network.operators:
                    flow = flows[name] * network.operators[consumer].gain(name)
                    flows[consumer] = flows.get(consumer, 0.0) + flow
        return flows.get(network.outputs[output].source, 0.0)

    @cached_property
    def locations(self) -> tuple[Location, ...]:
        """The drop locations of Staying FIT, section 3: where inputs enter, and the arcs that leave splits."""
        network = self.network
        locations = []
        for name in network.inputs:
            consumers = network.consumers[name]
            first = next((network.node_of(consumer) for consumer in consumers if consumer in network.operators), None)
            locations.append(Location(name, name, None, first))
        for name in (*network.inputs, *network.order):
            consumers = network.consumers[name]
            if len(consumers) > 1:
                locations += [
                    Location(arc_name(name, consumer), name, consumer, network.node_of(name) or network.node_of(consumer))
                    for consumer in consumers
                ]
        return tuple(locations)

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
        by_node: dict[str, dict[str, None]] = {name: {} for name in self.network.nodes}
        for source, target in self.crossings:
            by_node[operators[target].node][operators[source].node] = None
        return {name: tuple(parents) for name, parents in by_node.items()}

    @cached_property
    def node_order(self) -> tuple[str, ...] | None:
        """The nodes, each after those that feed it, or ``None`` if they feed each other in a cycle."""
        waiting = {name: set(parents) for name, parents in self.parents.items()}
        order: list[str] = []
        while waiting:
            ready = [name for name, parents in waiting.items() if not parents]
            if not ready:
                return None
            order += ready
            for name in ready:
                del waiting[name]
            for parents in waiting.values():
                parents.difference_update(ready)
        return tuple(order)

    @cached_property
    def not_a_tree(self) -> str | None:
        """Why the nodes do not form trees, in one line, or ``None`` if they do: one parent at most per node, and no cycle."""
        for name, parents in self.parents.items():
            if len(parents) > 1:
                return f"node {name!r} has {len(parents)} parents: {', '.join(parents)}"
        if self.node_order is None:
            return "the nodes feed each other in a cycle"
        return None

    @cached_property
    def fragments(self) -> tuple[tuple[str, ...], ...]:
        """Groups of nodes that share no stream with other groups, so that each group can be planned separately."""
        by_node, _ = number_fragments(self.network)
        groups: dict[int, list[str]] = {}
        for name, number in by_node.items():
            groups.setdefault(number, []).append(name)
        return tuple(tuple(names) for names in groups.values())


def linearize(network: Network, rates: Mapping[str, float]) -> Network:
    """Return the network with the side rates of its joins with windows in seconds, at these rates of the inputs.

    With w and v the windows, a and b the tuples per second that reach the sides if nothing is dropped, and s the share of pairs
    that match, such a join puts out ``s * a * b * (w + v)`` tuples per second. If whole keys are dropped, with one keep k for
    both sides, each key that is kept has all of its pairs, so k times as many come out: linear in k. Joins whose side rates are
    known already, because they were measured, stay as they are. Rates are not bounded before these joins, because what exceeds
    a bound on one side would have to be dropped on the other side too.

    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("x").input("y")
    ...     .join("j", "A", "x", "y", cost=1.0, selectivity=0.01, windows=(2.0, 3.0), timed=True).output("q", "j").build()
    ... )
    >>> join = linearize(network, {"x": 10.0, "y": 20.0}).operators["j"]
    >>> round(10.0 * join.gain("x") + 20.0 * join.gain("y"), 9) == round(0.01 * 10.0 * 20.0 * (2.0 + 3.0), 9)
    True
    """
    timed = [name for name in network.bilinear if network.operators[name].side_rates is None]
    if not timed:
        return network
    operators = dict(network.operators)
    leaving = {name: float(rates[name]) for name in network.inputs}
    for name in network.order:
        operator = operators[name]
        if operator.timed and operator.side_rates is None:
            left, right = (leaving[source] for source in operator.sources)
            operator = operators[name] = replace(operator, side_rates=(left, right))
        leaving[name] = sum(operator.gain(source) * leaving[source] for source in operator.sources)
    before = set(timed)
    for name in reversed(network.order):
        if name in before:
            before.update(network.operators[name].sources)
    inputs = {name: replace(stream, max_rate=math.inf) if name in before else stream for name, stream in network.inputs.items()}
    return Network(network.nodes, inputs, operators, network.outputs, network.bandwidths, network.work)


def cheapest_path_costs(network: Network) -> dict[str, float]:
    """By input and operator: CPU seconds per tuple that leaves it, along the cheapest path to an output."""
    costs: dict[str, float] = {}

    def cost_via(source: str, target: str) -> float:
        if target in network.outputs:
            return 0.0
        operator = network.operators[target]
        gain = operator.gain(source)
        return operator.cost + (gain * costs[target] if gain > 0 else math.inf)

    for name in (*reversed(network.order), *network.inputs):
        costs[name] = min((cost_via(name, consumer) for consumer in network.consumers[name]), default=math.inf)
    return costs


def part_of(network: Network, node: str, names: Sequence[str] | None = None) -> Network:
    """Return the part of a network that runs on one node, as a network.

    A stream from another node becomes an input, a stream to another node becomes an output, each named after its arc. An input
    that also feeds other nodes is named after its arc too: each node sheds its own copy. With ``names``, the operators of the
    node in their order, the other operators are not looked at.
    """
    operators: dict[str, Operator] = {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}
    for name in network.by_node[node] if names is None else names:
        operator = network.operators[name]
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
        operators[name] = replace(operator, sources=tuple(sources))
        for consumer in network.consumers[name]:
            if consumer in network.outputs:
                outputs[consumer] = network.outputs[consumer]
            elif network.operators[consumer].node != node:
                outputs[arc_name(name, consumer)] = Output(arc_name(name, consumer), name)
    return Network({node: network.nodes[node]}, inputs, operators, outputs)
