"""Greedy: each node drops first where it loses the least quality per unit of load saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, part_of
from penstock.network.facts import Facts
from penstock.network.model import Network
from penstock.planning.drop_order import DropOrder
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import Planner

__all__ = ["Greedy"]


class Greedy(Planner):
    """Lets each node shed on its own, first where it loses the least quality per unit of load saved.

    Staying FIT (Tatbul, Çetintemel, Zdonik), section 6.2.2: locations are sorted by their ratio of quality to load, with updates
    of the ratios after each step. On one node this is optimal. On several nodes it is the
    uncoordinated baseline that the paper starts from.

    Where it fails: a node counts the tuples that leave it, so it may keep exactly what its children must drop (plan 2 in table 1
    of the paper). Bandwidths, floors and nodes that feed each other in a cycle are rejected.

    Examples
    --------
    Figure 7 of the paper: 60% of the bottom branch is shed.

    >>> from penstock.network import NetworkBuilder
    >>> figure7 = (
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=1.0)
    ...     .operator("top", "A", "s", cost=2.0).operator("bottom", "A", "s", cost=5.0)
    ...     .output("q1", "top").output("q2", "bottom").build()
    ... )
    >>> plan = Greedy(figure7).plan({"i": 0.2})
    >>> round(plan.keep["s->bottom"], 6), round(plan.score, 6)
    (0.4, 0.28)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "greedy"

    def __init__(self, network: Network) -> None:
        super().__init__(network, Flows(network, entries=True))
        if network.bandwidths or network.has_floors:
            raise PenstockError("greedy supports neither bandwidths nor floors: use exact")
        node_order = Coefficients(network).node_order
        if node_order is None:
            raise PenstockError("the nodes feed each other in a cycle, so none can shed before the others: use exact")
        used = {operator.node for operator in network.operators.values()}
        operators = {name: number for number, name in enumerate(network.operators)}
        nodes = {name: number for number, name in enumerate(network.nodes)}
        self._shares = [
            _NodeShare(self.flows, part_of(network, node), nodes[node], operators) for node in node_order if node in used
        ]

    def update(self, facts: Facts) -> None:
        """Plan with other costs, selectivities and capacities from now on."""
        self.flows.update(facts)
        for share in self._shares:
            share.update(facts)

    def _keep(self, rates: Vector) -> Vector:
        flows = self.flows
        keep = np.ones(len(flows.locations))
        y = flows.propagate(rates, keep)
        for share in self._shares:
            arriving = np.where(share.enters < rates.size, rates[np.minimum(share.enters, rates.size - 1)], y[share.enters])
            node_keep = share.order.shed_to(arriving, float(share.order.flows.capacity[0]))
            if np.any(node_keep < 1.0):
                keep[share.locations] *= node_keep
                y = flows.propagate(rates, keep)
        return keep


class _NodeShare:
    """What one node runs, and where it is in the network."""

    def __init__(self, flows: Flows, part: Network, node: int, operators: Mapping[str, int]) -> None:
        self.order = DropOrder(Flows(part))
        self._operators = np.array([operators[name] for name in part.operators], dtype=np.int64)
        self._node = np.array([node])
        self.enters = np.array([flows.location_index[name] for name in self.order.flows.inputs], dtype=np.int64)
        """By input of the node: its location in the network."""
        self.locations = np.array([flows.location_index[name] for name in self.order.flows.location_index], dtype=np.int64)
        """By location of the node: its location in the network."""

    def update(self, facts: Facts) -> None:
        """Use other costs, selectivities and capacities from now on."""
        self.order.flows.update(facts.select(self._operators, self._node))
        self.order.update()
