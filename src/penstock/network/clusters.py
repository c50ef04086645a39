"""Clusters: nodes that plan as one, so that a graph of nodes becomes a tree of clusters."""

from __future__ import annotations

from dataclasses import replace

from penstock.network.coefficients import part_of
from penstock.network.model import Network, Node

__all__ = ["cluster_of", "merge_clusters", "part_of_cluster"]


def cluster_of(network: Network) -> dict[str, str]:
    """Return, by node, the cluster that it belongs to, or the node itself if it belongs to none."""
    groups = {node: node for node in network.nodes}
    for name, members in network.clusters.items():
        groups |= dict.fromkeys(members, name)
    return groups


def merge_clusters(network: Network) -> Network:
    """Return the network with one node per cluster, which has the capacity of all its nodes together.

    Staying FIT (Tatbul et al.), section 10: a graph of nodes is cut into a tree of clusters.

    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").node("B").cluster("west", "A", "B").input("i")
    ...     .operator("a", "A", "i", cost=1.0).operator("b", "B", "a", cost=1.0).output("q", "b").build()
    ... )
    >>> {name: node.capacity for name, node in merge_clusters(network).nodes.items()}
    {'west': 2.0}
    """
    if not network.clusters:
        return network
    groups = cluster_of(network)
    capacities = dict.fromkeys(groups.values(), 0.0)
    for name, node in network.nodes.items():
        capacities[groups[name]] += node.capacity
    nodes = {name: Node(name, capacity) for name, capacity in capacities.items()}
    operators = {name: replace(operator, node=groups[operator.node]) for name, operator in network.operators.items()}
    return Network(nodes, network.inputs, operators, network.outputs, network.bandwidths, network.work)


def part_of_cluster(network: Network, cluster: str, merged: Network | None = None) -> Network:
    """Return what the nodes of a cluster run, as a network. Its streams to and from other nodes are named after their arcs.

    Parameters
    ----------
    network
        The network.
    cluster
        The name of a cluster, or of a node that belongs to none.
    merged
        The result of ``merge_clusters``, if it is known already.

    """
    part = part_of(merged if merged is not None else merge_clusters(network), cluster)
    members = network.clusters.get(cluster, (cluster,))
    operators = {name: replace(operator, node=network.operators[name].node) for name, operator in part.operators.items()}
    return Network({name: network.nodes[name] for name in members}, part.inputs, operators, part.outputs)
