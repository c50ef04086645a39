"""Each node for itself: the best for its own outputs, whatever that does to the nodes behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, apply_measurements, remove_rate_bounds
from penstock.network.coefficients import part_of
from penstock.network.model import Network
from penstock.planning.exact import Exact
from penstock.planning.greedy import Greedy
from penstock.planning.plan import Planner

__all__ = ["Local"]


class Local(Manager):
    """Sheds what its node can't do, by quality over load, and knows nothing of the others: the papers' straw man.

    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.01).output("q", "a").build()
    >>> dict(Local(network, "A").decide({"i": 400.0}).flows)
    {'i': 100.0}
    """

    name: ClassVar[str] = "local"

    def __init__(self, network: Network, node: str) -> None:
        super().__init__(network, node)
        self._planner = self._made(network)

    def _made(self, network: Network) -> Planner:
        part = remove_rate_bounds(part_of(network, self.node))
        return Exact(part) if part.has_floors else Greedy(part)

    def learn(self, measurements: Measurements) -> None:
        """Plan with what was measured from now on."""
        self._planner = self._made(apply_measurements(self.network, {self.node: measurements}))

    def decide(self, demand: Mapping[str, float]) -> Limits:
        """Return what the node can do."""
        plan = self._planner.plan({name: demand.get(name, 0.0) for name in self._planner.network.inputs})
        if not plan.overloaded:
            return Limits(reason="not overloaded")
        flows = {name: rate * plan.keep[name] for name, rate in plan.rates.items()}
        return Limits(flows, {name: keep for name, keep in plan.keep.items() if name not in plan.rates}, "local plan")
