"""Each node for itself: the best for its own outputs, whatever that does to the nodes behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, apply_measurements, remove_rate_bounds
from penstock.network.coefficients import part_of
from penstock.network.drops import Drops, Ties, derive_drops
from penstock.network.model import Network
from penstock.planning.exact import Exact
from penstock.planning.greedy import Greedy
from penstock.planning.plan import Planner

__all__ = ["Local"]


class Local(Manager):
    """Sheds what its node cannot process and knows nothing of other nodes.

    It drops first what is worth least at the node's own outputs for the load it causes. Staying FIT (Tatbul, Cetintemel, Zdonik)
    uses such nodes as its baseline: they waste work on rows that a later node drops.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.01).output("q", "a").build()
    >>> dict(Local(network, "A").decide({"i": 400.0}).flows)
    {'i': 100.0}

    """

    name: ClassVar[str] = "local"

    def __init__(self, network: Network, node: str) -> None:
        super().__init__(network, node)
        self._ties = _find_ties(derive_drops(network), part_of(network, node), node)
        self._planner = self._make_planner(network)

    def learn(self, measurements: Measurements) -> None:
        """Plan with these measurements from now on."""
        self._planner = self._make_planner(apply_measurements(self.network, {self.node: measurements}))

    def _make_planner(self, network: Network) -> Planner:
        part = remove_rate_bounds(part_of(network, self.node))
        return Exact(part, ties=self._ties) if part.has_floors or self._ties else Greedy(part)

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return what the node can process."""
        plan = self._planner.plan({name: rates.get(name, 0.0) for name in self._planner.network.inputs})
        if not plan.overloaded:
            return Limits(reason="not overloaded")
        # Entries that must decide alike share a keep, whatever the sizes of their batches.
        tied = {name for group in self._ties.groups for name in group}
        flows = {name: rate * plan.keep[name] for name, rate in plan.rates.items() if name not in tied}
        return Limits(flows, {name: keep for name, keep in plan.keep.items() if name not in flows}, "local plan")


def _find_ties(drops: Drops, part: Network, node: str) -> Ties:
    """Return what the node's part must respect: for joins and aggregates behind it, and for timed joins within it."""
    of_node, of_part = drops.ties_at(node), derive_drops(part).ties
    return Ties(
        (*of_node.groups, *(group for group in of_part.groups if group not in of_node.groups)), of_node.fixed | of_part.fixed
    )
