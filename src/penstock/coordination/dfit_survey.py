"""What every node of D-FIT knows from the start, and how the error that is allowed is divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.coordination.dfit_scope import Scope
from penstock.errors import PenstockError
from penstock.network.clusters import merge_clusters, part_of_cluster
from penstock.network.coefficients import Coefficients
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds
from penstock.planning.plan import check_epsilon

__all__ = ["ErrorShares", "Survey", "Tree", "derive_units"]

_LOSS_SHARE = 0.2
_TABLE_SHARE = 0.05
_CAPACITY_SHARE = 0.05
_FACTS_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Tree:
    """One tree of nodes."""

    root: str
    nodes: tuple[str, ...]
    dimensions: int
    """The inputs of all local networks."""
    depth: int
    """The number of nodes below each other, without the first."""


class Survey:
    """The declared network and the trees that its nodes form. Costs, selectivities and capacities only serve as a start.

    The nodes of a cluster count as one: ``network`` has one node for each cluster.

    Raises
    ------
    PenstockError
        If the nodes do not form trees, or the network has what D-FIT does not support.
    """

    def __init__(self, network: Network) -> None:
        self._clustered = network
        network = merge_clusters(network)
        _check_tree(network, self._clustered)
        if network.bandwidths or network.has_floors:
            raise PenstockError("D-FIT supports neither bandwidths nor floors: run a coordinator instead (--manager exact)")
        self.network = network
        self.bounds = RateBounds(network)
        passed: dict[str, int] = {}
        for name in network.order:
            passed[name] = 1 + max(passed.get(source, 0) for source in network.operators[name].sources)
        self._units = derive_units(network, {})
        self.longest_path = max(passed.values(), default=1)
        """The number of operators that a row passes at most."""
        self.trees: dict[str, Tree] = {}
        """By node: its tree."""
        for root in self.bounds.order:
            if not self.bounds.parents[root]:
                tree = self._describe(root)
                self.trees |= dict.fromkeys(tree.nodes, tree)

    def _describe(self, root: str) -> Tree:
        bounds = self.bounds
        nodes = bounds.subtree(root)
        depths = {root: 0}
        for node in nodes:
            depths |= dict.fromkeys(bounds.children[node], depths[node] + 1)
        parts = [bounds.partitions[node] for node in nodes]
        dimensions = max(1, sum(len(part.local.inputs) for part in parts))
        return Tree(root, tuple(nodes), dimensions, max(depths.values()))

    def part(self, node: str) -> Network:
        """Return what a node or the nodes of a cluster run."""
        if node not in self._clustered.clusters:
            return self.bounds.partitions[node].part
        return part_of_cluster(self._clustered, node, self.network)

    def is_cluster(self, node: str) -> bool:
        """Return whether several nodes plan as this one."""
        return node in self._clustered.clusters

    def declared_scope(self, node: str) -> Scope:
        """Return the scope of a node's table as it follows from the declared network."""
        most, units = {}, {}
        for name, stream in self.bounds.partitions[node].part.inputs.items():
            source = name.partition("->")[0]
            if source in self.network.inputs:
                most[name] = stream.max_rate
            else:
                most[name], units[name] = self.bounds.flow_limits[source], self._units[source]
        return Scope(self.bounds.least_score, most, units).with_margin()


def _check_tree(merged: Network, network: Network) -> None:
    """Raise unless nodes and clusters form trees."""
    not_a_tree = Coefficients(merged).not_a_tree
    if not_a_tree is None:
        return
    if network.clusters:
        names = ", ".join(network.clusters)
        raise PenstockError(
            f"D-FIT needs a tree of clusters, and {not_a_tree} (clusters are {names}): put nodes that share parents, or feed "
            "each other, into one cluster"
        )
    raise PenstockError(
        f"D-FIT needs a tree of nodes, and {not_a_tree}: run a coordinator instead (--manager exact), or put such nodes into "
        "one cluster"
    )


def derive_units(network: Network, of_inputs: Mapping[str, float]) -> dict[str, float]:
    """Return, by input and operator, how many rows leave it per unit of the input before it; of several, the first counts."""
    units = {name: of_inputs.get(name, 1.0) for name in network.inputs}
    for name in network.order:
        source = network.operators[name].sources[0]
        units[name] = units[source] * network.operators[name].gain(source) or 1.0
    return units


@dataclass(frozen=True, slots=True)
class ErrorShares:
    """How D-FIT divides epsilon, so that all its errors together stay within it."""

    step: float
    """Of samples: relative, per rounding."""
    loss: float
    """Near 0: relative to the least score that matters, over all dimensions."""
    table: float
    """Of a table that a parent has: relative, per node on the way to the root."""
    capacity: float
    """The relative change of a capacity for which no table is built again."""
    facts: float
    """The relative change of a cost or a selectivity for which no table is built again."""

    @classmethod
    def of(cls, epsilon: float, survey: Survey, node: str) -> ErrorShares:
        """Divide epsilon for one node.

        A change of all selectivities on a path changes the rates behind it and the score, each by the product of all changes.
        """
        check_epsilon(epsilon)
        tree = survey.trees[node]
        rest = 1.0 - epsilon * (1.0 - _LOSS_SHARE - _TABLE_SHARE - _CAPACITY_SHARE - _FACTS_SHARE)
        return cls(
            1.0 - rest ** (1.0 / survey.bounds.roundings),
            _LOSS_SHARE * epsilon,
            _TABLE_SHARE * epsilon / max(1, tree.depth),
            _CAPACITY_SHARE * epsilon,
            _FACTS_SHARE * epsilon / (2 * survey.longest_path + 1),
        )
