"""Each node for itself: the best for its own outputs, whatever that does to the nodes behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import FactsOfNode, Measurements, apply_measurements, remove_rate_bounds
from penstock.errors import PenstockError
from penstock.network.coefficients import part_of
from penstock.network.drops import Drops, Ties, derive_drops
from penstock.network.facts import Facts
from penstock.network.model import Network
from penstock.planning.exact import Exact
from penstock.planning.flows import Vector
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
        part = remove_rate_bounds(part_of(network, node))
        self._ties = _find_ties(derive_drops(network), part, node)
        self._is_bilinear = bool(part.bilinear)
        self._planner = self._make_planner(network)
        self._names = tuple(self._planner.flows.location_index)
        # Entries that must decide alike share a keep, whatever the sizes of their batches.
        self._tied = frozenset(name for group in self._ties.groups for name in group)
        self._facts_of_node = FactsOfNode(part, node)
        self._declared = Facts.from_declaration(part)
        self._unused: Measurements | None = None  # what the planner does not know yet
        self.trouble: str | None = None
        """Why the last measurements could not be used."""

    def _make_planner(self, network: Network) -> Planner:
        part = remove_rate_bounds(part_of(network, self.node))
        return Exact(part, ties=self._ties) if part.has_floors or self._ties else Greedy(part)

    def learn(self, measurements: Measurements) -> None:
        """Plan with these measurements from now on."""
        self._unused = measurements

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return what the node can process. If the last measurements cannot be used, those before them stay in force."""
        measurements, self._unused = self._unused, None
        if measurements is not None:
            self._learn(measurements)
        if self._is_bilinear:
            return self._decide_anew(rates)
        flows = self._planner.flows
        arriving = np.array([rates.get(name, 0.0) for name in flows.inputs])
        if not flows.is_overloaded(arriving):
            return Limits(reason="not overloaded")
        keep, notes = self._planner.shed(arriving)
        return self._limit(arriving, keep, notes)

    def _decide_anew(self, rates: Mapping[str, float]) -> Limits:
        """Return what the node can process where a join has windows in seconds: what it puts out depends on the rates."""
        plan = self._planner.plan({name: rates.get(name, 0.0) for name in self._planner.network.inputs})
        if not plan.overloaded:
            return Limits(reason="not overloaded")
        return self._limit(np.array(list(plan.rates.values())), np.array([plan.keep[name] for name in self._names]), plan.notes)

    def _limit(self, arriving: Vector, keep: Vector, notes: tuple[str, ...]) -> Limits:
        shares = dict(zip(self._names, keep.tolist(), strict=True))
        flows = {
            name: rate * shares[name]
            for name, rate in zip(self._planner.flows.inputs, arriving.tolist(), strict=True)
            if name not in self._tied
        }
        # A gate that is not named keeps everything.
        closing = {name: share for name, share in shares.items() if name not in flows and (share < 1.0 or name in self._tied)}
        return Limits(flows, closing, "; ".join(("local plan", *notes)))

    def _learn(self, measurements: Measurements) -> None:
        try:
            if self._is_bilinear:
                self._planner = self._make_planner(apply_measurements(self.network, {self.node: measurements}))
            else:
                self._planner.update(self._facts_of_node.enter(measurements, self._declared))
            self.trouble = None
        except PenstockError as error:
            self.trouble = str(error)

    def status(self) -> dict[str, Any]:
        """Return why the last measurements could not be used."""
        return {"trouble": self.trouble}


def _find_ties(drops: Drops, part: Network, node: str) -> Ties:
    """Return what the node's part must respect: for joins and aggregates behind it, and for timed joins within it."""
    of_node, of_part = drops.ties_at(node), derive_drops(part).ties
    return Ties(
        (*of_node.groups, *(group for group in of_part.groups if group not in of_node.groups)), of_node.fixed | of_part.fixed
    )
