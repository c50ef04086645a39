"""What FIT must know of the whole network before the nodes make their tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, cheapest_path_costs, part_of
from penstock.network.model import Input, Network, Operator, Output

__all__ = ["RateBounds", "Share", "share_of"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one node runs, in two: the trunk leads on to children, the local network ends in outputs right here.

    The inputs of the local network are inputs of the node that lead to no child, and the points of the trunk where it
    branches off.
    """

    node: str
    part: Network
    trunk: frozenset[str]
    """The operators and inputs that lead to children."""
    local: Network

    def is_trunk_arc(self, target: str) -> bool:
        """Whether what goes there goes to a child in the end."""
        return target in self.trunk or (target in self.part.outputs and target not in self.local.outputs)


def share_of(network: Network, node: str) -> Share:
    """Divide what a node runs into trunk and local network."""
    part = part_of(network, node)
    leaving = {name for name in part.outputs if name not in network.outputs}
    trunk: set[str] = set()
    for name in (*reversed(part.order), *part.inputs):
        if any(consumer in trunk or consumer in leaving for consumer in part.consumers[name]):
            trunk.add(name)
    operators: dict[str, Operator] = {}
    inputs: dict[str, Input] = {}
    outputs: dict[str, Output] = {}

    def root(name: str) -> None:
        if name in part.inputs:
            inputs[name] = part.inputs[name]
        elif name in trunk:
            inputs[name] = Input(name)

    for name in part.order:
        if name not in trunk:
            operators[name] = part.operators[name]
            for source in part.operators[name].sources:
                root(source)
    for name, output in part.outputs.items():
        if name not in leaving:
            outputs[name] = output
            root(output.source)
    return Share(node, part, frozenset(trunk), Network(part.nodes, inputs, operators, outputs))


class RateBounds:
    """Bounds that hold everywhere, from one pass over the network.

    ``least_score`` is the least score that any overloaded rates can be brought to: scaled down by one factor until no node is
    overloaded, some node n is just full, and then the score is at least the smallest quality/load ratio of an input there. What
    is cut off from a table is measured against it.
    """

    def __init__(self, network: Network) -> None:
        derived = Coefficients(network)
        if derived.not_a_tree is not None:
            raise PenstockError(f"FIT needs a tree of nodes, and {derived.not_a_tree}: use exact or solver")
        if network.bandwidths or network.has_floors:
            raise PenstockError("FIT knows neither bandwidths nor floors: use exact")
        if network.bilinear:
            raise PenstockError(
                f"join {network.bilinear[0]!r} has windows in seconds, which FIT does not know: use windows in tuples"
            )
        self.network = network
        used = {operator.node for operator in network.operators.values()}
        self.order = tuple(node for node in derived.node_order or () if node in used)
        self.shares = {node: share_of(network, node) for node in self.order}
        self.parents = derived.parents
        self.children = {node: tuple(child for child in self.order if node in derived.parents[child]) for node in self.order}
        self.quality = derived.quality
        self.full_limits = {
            name: min((network.nodes[node].capacity / load for node, load in loads.items() if load > 0), default=np.inf)
            for name, loads in derived.node_loads.items()
        }
        """By input: the greatest rate that is feasible alone, with nothing dropped."""
        ratios = [
            self.quality[name] * limit
            for name, limit in self.full_limits.items()
            if self.quality[name] > 0 and np.isfinite(limit)
        ]
        self.least_score = min(ratios, default=0.0)
        self.dimensions = max(1, sum(len(share.local.inputs) for share in self.shares.values()))
        self.roundings = 1 + self._merges()
        self._flow_limits = self._greatest_flows()

    def _merges(self) -> int:
        """How often streams merge on the way to a leaf: each time a rate is rounded once more."""
        network = self.network
        trunk = {name for share in self.shares.values() for name in share.trunk}
        found: dict[str, int] = {}
        for name in reversed(network.order):
            below = max((found.get(consumer, 0) for consumer in network.consumers[name]), default=0)
            found[name] = below + (len(network.operators[name].sources) - 1 if name in trunk else 0)
        return max(found.values(), default=0)

    def _greatest_flows(self) -> dict[str, float]:
        """By input and operator: a bound of what can leave it, from what can't be avoided upstream."""
        network = self.network
        found: dict[str, float] = {}
        for name, stream in network.inputs.items():
            loads: dict[str, float] = {}
            flow, here = 1.0, name
            while len(network.consumers[here]) == 1 and network.consumers[here][0] in network.operators:
                operator = network.operators[network.consumers[here][0]]
                loads[operator.node] = loads.get(operator.node, 0.0) + flow * operator.cost
                flow *= operator.gain(here)
                here = operator.name
            limits = [network.nodes[node].capacity / load for node, load in loads.items() if load > 0]
            found[name] = min([stream.max_rate, *limits])
        for name in network.order:
            operator = network.operators[name]
            gains = [(operator.gain(source), source) for source in operator.sources]
            found[name] = sum(gain * found[source] for gain, source in gains if gain > 0)
        return found

    def limit(self, share: Share, name: str) -> float:
        """The greatest rate at an input of a node's local network that is of any use.

        Beyond ``capacity / load`` of the cheapest way to an output, more of it brings nothing.
        """
        least = cheapest_path_costs(share.local)[name]
        capacity = self.network.nodes[share.node].capacity
        own = capacity / least if least > 0 else np.inf
        # Else it is an arc from another node, or the copy of an input that feeds several.
        source = name if name in self._flow_limits else name.partition("->")[0]
        found = min(own, self._flow_limits[source])
        if not np.isfinite(found):
            raise PenstockError(f"nothing bounds the rate of {name!r}: give a max_rate to the inputs that feed it")
        return float(found)

    def below(self, node: str) -> list[str]:
        """A node and all that it feeds, directly or not."""
        found = [node]
        for here in found:
            found += self.children[here]
        return found
