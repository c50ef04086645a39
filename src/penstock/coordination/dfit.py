"""D-FIT: nodes that plan among themselves, each for itself and all below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, declared_measurements, entries_of, with_measurements
from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds
from penstock.planning.dominance import DominanceIndex
from penstock.planning.fit_node import FitNode, geometric_spread
from penstock.planning.flows import Flows
from penstock.planning.spread import Anchored
from penstock.planning.table import Delta, Table, common_rows, delta_between

__all__ = ["DFit"]

_TOLERANCE = 1e-9
_TRIANGLE = 0.7
_MUCH = 0.2
_MOST_CHANGED = 1000


class DFit(Manager):
    """One node of D-FIT (paper 000, sections 6 and 7).

    It makes its table of feasible inputs from its own statistics and its children's tables, sends it to its parent, and sheds
    by it: rates that overload it or a node below are scaled down to the entry with the greatest score. After a change of more
    than ``significant`` it makes its table again and sends the parent what changed, if that matters by more than ``allowed``. A
    parent that misses a change asks for the whole.

    Which rates are of any interest to a node depends on the nodes above it (the feasibility triangle), so a node tells its
    children what it has measured, when that has changed by a good part. With its table a node sends its *bounds*: for each node
    below, the share of its capacity that a tuple at each column takes if nothing is dropped. So a parent knows exactly when
    there is nothing to shed, which a table of samples near the boundary does not say. Streams that enter below, at a child, are
    columns of its parent's table too; the child reports their rates.

    Where it fails: nodes must be trees, and tables grow exponentially with the number of columns.
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
        why_not = Coefficients(network).not_a_tree if survey is None else None
        if why_not is not None:
            raise PenstockError(f"D-FIT needs a tree of nodes, and {why_not}: run a coordinator instead (--manager exact)")
        declared = survey if survey is not None else RateBounds(network)
        geometric = geometric_spread(declared, epsilon)
        self._spread = Anchored(geometric.step, geometric.least, geometric.total)
        self.parent = next(iter(declared.parents[node]), None)
        self.children = declared.children[node]
        self._max_entries, self._allowed, self._significant, self._slack = max_entries, allowed, significant, slack
        self._entries = entries_of(network, node)
        self._fed = frozenset(name for name in self._entries if name.partition("->")[0] not in network.inputs)
        self._local = Local(network, node)
        self._step = self._made(declared)
        self._used: Measurements | None = None
        self._above: dict[str, Measurements] = {}  # of the nodes above, as measured
        self._passed_on: dict[str, Measurements] = {}
        self._tables: dict[str, Table] = {}
        self._bounds: dict[str, NDArray[np.float64]] = {}
        self._versions: dict[str, int] = {}
        self._below: dict[str, float] = {}  # rates at entries below this node
        self.table: Table | None = None
        """The node's own table, once those of its children are there."""
        self.bounds: NDArray[np.float64] = np.zeros((0, 0))
        self._index: DominanceIndex | None = None
        self._sent: Table | None = None
        self._sent_bounds: NDArray[np.float64] | None = None
        self._version = 0
        self._again: set[str] = set(self.children)
        self._rates: dict[str, float] | None = None
        self._stale = True
        self._greeted = False
        self.trouble: str | None = None
        """Why the last table could not be made."""
        self.made = 0
        """How often the table was made."""

    def _made(self, survey: RateBounds) -> FitNode:
        self._part = survey.partitions[self.node].part
        self._capacity = self._part.nodes[self.node].capacity
        return FitNode(survey, self.node, self._spread, step=self._spread.step, max_entries=self._max_entries, triangle=_TRIANGLE)

    @property
    def peers(self) -> tuple[str, ...]:
        """The parent and the children."""
        return (*((self.parent,) if self.parent is not None else ()), *self.children)

    # -- what it knows -------------------------------------------------------------------------------------------------

    def learn(self, measurements: Measurements) -> None:
        """Take in what was measured here; make the table again if that matters."""
        self._local.learn(measurements)
        if self._used is None or _matters(self._used, measurements, self._significant):
            self._used = measurements
            self._make_again()

    def _make_again(self) -> None:
        known = self._above if self._used is None else {**self._above, self.node: self._used}
        self._step = self._made(RateBounds(with_measurements(self.network, known)))
        self._stale = True

    def hear(self, message: Message) -> None:
        """Take in a child's table or change, or a parent's wish to have all of it again."""
        try:
            self._hear(message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a {message.kind} that makes no sense: {error!r}") from error

    def _hear(self, message: Message) -> None:
        child, body = message.sender, message.body
        if message.kind == "again" and child == self.parent:
            self._sent = None
        elif message.kind == "hello" and child in self.children:  # it has just started, and knows nothing of those above
            self._passed_on = {}
        elif message.kind == "above" and child == self.parent:
            self._above |= {measurements.node: measurements for measurements in map(Measurements.from_body, body["measurements"])}
            self._make_again()
        elif message.kind in ("table", "rates") and child not in self.children:
            raise PenstockError(f"a {message.kind} from {child!r}, which is no child")
        elif message.kind == "table" and "base" in body:  # only what changed
            known = self._tables.get(child)
            if known is None or int(body["base"]) != self._versions.get(child):
                self._again.add(child)
                return
            self._take(child, Delta.from_message(body["table"]).apply(known), int(body["version"]), body["bounds"])
        elif message.kind == "table":
            table = Table.from_message(body["table"])
            if table.node != child:
                raise PenstockError(f"the table of node {table.node!r}, which is another")
            self._take(child, table, int(body["version"]), body["bounds"])
        elif message.kind == "rates":
            self._below |= {str(name): float(rate) for name, rate in body["rates"].items()}
        elif message.kind != "alive":
            raise PenstockError(f"a message of kind {message.kind!r}, which D-FIT doesn't know")

    def _take(self, child: str, table: Table, version: int, bounds: Any) -> None:
        self._bounds[child] = np.array(bounds, dtype=np.float64).reshape(-1, len(table.columns))
        self._tables[child] = table
        self._versions[child] = version
        self._again.discard(child)
        self._stale = True

    # -- the table -----------------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Make the table again if something changed and all children's tables are here; whether it was made."""
        if not self._stale or set(self._tables) != set(self.children):
            return False
        self._stale = False
        try:
            self.table = self._step.table([self._tables[child] for child in self.children])
        except PenstockError as error:  # the children's tables are for another network than this has become: theirs will change
            self.trouble = str(error)
            return False
        self.trouble = None
        self.bounds = self._all_bounds(self.table.columns)
        self._index = DominanceIndex(self.table.points, self.table.scores)
        self.made += 1
        return True

    def _all_bounds(self, columns: tuple[str, ...]) -> NDArray[np.float64]:
        """Shares of capacity by column, of this node and of all below it; those that others imply are left out."""
        place = {name: number for number, name in enumerate(columns)}
        flows = Flows(self._part)
        entries = [place[name] for name in flows.inputs]
        rows = np.zeros((1, len(columns)))
        rows[0, entries] = [float((flows.full_loads @ unit)[0]) / self._capacity for unit in np.eye(len(entries))]
        keep_all = np.ones(len(flows.locations))
        through = np.array([flows.through @ flows.propagate(unit, keep_all) for unit in np.eye(len(entries))])
        leaving = {name: number for number, name in enumerate(flows.outputs)}
        for child, bounds in self._bounds.items():
            mapped = np.zeros((len(bounds), len(columns)))
            for column, name in enumerate(self._tables[child].columns):
                if name in leaving:
                    mapped[:, entries] += bounds[:, [column]] * through[:, leaving[name]]
                else:
                    mapped[:, place[name]] += bounds[:, column]
            rows = np.concatenate([rows, mapped])
        return _essential(rows)

    # -- what it does --------------------------------------------------------------------------------------------------

    def decide(self, demand: Mapping[str, float]) -> Limits:
        """Return the entry of the table for these rates; without a table, what the node can do alone."""
        self._rates = {name: rate for name, rate in demand.items() if name not in self._fed} | self._below
        self.refresh()
        if self.table is None or self._index is None:
            return self._local.decide(demand)
        # What the parent lets through is right already, but comes in bursts.
        eased = {name: self._slack if name in self._fed else 1.0 for name in self.table.columns}
        rates = np.array([{**self._below, **demand}.get(name, 0.0) / eased[name] for name in self.table.columns])
        if not np.any(self.bounds @ rates > 1.0 + _TOLERANCE):
            return Limits(why="not overloaded")
        row = self._index.find((rates * (1.0 + _TOLERANCE)).tolist())
        point = np.zeros(len(rates)) if row is None else self.table.points[row]
        flows = {name: float(rate) * eased[name] for name, rate in zip(self.table.columns, point, strict=True)}
        keep = {} if row is None else {name: float(values[row]) for name, values in self.table.keeps.items()}
        return Limits({name: flows[name] for name in self._entries if name in flows}, keep, f"entry {row}")

    def say(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return the table for the parent, or what changed in it, if anything; and wishes for tables that were missed."""
        found: list[tuple[str, str, Mapping[str, Any]]] = [(child, "again", {}) for child in sorted(self._again)]
        if not self._greeted and self.parent is not None:
            found.append((self.parent, "hello", {}))
        self._greeted = True
        self._again.clear()
        found += [(child, "above", body) for body in self._for_children() for child in self.children]
        self.refresh()
        if self.parent is None or self.table is None:
            return found
        if self._rates:
            found.append((self.parent, "rates", {"rates": self._rates}))
            self._rates = None
        if self._sent is self.table:
            return found
        news = self._news(self.table)
        if news is not None:
            found.append((self.parent, "table", news))
        return found

    def _for_children(self) -> list[Mapping[str, Any]]:
        """What children must know of the nodes above them: how much can come at all. Said when it has changed by a good part."""
        known = self._above if self._used is None else {**self._above, self.node: self._used}
        changed = [
            name
            for name, measurements in known.items()
            if _matters(self._passed_on.get(name) or declared_measurements(self.network, name), measurements, _MUCH)
        ]
        if not changed:
            return []
        self._passed_on = dict(known)
        return [{"measurements": [measurements.to_body() for measurements in known.values()]}]

    def _news(self, table: Table) -> Mapping[str, Any] | None:
        bounds = self.bounds.tolist()
        if self._sent is not None and self._sent.columns == table.columns:
            delta = self._change(self._sent, table)
            known = self._sent_bounds
            same = known is not None and known.shape == self.bounds.shape and np.allclose(known, self.bounds, rtol=1e-3)
            if delta is not None and not delta and same:
                return None
            if delta is not None and len(delta.scores) + len(delta.removed) < len(table):
                self._version += 1
                self._sent, self._sent_bounds = delta.apply(self._sent), self.bounds
                base = {"version": self._version, "base": self._version - 1}
                return {**base, "table": delta.to_message(), "bounds": bounds}
        self._version += 1
        self._sent, self._sent_bounds = table, self.bounds
        return {"version": self._version, "table": table.to_message(), "bounds": bounds}

    def _change(self, known: Table, new: Table) -> Delta | None:
        """The least change that will do, or ``None`` if so much is different that looking for it takes longer than it spares."""
        if np.count_nonzero(~common_rows(known, new)[1]) > _MOST_CHANGED:
            return None
        return delta_between(known, new, self._allowed)

    def unheard(self, to: str, kind: str) -> None:
        """A change that the parent had not taken was replaced by a later one, so the parent lacks it: send the whole."""
        if to == self.parent and kind == "table":
            self._sent = None

    def status(self) -> dict[str, Any]:
        """Return the size of the table, and whose it lacks."""
        return {
            "entries": None if self.table is None else len(self.table),
            "tables_made": self.made,
            "trouble": self.trouble,
            "waiting_for": sorted(set(self.children) - set(self._tables)),
        }


def _matters(before: Measurements, now: Measurements, tolerance: float) -> bool:
    """Whether something changed by more than the tolerance, and by more than it is unsure."""
    if abs(before.capacity - now.capacity) > tolerance * before.capacity:
        return True
    for name, value in now.operators.items():
        then = before.operators.get(name)
        if then is None:
            return True
        if abs(then.cost - value.cost) > max(tolerance * then.cost, value.cost_error):
            return True
        if abs(then.selectivity - value.selectivity) > max(tolerance * then.selectivity, value.selectivity_error):
            return True
    return False


def _essential(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows that no other row implies by being nowhere less."""
    rows = np.unique(rows, axis=0)
    keeps = []
    for place, row in enumerate(rows):
        others = np.delete(rows, place, axis=0)
        if not np.any(np.all(others >= row, axis=1)):
            keeps.append(place)
    return rows[keeps]
