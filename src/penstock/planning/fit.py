"""FIT: tables of feasible inputs, made at the leaves and merged on their way to the root."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds
from penstock.planning.dominance import DominanceIndex
from penstock.planning.fit_node import FitNode, geometric_spread
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import Planner, check_epsilon
from penstock.planning.spread import Spread
from penstock.planning.table import Table

__all__ = ["Fit"]

_TOLERANCE = 1e-9


class Fit(Planner):
    """C-FIT: all steps of FIT in one place, and plans looked up in the roots' tables (paper 000, sections 6 and 7).

    Rates that overload the network are scaled down to the entry with the greatest score that is nowhere above them; its
    complementary local plans go with it. The score is at most epsilon below the best: samples are spread geometrically, what is
    lost near 0 is accounted for, and near the boundary nothing is left out.

    Where it fails: tables grow exponentially with the number of inputs. ``max_entries`` bounds them and gives up epsilon.

    >>> from penstock.network import NetworkBuilder
    >>> table1 = (
    ...     NetworkBuilder().node("A").node("B").input("i1").input("i2")
    ...     .operator("a1", "A", "i1", cost=1.0).operator("a2", "A", "i2", cost=2.0)
    ...     .operator("b1", "B", "a1", cost=3.0).operator("b2", "B", "a2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> plan = Fit(table1, epsilon=0.05).plan({"i1": 1.0, "i2": 1.0})
    >>> plan.feasible, 0.57 <= plan.score <= 0.6
    (True, True)
    """

    name: ClassVar[str] = "fit"
    _in_advance = True

    def __init__(
        self, network: Network, epsilon: float = 0.05, *, spread: Spread | None = None, max_entries: int | None = None
    ) -> None:
        super().__init__(network, Flows(network))
        self.epsilon = check_epsilon(epsilon)
        if max_entries is not None and max_entries < 1:
            raise PenstockError(f"max_entries must be positive, got {max_entries}")
        self.survey = RateBounds(network)
        geometric = geometric_spread(self.survey, epsilon)
        self.tables: dict[str, Table] = {}
        """The table of every node."""
        costs = any(operator.cost for operator in network.operators.values())
        for node in reversed(self.survey.order if costs else ()):
            step = FitNode(self.survey, node, spread or geometric, step=geometric.step, max_entries=max_entries)
            self.tables[node] = step.table([self.tables[child] for child in self.survey.children[node]])
        self._roots = {node: table for node, table in self.tables.items() if not self.survey.parents[node]}
        places = {node: place for place, node in enumerate(self.flows.nodes)}
        self._below = {root: [places[node] for node in self.survey.below(root)] for root in self._roots}
        self._indexes = {node: DominanceIndex(table.points, table.scores) for node, table in self._roots.items()}

    def _keep(self, rates: Vector) -> Vector:
        keep = np.ones(len(self.flows.locations))
        by_input = dict(zip(self.flows.inputs, rates.tolist(), strict=True))
        too_much = self.flows.full_loads @ rates > self.flows.capacity * (1.0 + 1e-12)
        for node, table in self._roots.items():
            if not too_much[self._below[node]].any():
                continue
            observed = [by_input[name if name in by_input else name.partition("->")[0]] for name in table.columns]
            row = self._indexes[node].find([rate * (1.0 + _TOLERANCE) for rate in observed])
            for column, (name, rate) in enumerate(zip(table.columns, observed, strict=True)):
                wanted = 0.0 if row is None else float(table.points[row, column])
                keep[self.flows.place[name]] = min(1.0, wanted / rate) if rate > 0 else 1.0
            if row is not None:
                self._put_local_plans(node, row, keep)
        return keep

    def _put_local_plans(self, node: str, row: int, keep: Vector) -> None:
        """The complementary plans of an entry, and of the entries below that it rests on."""
        entries = [(node, row)]
        for here, place in entries:
            table = self.tables[here]
            for name, values in table.keeps.items():
                keep[self.flows.place[name]] *= values[place]
            entries += [(child, int(picks[place])) for child, picks in table.picks.items()]

    def lookup(self, rates: list[float]) -> int | None:
        """The entry of the first root's table for some rates: what happens at run time before a plan is put into effect."""
        return next(iter(self._indexes.values())).find(rates)

    @property
    def entries(self) -> int:
        """How many entries the roots' tables have."""
        return sum(len(table) for table in self._roots.values())
