"""D-FIT: nodes that plan among themselves, each for itself and all nodes below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.coordination.dfit_facts import NodeFacts
from penstock.coordination.dfit_program import SubtreeProgram
from penstock.coordination.dfit_scope import Scope, ScopeSender
from penstock.coordination.dfit_survey import ErrorShares, Survey
from penstock.coordination.dfit_tables import ChildTables, Reach, TableSender, combine_reaches
from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager, Outgoing
from penstock.coordination.measurements import Measurements
from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.dominance import DominanceIndex
from penstock.planning.table import Table

__all__ = ["DFit"]

_TOLERANCE = 1e-9


class DFit(Manager):
    """One node of D-FIT.

    The node builds its table of feasible inputs from its own statistics and its children's tables, sends it to its parent, and
    sheds by it: rates that overload the node or one below it are scaled down to the entry with the greatest score. When something
    changes significantly it builds the table again and sends its parent what has changed, if that matters. A parent that has
    missed a change requests the whole table.

    What is added to the paper, so that plans are right for facts as measured and not only as declared:

    - With its table a node sends its *reach*: for each node below, the share of capacity that a row of each column takes if
      nothing is dropped, and what such a row is worth. So a parent knows exactly when there is nothing to shed, and by which
      limits: those that the tables in force were built with, not the declared ones.
    - How far and how finely a node must sample depends on other nodes: what can arrive, on those above; which rates are too low
      to matter, on the whole tree. A parent tells its children this *scope*, when the one they have is no longer right.
    - Streams that enter at a child are columns of its parent's table too, and the child reports their rates.
    - No entry is left out below a feasibility triangle: no node knows all facts that it would depend on.
    - Rates scaled down by one factor until nothing is overloaded are a candidate beside the entries: better just above the
      boundary, and there even if no entry is low enough. So there is always something to let in.
    - A decision is scaled down to what the node itself measured last, if that is not in its table yet.
    - Tables grow exponentially with the number of columns. A node whose table would be too large gets the *inequalities* of its
      children instead, and plans exactly; so does its parent, and so on to the root (``SubtreeProgram``).

    The score is at most epsilon below the best for the facts as measured, and no node is above its capacity. A cost or a
    selectivity that differs by less than its own error does not count as changed.

    Where it fails: the nodes must form a tree. Inequalities are as many as the operators below, so near the root of a large tree
    without tables a node has as much to solve as a coordinator.

    Parameters
    ----------
    network
        The network.
    node
        The node to manage.
    epsilon
        The relative error of the score that the tables may cause.
    max_entries
        Bounds the table; then ``epsilon`` no longer holds.
    survey
        What all nodes know of the declared network, if it is known already.

    Raises
    ------
    PenstockError
        If the nodes do not form a tree, the network has bandwidths or floors, or the node runs nothing.

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
        max_entries: int | None = None,
        survey: Survey | None = None,
    ) -> None:
        known = survey if survey is not None else Survey(network)
        network = known.network
        if node not in known.trees:
            what = "no operator runs on a node of cluster" if known.is_cluster(node) else "no operator runs on node"
            raise PenstockError(f"{what} {node!r}, so D-FIT has nothing to plan there: place one, or remove it")
        super().__init__(network, node)
        bounds, shares = known.bounds, ErrorShares.of(epsilon, known, node)
        self.parent = next(iter(bounds.parents[node]), None)
        self.children = bounds.children[node]
        self._facts = NodeFacts(known, node, shares, max_entries)
        if survey is None and not known.is_cluster(node):
            self._facts.make_builder()  # raises if the network lacks something
        self._entries = tuple(self._facts.part.inputs)
        self._inputs = frozenset(name for name in self._entries if name.partition("->")[0] in network.inputs)
        self._epsilon = epsilon
        self._child_tables = ChildTables(self.children)
        self._sender = TableSender(shares.table)
        self._program = SubtreeProgram(self.children)
        self._scopes = ScopeSender({child: known.declared_scope(child) for child in self.children})
        self._arcs_of = {
            child: tuple(name for name in self._facts.leaving if network.node_of(name.partition("->")[2]) == child)
            for child in self.children
        }
        self._is_told = False  # whether all children have a scope that is right
        self._latest: Measurements | None = None
        self._rates_below: dict[str, float] = {}  # at inputs of the nodes below
        self.rates: dict[str, float] = {}
        """Rows per second at its own inputs, as measured last."""
        self._sent_rates: dict[str, float] = {}
        self._has_greeted = False
        self._is_stale = True
        self.table: Table | None = None
        """The node's own table, once those of its children are here; ``None`` if it would be too large."""
        self.reach: Reach | None = None
        """What rows at each column do to this node and to all nodes below it."""
        self._index: DominanceIndex | None = None
        self.trouble: str | None = None
        """Why the last table could not be built."""
        self.tables_built = 0

    @property
    def peers(self) -> tuple[str, ...]:
        """The parent and the children."""
        return (*((self.parent,) if self.parent is not None else ()), *self.children)

    # -- what it knows -------------------------------------------------------------------------------------------------

    def learn(self, measurements: Measurements) -> None:
        """Learn from what was measured here; if it differs by more than its error, the table will be built again."""
        self._latest = measurements
        self.rates = {name: rate for name, rate in measurements.rates.items() if name in self._inputs}
        if self._facts.learn(measurements):
            self._note_change()

    def _note_change(self) -> None:
        """Build the table again the next time it is needed, and tell the children what can arrive."""
        self._is_stale, self._is_told = True, False
        self._program.note_change()

    def receive(self, message: Message) -> None:
        """Act on a child's table, change or rates, on a parent's scope, or on its request for the whole table."""
        try:
            self._receive(message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a message of kind {message.kind!r} makes no sense: {error!r}") from error

    def _receive(self, message: Message) -> None:
        sender, body = message.sender, message.body
        if message.kind == "resend" and sender == self.parent:  # it has just started, and what it told earlier is void
            self._sender.reset()
            self._program.forget_parent()
            self._sent_rates = {}
            if self._facts.reset_scope():
                self._note_change()
        elif message.kind == "hello" and sender in self.children:  # it has just started and has the declared scope
            self._scopes.forget(sender)
            self._program.forget_child(sender)
            self._is_told = False
        elif message.kind == "want" and sender == self.parent:
            self._program.is_wanted = bool(body["inequalities"])
        elif message.kind == "inequalities":
            self._program.receive(sender, body)
        elif message.kind == "scope" and sender == self.parent:
            if self._facts.use_scope(Scope.from_body(body)):
                self._note_change()
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
        if self._child_tables.missing:
            return
        if self._is_stale:
            self._is_stale = False
            self.reach = combine_reaches(self._facts.part, self._child_tables.reaches)
            if self.parent is None:
                self._update_scope(self.reach.least_score)
            self._build_table(self.reach)
        self._program.update(self._facts.part, is_needed=self.table is None)

    def _build_table(self, reach: Reach) -> None:
        """Build the table, or note why there is none."""
        self.table = self._index = None
        without = self._child_tables.without_table
        if without:
            self.trouble = f"node {without[0]!r} below has no table"
            return
        try:
            table = self._facts.build_table(self._child_tables.tables)
        except PenstockError as error:
            self.trouble = str(error)
            return
        self.trouble = None
        self.reach = reach.select(table.columns)
        self.table, self._index = table, DominanceIndex(table.points, table.scores)
        self.tables_built += 1

    def _update_scope(self, least_score: float) -> None:
        """At the root: find how low a score may matter, from the facts of all nodes."""
        scope = self._facts.scope
        if least_score > 0 and not Scope(scope.least_score).covers(Scope(least_score)):
            self._facts.use_scope(Scope(least_score).with_margin())
            self._is_told = False

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return what to let in at these rates, or what the node can do alone if tables are missing."""
        self.refresh()  # a table that is up to date already stays as it is
        if self.reach is None or self._child_tables.missing:
            return _decide_alone(self.network, self.node, self._latest, rates)
        return self._facts.fit_to_latest(self._choose(self.reach, {**self._rates_below, **rates}), rates)

    def _choose(self, reach: Reach, rates: Mapping[str, float]) -> Limits:
        """Return the exact plan if there is one, or else the better of an entry and of rates scaled down by one factor."""
        point = np.array([rates.get(name, 0.0) for name in reach.columns])
        if _greatest_load(reach, point) <= 1.0:
            return Limits(reason="not overloaded")
        limits = self._program.plan(rates) if self._program.has_plans else self._choose_entry(reach, point)
        limited = {
            name for name, is_free in zip(reach.columns, reach.is_free, strict=True) if rates.get(name, 0.0) > 0 and not is_free
        }
        flows = {name: limits.flows[name] for name in self._entries if name in limited}
        return Limits(flows, limits.keep, limits.reason)

    def _choose_entry(self, reach: Reach, point: NDArray[np.float64]) -> Limits:
        """Return the better of an entry and of rates scaled down by one factor, by column."""
        point = np.where(reach.worth > 0, point, 0.0)  # what is worth nothing goes first
        load = max(1.0, _greatest_load(reach, point))
        flows, keep, reason = np.where(reach.is_free, point, point / load), {}, "scaled by one factor"
        score = float(reach.worth @ flows)
        if len(reach.columns) > len(self._entries):  # nodes below come only within epsilon of this
            score *= 1.0 - self._epsilon
        row = None if self._index is None or load <= 1.0 else self._index.find((point * (1.0 + _TOLERANCE)).tolist())
        if row is not None and self.table is not None and self.table.scores[row] >= score:
            flows, reason = self.table.points[row], f"entry {row}"
            keep = {name: float(shares[row]) for name, shares in self.table.keeps.items()}
        return Limits(dict(zip(reach.columns, flows.tolist(), strict=True)), keep, reason)

    # -- what it sends -------------------------------------------------------------------------------------------------

    def take_messages(self) -> list[Outgoing]:
        """Return requests and scopes for the children, and for the parent rates and what has changed in the table."""
        messages: list[Outgoing] = []
        for child in self._child_tables.take_requests():
            self._scopes.forget(child)
            self._program.forget_child(child)
            self._is_told = False
            messages.append((child, "resend", {}))
        if not self._has_greeted and self.parent is not None:
            messages.append((self.parent, "hello", {}))
        self._has_greeted = True
        self.refresh()
        messages += self._take_scopes()
        messages += self._program.take_messages(self.parent)
        if self.parent is None or self.reach is None:
            return messages
        rates = self.rates | self._rates_below
        if rates != self._sent_rates:
            messages.append((self.parent, "rates", {"rates": rates}))
            self._sent_rates = rates
        update = self._sender.take_update(self.table, self.reach)
        if update is not None:
            messages.append((self.parent, "table", update))
        return messages

    def _take_scopes(self) -> list[Outgoing]:
        """Return the scopes of the children whose scope is no longer right."""
        messages: list[Outgoing] = []
        for child, arcs in () if self._is_told else self._arcs_of.items():
            scope = self._scopes.take_news(child, self._facts.scope_of(arcs))
            if scope is not None:
                messages.append((child, "scope", scope.to_body()))
        self._is_told = True
        return messages

    def note_replaced(self, to: str, kind: str) -> None:
        """Send the whole table next if the parent lacks a change that a later one has replaced."""
        if to == self.parent and kind == "table":
            self._sender.note_replaced()

    def status(self) -> dict[str, Any]:
        """Return the size of the table, and the children whose tables are missing."""
        return {
            "entries": None if self.table is None else len(self.table),
            "tables_built": self.tables_built,
            "plans": "exact" if self._program.has_plans else "table" if self.table is not None else "scaled",
            "trouble": self._program.trouble or self.trouble,
            "waiting_for": self._child_tables.missing,
        }


def _decide_alone(network: Network, node: str, latest: Measurements | None, rates: Mapping[str, float]) -> Limits:
    """Return what a node can do for itself."""
    local = Local(network, node)
    if latest is not None:
        local.learn(latest)
    return local.decide(rates)


def _greatest_load(reach: Reach, point: NDArray[np.float64]) -> float:
    """Return the load of the node that is loaded most if nothing is dropped, but for rounding."""
    load = float(np.max(reach.bounds @ point, initial=0.0))
    return 1.0 if 1.0 < load <= 1.0 + _TOLERANCE else load
