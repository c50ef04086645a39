"""D-FIT: nodes that plan among themselves, each for itself and all nodes below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.coordination.dfit_tables import ChildTables, TableSender, combine_bounds
from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager, Outgoing
from penstock.coordination.measurements import Measurements, apply_measurements, entries_of
from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds
from penstock.planning.dominance import DominanceIndex
from penstock.planning.fit_node import FitNode, geometric_spread
from penstock.planning.spread import Anchored
from penstock.planning.table import Table

__all__ = ["DFit"]

_TOLERANCE = 1e-9
_TRIANGLE = 0.7
_UPSTREAM_CHANGE = 0.2


class DFit(Manager):
    """One node of D-FIT.

    The node builds its table of feasible inputs from its own statistics and its children's tables, sends it to its parent, and
    sheds by it: rates that overload the node or one below it are scaled down to the entry with the greatest score. When something
    changes significantly it builds the table again and sends its parent what has changed, if that matters. A parent that has
    missed a change requests the whole table.

    Three additions to the paper:

    - With its table a node sends its *bounds*: for each node below, the share of capacity that a row of each column takes if
      nothing is dropped. So a parent knows exactly when there is nothing to shed, which samples near the boundary do not tell.
    - Which rates matter to a node depends on the nodes above it (the feasibility triangle). So a node tells its children what the
      nodes above them have measured, when that has changed by a fifth.
    - Streams that enter at a child are columns of its parent's table too, and the child reports their rates.

    Where it fails: the nodes must form a tree, and tables grow exponentially with the number of columns.

    Parameters
    ----------
    network
        The network.
    node
        The node to manage.
    epsilon
        The relative error of the score that the tables may cause.
    allowed
        The relative difference of scores that a parent need not know of.
    significant
        The relative change of a cost, a selectivity or the capacity after which the table is built again.
    slack
        How much more than its share an arc may deliver before this node sheds: what a parent lets through arrives in bursts.
    max_entries
        Bounds the table; then ``epsilon`` no longer holds.
    survey
        The bounds of the declared network, if they are known already.

    Raises
    ------
    PenstockError
        If the nodes do not form a tree.

    References
    ----------
    N. Tatbul, U. Cetintemel, S. Zdonik, "Staying FIT", VLDB 2007, sections 6 and 7.

    """

    name: ClassVar[str] = "d-fit"

    def __init__(
        self,
        network: Network,
        node: str,
        epsilon: float = 0.05,
        *,
        allowed: float = 0.01,
        significant: float = 0.05,
        slack: float = 1.1,
        max_entries: int | None = None,
        survey: RateBounds | None = None,
    ) -> None:
        super().__init__(network, node)
        not_a_tree = Coefficients(network).not_a_tree if survey is None else None
        if not_a_tree is not None:
            raise PenstockError(f"D-FIT needs a tree of nodes, and {not_a_tree}: run a coordinator instead (--manager exact)")
        declared = survey if survey is not None else RateBounds(network)
        geometric = geometric_spread(declared, epsilon)
        self._spread = Anchored(geometric.step, geometric.least, geometric.total)
        self.parent = next(iter(declared.parents[node]), None)
        self.children = declared.children[node]
        self._significant, self._slack, self._max_entries = significant, slack, max_entries
        self._entries = entries_of(network, node)
        self._arcs = frozenset(name for name in self._entries if name.partition("->")[0] not in network.inputs)
        self._local = Local(network, node)
        self._use_bounds(declared)
        self._measurements: Measurements | None = None  # those that the table is built with
        self._upstream: dict[str, Measurements] = {}  # of the nodes above
        self._told_children: dict[str, Measurements] = {}
        self._child_tables = ChildTables(self.children)
        self._sender = TableSender(allowed)
        self._rates_below: dict[str, float] = {}  # at inputs of the nodes below
        self._unsent_rates: dict[str, float] | None = None
        self._has_greeted = False
        self.table: Table | None = None
        """The node's own table, once those of its children are here."""
        self.bounds: NDArray[np.float64] = np.zeros((0, 0))
        """The bounds of this node and of all nodes below it."""
        self._index: DominanceIndex | None = None
        self.trouble: str | None = None
        """Why the last table could not be built."""
        self.tables_built = 0

    def _use_bounds(self, bounds: RateBounds) -> None:
        """Build the table with these bounds, the next time it is needed."""
        self._part = bounds.partitions[self.node].part
        self._builder = FitNode(
            bounds, self.node, self._spread, step=self._spread.step, max_entries=self._max_entries, triangle=_TRIANGLE
        )
        self._is_stale = True

    @property
    def peers(self) -> tuple[str, ...]:
        """The parent and the children."""
        return (*((self.parent,) if self.parent is not None else ()), *self.children)

    # -- what it knows -------------------------------------------------------------------------------------------------

    def learn(self, measurements: Measurements) -> None:
        """Learn from what was measured here; if it differs significantly, the table will be built again."""
        self._local.learn(measurements)
        rates = {name: rate for name, rate in measurements.rates.items() if name not in self._arcs}
        self._unsent_rates = rates | self._rates_below
        if self._measurements is None or _has_changed(self._measurements, measurements, self._significant):
            self._measurements = measurements
            self._use_bounds(RateBounds(apply_measurements(self.network, self._known_measurements())))

    def _known_measurements(self) -> dict[str, Measurements]:
        """Return the measurements of the nodes above and of this one."""
        return self._upstream if self._measurements is None else {**self._upstream, self.node: self._measurements}

    def receive(self, message: Message) -> None:
        """Act on a child's table, change or rates, on a parent's measurements, or on its request for the whole table."""
        try:
            self._receive(message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a message of kind {message.kind!r} makes no sense: {error!r}") from error

    def _receive(self, message: Message) -> None:
        sender, body = message.sender, message.body
        if message.kind == "resend" and sender == self.parent:
            self._sender.reset()
        elif message.kind == "hello" and sender in self.children:  # it has just started and knows nothing of the nodes above
            self._told_children = {}
        elif message.kind == "upstream" and sender == self.parent:
            self._upstream |= {reported.node: reported for reported in map(Measurements.from_body, body["measurements"])}
            self._use_bounds(RateBounds(apply_measurements(self.network, self._known_measurements())))
        elif message.kind == "table":
            self._is_stale |= self._child_tables.update(sender, body)
        elif message.kind == "rates":
            if sender not in self.children:
                raise PenstockError(f"rates from {sender!r}, which is not a child")
            self._rates_below |= {str(name): float(rate) for name, rate in body["rates"].items()}
        elif message.kind != "alive":
            raise PenstockError(f"D-FIT does not know messages of kind {message.kind!r} from {sender!r}")

    # -- what it decides -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Build the table again if something has changed and the tables of all children are here."""
        if not self._is_stale or self._child_tables.missing:
            return
        self._is_stale = False
        try:
            self.table = self._builder.table(self._child_tables.tables)
        except PenstockError as error:  # a child's table is of the network before a change, and a new one will follow
            self.trouble = str(error)
            return
        self.trouble = None
        capacity = self._part.nodes[self.node].capacity
        self.bounds = combine_bounds(self._part, capacity, self.table.columns, self._child_tables.bounds)
        self._index = DominanceIndex(self.table.points, self.table.scores)
        self.tables_built += 1

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return the entry of the table for these rates, or what the node can do alone if there is no table."""
        self.refresh()  # a table that is up to date already stays as it is
        if self.table is None or self._index is None:
            return self._local.decide(rates)
        columns = self.table.columns
        slack = {name: self._slack if name in self._arcs else 1.0 for name in columns}
        known = {**self._rates_below, **rates}
        point = np.array([known.get(name, 0.0) / slack[name] for name in columns])
        if not np.any(self.bounds @ point > 1.0 + _TOLERANCE):
            return Limits(reason="not overloaded")
        row = self._index.find((point * (1.0 + _TOLERANCE)).tolist())
        if row is None:
            return Limits({name: 0.0 for name in self._entries if name in columns}, reason="no entry is low enough")
        flows = {name: float(rate) * slack[name] for name, rate in zip(columns, self.table.points[row], strict=True)}
        keep = {name: float(shares[row]) for name, shares in self.table.keeps.items()}
        return Limits({name: flows[name] for name in self._entries if name in flows}, keep, f"entry {row}")

    # -- what it sends -------------------------------------------------------------------------------------------------

    def take_messages(self) -> list[Outgoing]:
        """Return requests and measurements for the children, and for the parent rates and what has changed in the table."""
        messages: list[Outgoing] = [(child, "resend", {}) for child in self._child_tables.take_requests()]
        if not self._has_greeted and self.parent is not None:
            messages.append((self.parent, "hello", {}))
        self._has_greeted = True
        messages += self._take_news_for_children()
        self.refresh()
        if self.parent is None or self.table is None:
            return messages
        if self._unsent_rates:
            messages.append((self.parent, "rates", {"rates": self._unsent_rates}))
            self._unsent_rates = None
        update = self._sender.take_update(self.table, self.bounds)
        if update is not None:
            messages.append((self.parent, "table", update))
        return messages

    def _take_news_for_children(self) -> list[Outgoing]:
        """Return what the nodes above the children have measured, if it has changed by a good part since the last time."""
        known = self._known_measurements()
        has_changed = any(
            _has_changed(
                self._told_children.get(node) or Measurements.from_declaration(self.network, node), reported, _UPSTREAM_CHANGE
            )
            for node, reported in known.items()
        )
        if not has_changed:
            return []
        self._told_children = dict(known)
        body = {"measurements": [reported.to_body() for reported in known.values()]}
        return [(child, "upstream", body) for child in self.children]

    def note_replaced(self, to: str, kind: str) -> None:
        """Send the whole table next: the parent lacks a change that a later one has replaced."""
        if to == self.parent and kind == "table":
            self._sender.reset()

    def status(self) -> dict[str, Any]:
        """Return the size of the table, and the children whose tables are missing."""
        return {
            "entries": None if self.table is None else len(self.table),
            "tables_built": self.tables_built,
            "trouble": self.trouble,
            "waiting_for": self._child_tables.missing,
        }


def _has_changed(before: Measurements, now: Measurements, tolerance: float) -> bool:
    """Return whether something differs by more than the tolerance and by more than its error."""
    if abs(before.capacity - now.capacity) > tolerance * before.capacity:
        return True
    for name, operator in now.operators.items():
        old = before.operators.get(name)
        if old is None:
            return True
        if abs(old.cost - operator.cost) > max(tolerance * old.cost, operator.cost_error):
            return True
        if abs(old.selectivity - operator.selectivity) > max(tolerance * old.selectivity, operator.selectivity_error):
            return True
    return False
