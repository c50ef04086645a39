"""What may be measured of a network while it runs: costs, selectivities and capacities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.network.model import Network

__all__ = ["Facts"]


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The numbers of a network that change while it runs, as arrays: planners take new ones without a new network.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.5).output("q", "a").build()
    >>> Facts.from_declaration(network).costs.tolist()
    [0.5]
    """

    costs: NDArray[np.float64]
    """CPU seconds per tuple, by operator, in the order of ``network.operators``."""
    selectivities: NDArray[np.float64]
    """Tuples out per tuple in, by operator."""
    capacities: NDArray[np.float64]
    """CPU seconds per second, by node, in the order of ``network.nodes``."""

    @classmethod
    def from_declaration(cls, network: Network) -> Facts:
        """Return what the network declares."""
        operators = network.operators.values()
        return cls(
            np.array([operator.cost for operator in operators], dtype=np.float64),
            np.array([operator.selectivity for operator in operators], dtype=np.float64),
            np.array([node.capacity for node in network.nodes.values()], dtype=np.float64),
        )

    def select(self, operators: NDArray[np.int64], nodes: NDArray[np.int64]) -> Facts:
        """Return the facts of some operators and nodes, by position."""
        return Facts(self.costs[operators], self.selectivities[operators], self.capacities[nodes])
