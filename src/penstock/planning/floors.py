"""Floors for methods that plan in advance: what floors need is reserved, and the tables divide the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector

__all__ = ["FloorReserve", "remove_floors"]


def remove_floors(network: Network) -> Network:
    """Return the network without floors."""
    if not network.has_floors:
        return network
    inputs = {name: replace(stream, floor=0.0) for name, stream in network.inputs.items()}
    outputs = {name: replace(output, floor=0.0) for name, output in network.outputs.items()}
    return replace(network, inputs=inputs, outputs=outputs)


class FloorReserve:
    """The flows that keep all floors of a network.

    A method that plans in advance knows no floors. So the floors get their flows first. They take some share u of the fullest
    node. The rest of the rates, divided by ``1 - u``, is planned for as usual, and that plan is scaled by ``1 - u``. The sum is
    feasible, because loads are linear. On one node it is as good as the method; on several, what a floor leaves free on a node
    that is not the fullest may stay unused.

    Floors that overload a node by themselves are softened: all of them are lowered by one factor.

    Parameters
    ----------
    flows
        The flows of the network.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a", floor=0.25).build()
    ... )
    >>> FloorReserve(Flows(network)).flow(np.array([2.0]))
    (array([0.5]), 0.5)
    """

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        network = flows.network
        floors = {name: output.floor for name, output in network.outputs.items()}
        for name in (*reversed(network.order), *network.inputs):
            floors[name] = max((floors[consumer] for consumer in network.consumers[name]), default=0.0)
        for name, stream in network.inputs.items():
            floors[name] = max(floors[name], stream.floor)
        self._shares = np.array(
            [floors[location.source if location.target is None else location.target] for location in flows.locations]
        )

    def flow(self, rates: Vector) -> tuple[Vector, float]:
        """Return the flow past each location that keeps all floors, and the share of the fullest node or link that it takes."""
        flows = self._flows
        needed = self._shares * flows.propagate(rates, np.ones(len(flows.locations)))
        return needed, flows.utilization(needed)
