"""Greedy: each node drops first where it loses the least quality per unit of load saved."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, part_of
from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import Planner

__all__ = ["DropOrder", "Greedy"]


class DropOrder:
    """The order in which one node drops at its locations (Staying FIT, section 6.2.2).

    The location with the smallest ratio of quality to load comes first. Then the ratios of all locations upstream are updated,
    because dropping there no longer saves or loses what this location drops. Without the updates, the order is wrong on one
    network in seven. On one node the order does not depend on the rates, and shedding in this order is optimal: a set of drops
    is a union of subtrees, so the set with the smallest ratio is a single subtree.

    Nothing is dropped where the inputs in ``fixed`` enter; that is left to the nodes that feed them.

    Attributes
    ----------
    steps
        The locations in drop order, by index in ``flows.locations``.
    saved
        By step: the load that dropping everything there saves, per unit of each input rate, after all earlier steps.
    lost
        By step: the quality that dropping everything there loses, per unit of each input rate, after all earlier steps.
    """

    def __init__(self, flows: Flows, *, fixed: Collection[str] = ()) -> None:
        self.flows = flows
        count = len(flows.locations)
        self._upstream: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for row, column, gain in zip(flows.sources.rows, flows.sources.columns, flows.sources.values, strict=True):
            self._upstream[int(row)].append((int(column), float(gain)))
        self._load = np.zeros(count)
        np.add.at(self._load, flows.loads.columns, flows.loads.values)
        self._downstream_first = self._sort_downstream_first()
        is_open = np.ones(count, dtype=bool)  # False where everything is dropped
        quality, load = self._quality_and_load(is_open)
        negligible = 1e-9 * load
        candidates = {number for number, location in enumerate(flows.locations) if location.name not in fixed}
        steps: list[tuple[int, Vector, Vector]] = []
        while True:
            reach = self._reach(is_open)
            useful = [number for number in candidates if load[number] > negligible[number] and reach[number].any()]
            if not useful:
                break
            best = min(useful, key=lambda number: (quality[number] / load[number], number))
            steps.append((best, load[best] * reach[best], quality[best] * reach[best]))
            candidates.discard(best)
            is_open[best] = False
            quality, load = self._quality_and_load(is_open)
        self.steps: NDArray[np.int64] = np.array([location for location, _, _ in steps], dtype=np.int64)
        self.saved = [saved for _, saved, _ in steps]
        self.lost = [lost for _, _, lost in steps]

    def _quality_and_load(self, is_open: NDArray[np.bool_]) -> tuple[Vector, Vector]:
        """Return, by location, the score and the load per tuple that passes it, given the open locations."""
        quality, load = self.flows.value.copy(), self._load.copy()
        for number in self._downstream_first:
            if is_open[number]:
                for upstream, gain in self._upstream[number]:
                    quality[upstream] += gain * quality[number]
                    load[upstream] += gain * load[number]
        return quality, load

    def _sort_downstream_first(self) -> list[int]:
        rank = {name: number for number, name in enumerate((*self.flows.inputs, *self.flows.network.order))}
        locations = self.flows.locations
        return sorted(
            range(len(locations)), key=lambda n: (rank[locations[n].source], locations[n].target is not None), reverse=True
        )

    def _reach(self, is_open: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return, by location and input, the tuples that arrive per tuple that enters, given the open locations."""
        flows = self.flows
        arriving = np.zeros((len(flows.locations), len(flows.inputs)))
        arriving[: len(flows.inputs)] = np.eye(len(flows.inputs))
        passing = arriving * is_open[:, None]
        for members, matrix in flows.levels:
            arriving_here = np.zeros((members.size, len(flows.inputs)))
            np.add.at(arriving_here, matrix.rows, matrix.values[:, None] * passing[matrix.columns])
            arriving[members] = arriving_here
            passing[members] = arriving_here * is_open[members, None]
        return arriving

    def shed(self, rates: NDArray[np.float64], excess: Vector) -> tuple[NDArray[np.float64], Vector, Vector]:
        """Shed the excess load of each row of rates.

        Returns the keep at each location, the quality lost, and the excess that remains after all steps, each by row.
        """
        keep = np.ones((rates.shape[0], len(self.flows.locations)))
        remaining, lost = np.maximum(excess, 0.0), np.zeros(rates.shape[0])
        for location, saved, quality in zip(self.steps.tolist(), self.saved, self.lost, strict=True):
            savable = rates @ saved
            dropped = np.divide(remaining, savable, out=np.where(remaining > 0, 1.0, 0.0), where=savable > 0)
            dropped = np.minimum(dropped, 1.0)
            dropped[remaining <= 0] = 0.0
            keep[:, location] = 1.0 - dropped
            remaining = np.where(dropped < 1.0, 0.0, remaining - savable)
            lost += dropped * (rates @ quality)
        return keep, lost, np.maximum(remaining, 0.0)


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
        self._drop_orders = {node: DropOrder(Flows(part_of(network, node))) for node in node_order if node in used}

    def _keep(self, rates: Vector) -> Vector:
        flows = self.flows
        keep = np.ones(len(flows.locations))
        for node, order in self._drop_orders.items():
            y = flows.propagate(rates, keep)
            arriving = np.array([[self._arriving(name, rates, y) for name in order.flows.inputs]])
            excess = order.flows.full_loads @ arriving[0] - self.network.nodes[node].capacity
            node_keep = order.shed(arriving, excess)[0][0]
            for location, share in zip(order.flows.locations, node_keep.tolist(), strict=True):
                keep[flows.location_index[location.name]] *= share
        return keep

    def _arriving(self, name: str, rates: Vector, y: Vector) -> float:
        index = self.flows.location_index[name]
        return float(rates[index] if index < rates.size else y[index])
