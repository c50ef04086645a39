"""Greedy: drop first where the least quality is lost for the load that is saved, node by node."""

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
    """In which order to drop on one node (paper 000, section 6.2.2).

    The location with the smallest quality/load ratio comes first; then the ratios of all upstream of it are updated, because what
    it would have saved and lost is gone. Without the updates the order is wrong on one network in seven. For one node the
    order does not depend on the rates, and shedding along it is optimal: a set of drops is a union of subtrees, so the one
    with the smallest ratio is a single subtree.

    Inputs in ``fixed`` are left alone: to drop where they enter is up to whoever feeds the node.
    """

    def __init__(self, flows: Flows, *, fixed: Collection[str] = ()) -> None:
        self.flows = flows
        count = len(flows.locations)
        self._upstream: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for row, column, gain in zip(flows.sources.rows, flows.sources.columns, flows.sources.values, strict=True):
            self._upstream[int(row)].append((int(column), float(gain)))
        self._own_load = np.zeros(count)
        np.add.at(self._own_load, flows.loads.columns, flows.loads.values)
        self._order = self._downstream_first()
        alive = np.ones(count, dtype=bool)
        quality, load = self._worth(alive)
        nothing = 1e-9 * load
        candidates = {number for number, location in enumerate(flows.locations) if location.name not in fixed}
        steps: list[tuple[int, Vector, Vector]] = []
        while True:
            reach = self._reach(alive)
            able = [number for number in candidates if load[number] > nothing[number] and reach[number].any()]
            if not able:
                break
            chosen = min(able, key=lambda number: (quality[number] / load[number], number))
            steps.append((chosen, load[chosen] * reach[chosen], quality[chosen] * reach[chosen]))
            candidates.discard(chosen)
            alive[chosen] = False
            quality, load = self._worth(alive)
        self.places: NDArray[np.int64] = np.array([place for place, _, _ in steps], dtype=np.int64)
        self.saved = [saved for _, saved, _ in steps]
        """By step: the load that dropping all there saves, by input rate, with all earlier steps done."""
        self.lost = [lost for _, _, lost in steps]

    def _worth(self, alive: NDArray[np.bool_]) -> tuple[Vector, Vector]:
        """What a tuple that passes each location adds to the score, and what it costs, with all dropped that is dropped."""
        quality, load = self.flows.value.copy(), self._own_load.copy()
        for number in self._order:
            if alive[number]:
                for before, gain in self._upstream[number]:
                    quality[before] += gain * quality[number]
                    load[before] += gain * load[number]
        return quality, load

    def _downstream_first(self) -> list[int]:
        rank = {name: number for number, name in enumerate((*self.flows.inputs, *self.flows.network.order))}
        locations = self.flows.locations
        return sorted(
            range(len(locations)), key=lambda n: (rank[locations[n].source], locations[n].target is not None), reverse=True
        )

    def _reach(self, alive: NDArray[np.bool_]) -> NDArray[np.float64]:
        """By location and input: how much of a tuple that enters arrives, with all dropped that is dropped."""
        flows = self.flows
        arriving = np.zeros((len(flows.locations), len(flows.inputs)))
        arriving[: len(flows.inputs)] = np.eye(len(flows.inputs))
        passing = arriving * alive[:, None]
        for members, matrix in flows.levels:
            found = np.zeros((members.size, len(flows.inputs)))
            np.add.at(found, matrix.rows, matrix.values[:, None] * passing[matrix.columns])
            arriving[members] = found
            passing[members] = found * alive[members, None]
        return arriving

    def shed(self, rates: NDArray[np.float64], excess: Vector) -> tuple[NDArray[np.float64], Vector, Vector]:
        """Shed some load at each row of rates: the keep at each location, the quality lost, and the load that is left over."""
        keep = np.ones((rates.shape[0], len(self.flows.locations)))
        left, lost = np.maximum(excess, 0.0), np.zeros(rates.shape[0])
        for place, saved, quality in zip(self.places.tolist(), self.saved, self.lost, strict=True):
            able = rates @ saved
            share = np.divide(left, able, out=np.where(left > 0, 1.0, 0.0), where=able > 0)
            share = np.minimum(share, 1.0)
            share[left <= 0] = 0.0
            keep[:, place] = 1.0 - share
            left = np.where(share < 1.0, 0.0, left - able)
            lost += share * (rates @ quality)
        return keep, lost, np.maximum(left, 0.0)


class Greedy(Planner):
    """Each node sheds for itself, by quality/load ratio with ratio updates, and knows nothing of the others.

    On one node this is optimal. On several it is the baseline that the papers start from: a node counts what leaves it, so it
    may keep what its children must drop (plan 2 of table 1).

    >>> from penstock.network import NetworkBuilder
    >>> figure7 = (                                    # of paper 000
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=1.0)
    ...     .operator("top", "A", "s", cost=2.0).operator("bottom", "A", "s", cost=5.0)
    ...     .output("q1", "top").output("q2", "bottom").build()
    ... )
    >>> plan = Greedy(figure7).plan({"i": 0.2})
    >>> round(plan.keep["s->bottom"], 6), round(plan.score, 6)     # 60% of the bottom branch is shed
    (0.4, 0.28)
    """

    name: ClassVar[str] = "greedy"

    def __init__(self, network: Network) -> None:
        super().__init__(network, Flows(network, entries=True))
        if network.bandwidths or network.has_floors:
            raise PenstockError("greedy knows neither bandwidths nor floors: use exact")
        order = Coefficients(network).node_order
        if order is None:
            raise PenstockError("the nodes feed each other in a circle, so none can shed before the others: use exact")
        used = {operator.node for operator in network.operators.values()}
        self._orders = {node: DropOrder(Flows(part_of(network, node))) for node in order if node in used}

    def _keep(self, rates: Vector) -> Vector:
        flows = self.flows
        keep = np.ones(len(flows.locations))
        for node, order in self._orders.items():
            y = flows.passing(rates, keep)
            arriving = np.array([[self._arriving(name, rates, y) for name in order.flows.inputs]])
            excess = order.flows.full_loads @ arriving[0] - self.network.nodes[node].capacity
            found = order.shed(arriving, excess)[0][0]
            for location, share in zip(order.flows.locations, found.tolist(), strict=True):
                keep[flows.place[location.name]] *= share
        return keep

    def _arriving(self, name: str, rates: Vector, y: Vector) -> float:
        place = self.flows.place[name]
        return float(rates[place] if place < rates.size else y[place])
