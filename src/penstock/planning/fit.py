"""FIT: tables of feasible inputs, computed at the leaves and merged on the way to the root."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds, column_effects
from penstock.planning.fit_node import FitNode, geometric_spread
from penstock.planning.flows import Flows, Vector
from penstock.planning.lookup import TableLookup
from penstock.planning.plan import Planner, check_epsilon
from penstock.planning.spread import Spread
from penstock.planning.table import Table

__all__ = ["Fit"]


class Fit(Planner):
    """Looks plans up in tables of feasible inputs, computed at the leaves and merged on the way to the root (C-FIT).

    Staying FIT (Tatbul, Çetintemel, Zdonik), sections 6 and 7, with all steps in one process. Rates that overload the network
    are scaled down to the table entry with the highest score that is component-wise at most the rates; the complementary local
    plans of the entry apply too. The score is at most epsilon below the best: samples are spread geometrically, the loss near 0
    counts towards epsilon, and no sample near the boundary of the feasible space is left out.

    Where it fails: tables grow exponentially with the number of inputs. ``max_entries`` bounds their size, but then epsilon no
    longer holds. The nodes must form trees. Bandwidths, floors and joins with windows in seconds are rejected.

    Parameters
    ----------
    network
        The network to plan for.
    epsilon
        The relative error of the score that is allowed, in (0, 1).
    spread
        How to choose sample rates, instead of geometrically within epsilon.
    max_entries
        The maximum number of entries per table.

    Examples
    --------
    The network of figure 1, where the best score is 0.6:

    >>> from penstock.network import NetworkBuilder
    >>> figure1 = (
    ...     NetworkBuilder().node("A").node("B").input("i1").input("i2")
    ...     .operator("a1", "A", "i1", cost=1.0).operator("a2", "A", "i2", cost=2.0)
    ...     .operator("b1", "B", "a1", cost=3.0).operator("b2", "B", "a2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> plan = Fit(figure1, epsilon=0.05).plan({"i1": 1.0, "i2": 1.0})
    >>> plan.feasible, 0.57 <= plan.score <= 0.6
    (True, True)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "fit"
    _plans_ahead = True

    def __init__(
        self, network: Network, epsilon: float = 0.05, *, spread: Spread | None = None, max_entries: int | None = None
    ) -> None:
        super().__init__(network, Flows(network))
        self.epsilon = check_epsilon(epsilon)
        if max_entries is not None and max_entries < 1:
            raise PenstockError(f"max_entries must be positive, got {max_entries}")
        self.bounds = RateBounds(network)
        geometric = geometric_spread(self.bounds, epsilon)
        self.tables: dict[str, Table] = {}
        """The table of each node."""
        has_costs = any(operator.cost for operator in network.operators.values())
        for node in reversed(self.bounds.order if has_costs else ()):
            fit_node = FitNode(self.bounds, node, spread or geometric, step=geometric.step, max_entries=max_entries)
            self.tables[node] = fit_node.table([self.tables[child] for child in self.bounds.children[node]])
        self._roots = {node: table for node, table in self.tables.items() if not self.bounds.parents[node]}
        self._effects = {root: column_effects(self.flows, table.columns) for root, table in self._roots.items()}
        self._lookups = {root: TableLookup(table, *self._effects[root]) for root, table in self._roots.items()}

    def _keep(self, rates: Vector) -> Vector:
        keep = np.ones(len(self.flows.locations))
        by_input = dict(zip(self.flows.inputs, rates.tolist(), strict=True))
        for node, table in self._roots.items():
            observed = np.array([by_input[name if name in by_input else name.partition("->")[0]] for name in table.columns])
            if np.all(self._effects[node].shares @ observed <= 1.0 + 1e-12):
                continue
            choice = self._lookups[node].find(observed.tolist())
            shares = np.divide(choice.rates, observed, out=np.ones_like(observed), where=observed > 0)
            for name, share in zip(table.columns, np.minimum(shares, 1.0).tolist(), strict=True):
                keep[self.flows.location_index[name]] = share
            if choice.row is not None:
                self._apply_local_plans(node, choice.row, keep)
        return keep

    def _apply_local_plans(self, root: str, root_row: int, keep: Vector) -> None:
        """Apply the complementary local plans of an entry, and of the child entries it was combined from."""
        entries = [(root, root_row)]
        for node, row in entries:
            table = self.tables[node]
            for name, values in table.keeps.items():
                keep[self.flows.location_index[name]] *= values[row]
            entries += [(child, int(rows[row])) for child, rows in table.child_rows.items()]

    def lookup(self, rates: list[float]) -> int | None:
        """Return the entry of the first root's table for some rates: the search that selects a plan at run time."""
        return next(iter(self._lookups.values())).find_entry(rates)

    @property
    def entries(self) -> int:
        """The number of entries in the tables of the roots."""
        return sum(len(table) for table in self._roots.values())
