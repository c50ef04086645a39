"""Fragments: parts of a network that share no node and no stream, so that each can be planned on its own."""

from __future__ import annotations

from penstock.network.model import ARROW, Network

__all__ = ["number_fragments", "split_into_fragments"]


def number_fragments(network: Network) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of the fragment of each node, and of each input and operator.

    Staying FIT (Tatbul, Çetintemel, Zdonik), section 8.2.4. Nodes that exchange a stream, or read the same input, are in one
    fragment.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").node("B").input("i").input("j")
    ...     .operator("a", "A", "i").operator("b", "B", "j").output("q", "a").output("r", "b").build()
    ... )
    >>> number_fragments(network)
    ({'A': 0, 'B': 1}, {'i': 0, 'j': 1, 'a': 0, 'b': 1})
    """
    streams = {name: number for number, name in enumerate((*network.inputs, *network.operators), start=len(network.nodes))}
    nodes = {name: number for number, name in enumerate(network.nodes)}
    parent = list(range(len(nodes) + len(streams)))

    def root(member: int) -> int:
        while parent[member] != member:
            parent[member] = member = parent[parent[member]]
        return member

    for name, operator in network.operators.items():
        node = root(nodes[operator.node])
        for stream in (name, *operator.sources):
            parent[root(streams[stream])] = node
            node = root(node)
    numbers: dict[int, int] = {}
    by_node = {name: numbers.setdefault(root(member), len(numbers)) for name, member in nodes.items()}
    return by_node, {name: numbers.setdefault(root(member), len(numbers)) for name, member in streams.items()}


def split_into_fragments(network: Network) -> tuple[Network, ...]:
    """Return the fragments that can be overloaded, as networks; the network itself if there is only one fragment.

    A fragment without operators and without a limited link is left out: nothing in it can be overloaded.
    """
    by_node, by_stream = number_fragments(network)
    count = 1 + max((*by_node.values(), *by_stream.values()), default=-1)
    if count == 1:
        return (network,)
    nodes, inputs, operators, outputs, bandwidths = ([{} for _ in range(count)] for _ in range(5))  # type: ignore[var-annotated]
    for name, node in network.nodes.items():
        nodes[by_node[name]][name] = node
    for name, stream in network.inputs.items():
        inputs[by_stream[name]][name] = stream
    for name, operator in network.operators.items():
        operators[by_stream[name]][name] = operator
    for name, output in network.outputs.items():
        outputs[by_stream[output.source]][name] = output
    for name, limit in network.bandwidths.items():
        bandwidths[by_stream[name.partition(ARROW)[0]]][name] = limit
    fragments = [
        number for number in range(count) if inputs[number] and (operators[number] or bandwidths[number])
    ]  # a node without operators is no fragment
    if len(fragments) == 1 and len(inputs[fragments[0]]) == len(network.inputs):
        return (network,)
    return tuple(
        Network(nodes[number], inputs[number], operators[number], outputs[number], bandwidths[number]) for number in fragments
    )
