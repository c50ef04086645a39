"""FIT: tables of feasible inputs, computed at the leaves and merged on the way to the root."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.fit_tables import build_tables
from penstock.planning.flows import Flows, Vector, feasible_keep
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

    Such a grid takes more than 400,000 entries for four inputs and 10%. Where it would be large and nothing splits, the entries
    are directions in the space of rates instead (``DirectionGrid``): 1,140 of them for four inputs and 10%. ``max_entries`` makes
    a table coarser, never incomplete. ``error`` is the epsilon that the tables achieve, and plans carry a note if it is above the
    one asked for.

    In addition to the paper it plans with bandwidths. Where nothing splits they are limits like capacities. Where something
    splits, plans are scaled down to them, and ``error`` accounts for that. Floors are reserved before the table is used.

    Where it fails: tables grow exponentially with the number of inputs; eight inputs at 10% are rejected without
    ``max_entries``. The nodes must form trees. Joins with windows in seconds are rejected.

    Parameters
    ----------
    network
        The network to plan for.
    epsilon
        The relative error of the score that is allowed, in (0, 1). ``None`` for as little as ``max_entries`` allows.
    spread
        How to choose sample rates, instead of geometrically within epsilon.
    max_entries
        The maximum number of entries per table. What error that means is in ``error``.

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
        self, network: Network, epsilon: float | None = 0.05, *, spread: Spread | None = None, max_entries: int | None = None
    ) -> None:
        super().__init__(network, Flows(network))
        if epsilon is None and max_entries is None and spread is None:
            raise PenstockError(f"{self.name} needs an epsilon, max_entries, or both")
        if epsilon is not None:
            check_epsilon(epsilon)
        if max_entries is not None and max_entries < 1:
            raise PenstockError(f"max_entries must be positive, got {max_entries}")
        self.tables: dict[str, Table] = {}
        """The table of each node; of the roots alone, if the entries are directions."""
        self.error = 0.0
        """The relative error of the score that the tables guarantee: the epsilon achieved."""
        if self._plan_fragments(epsilon, spread, max_entries):
            for fragment in self.fragments:
                self.tables |= fragment.planner.tables
                self.error = max(self.error, fragment.planner.error)
        else:
            tables = build_tables(self.flows, epsilon, spread, max_entries)
            self.bounds, self.tables, self.error = tables.bounds, tables.tables, tables.error
            self._effects, self._lookups = tables.effects, tables.lookups
        self.epsilon = epsilon if epsilon is not None else self.error

    def _plan_fragments(self, epsilon: float | None, spread: Spread | None, max_entries: int | None) -> bool:
        """Plan fragments apart, and return whether there are several. A spread that was given is that of the whole network."""
        return spread is None and self._plan_apart(lambda part, _: Fit(part, epsilon, max_entries=max_entries))

    def _caveats(self) -> tuple[str, ...]:
        if self.error <= self.epsilon:
            return ()
        return (f"{self.name} guarantees an error of {self.error:.2%} with {self.entries:,} entries, not {self.epsilon:.2%}",)

    def _keep(self, rates: Vector) -> Vector:
        keep = np.ones(len(self.flows.locations))
        by_input = dict(zip(self.flows.inputs, rates.tolist(), strict=True))
        for root, lookup in self._lookups.items():
            columns, shares = self.tables[root].columns, self._effects[root].shares
            observed = np.array([by_input[name if name in by_input else name.partition("->")[0]] for name in columns])
            if np.all(shares @ observed <= 1.0 + 1e-12):
                continue
            choice = lookup.find(observed.tolist())
            kept = np.divide(choice.rates, observed, out=np.ones_like(observed), where=observed > 0)
            kept[~np.any(shares > 0, axis=0)] = 1.0  # a column that costs nothing
            for name, share in zip(columns, np.minimum(kept, 1.0).tolist(), strict=True):
                keep[self.flows.location_index[name]] = share
            if choice.row is not None:
                self._apply_local_plans(root, choice.row, keep)
        return self._meet_bandwidths(rates, keep) if self.network.bandwidths else keep

    def _meet_bandwidths(self, rates: Vector, keep: Vector) -> Vector:
        """Scale a plan down to the bandwidths, which the tables of a network with splits do not know.

        Scaling the rates down with nothing dropped behind the inputs may be better.
        """
        flows, full = self.flows, np.ones(len(self.flows.locations))
        plans = [feasible_keep(flows, rates, flows.propagate(rates, plan)) for plan in (keep, full)]
        return max(plans, key=lambda plan: float(flows.value @ flows.propagate(rates, plan)))

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
        if self.fragments:
            first: Fit = self.fragments[0].planner
            return first.lookup([rates[index] for index in self.fragments[0].inputs.tolist()])
        return next(iter(self._lookups.values())).find_entry(rates)

    @property
    def entries(self) -> int:
        """The number of entries in the tables of the roots."""
        if self.fragments:
            return sum(fragment.planner.entries for fragment in self.fragments)
        return sum(len(self.tables[root]) for root in self._lookups)
