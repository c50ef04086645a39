"""The tables that D-FIT's nodes send to their parents: what a node has of its children, and what its parent has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.flows import Flows
from penstock.planning.table import Delta, Table, common_rows, delta_between

__all__ = ["ChildTables", "Reach", "TableSender", "combine_reaches"]

_MOST_CHANGED_ROWS = 1000
_MOST_CHANGED_SHARE = 0.5
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """What one row per second at each entry does to a node and to all nodes below it if nothing is dropped.

    It has the same facts as the table that it is sent with, so all that depends on facts of nodes below, such as the greatest
    rate that all of them can process, is derived from it and never from declared values.
    """

    columns: tuple[str, ...]
    bounds: NDArray[np.float64]
    """By node and column: the share of the node's capacity that the row takes."""
    worth: NDArray[np.float64]
    """By column: the score that comes of the row."""

    @property
    def limits(self) -> NDArray[np.float64]:
        """By column: the greatest rate that all nodes can process if all other rates are 0."""
        greatest = self.bounds.max(axis=0, initial=0.0)
        limits: NDArray[np.float64] = np.divide(1.0, greatest, out=np.full(greatest.size, np.inf), where=greatest > 0)
        return limits

    @property
    def is_free(self) -> NDArray[np.bool_]:
        """By column: whether a row costs nothing on any node, so that nothing is gained by dropping it."""
        is_free: NDArray[np.bool_] = ~np.any(self.bounds > 0, axis=0)
        return is_free

    @property
    def least_score(self) -> float:
        """A lower bound of the best score at rates that overload a node; 0 if no rates do.

        Scale such rates down by one factor until no node is overloaded. Some node is then exactly full, so the score is at least
        the smallest ratio of worth to load of a column there. Columns of no worth do not count: they are dropped first.
        """
        scores = (self.worth * self.limits)[(self.worth > 0) & np.isfinite(self.limits)]
        return float(scores.min(initial=np.inf)) if scores.size else 0.0

    def select(self, columns: Sequence[str]) -> Reach:
        """Return the same with the columns in another order."""
        order = [self.columns.index(name) for name in columns]
        return Reach(tuple(columns), self.bounds[:, order], self.worth[order])

    def is_close_to(self, other: Reach) -> bool:
        """Return whether both are equal but for rounding."""
        return (
            self.columns == other.columns
            and self.bounds.shape == other.bounds.shape
            and np.allclose(self.bounds, other.bounds, rtol=_ROUNDING, atol=0.0)
            and np.allclose(self.worth, other.worth, rtol=_ROUNDING, atol=0.0)
        )

    def to_body(self) -> dict[str, Any]:
        """Return the part of a message: plain JSON values."""
        return {"bounds": self.bounds.tolist(), "worth": self.worth.tolist()}

    @classmethod
    def from_body(cls, columns: tuple[str, ...], body: Mapping[str, Any]) -> Reach:
        """Read the part of a message.

        Raises
        ------
        PenstockError
            If a number is negative or not finite, or there are too few or too many.

        """
        bounds = np.array(body["bounds"], dtype=np.float64).reshape(-1, len(columns))
        worth = np.array(body["worth"], dtype=np.float64)
        numbers = np.concatenate([bounds.reshape(-1), worth])
        if worth.size != len(columns) or not (np.all(np.isfinite(numbers)) and np.all(numbers >= 0)):
            raise PenstockError("bounds and worth must be finite and not negative, one for each column of the table")
        return cls(columns, bounds, worth)


class ChildTables:
    """The tables of a node's children as it has received them, with the reach that came with them.

    A child whose table would be too large sends only its reach.
    """

    def __init__(self, children: Sequence[str]) -> None:
        self._children = tuple(children)
        self._tables: dict[str, Table] = {}
        self._reaches: dict[str, Reach] = {}
        self._versions: dict[str, int] = {}
        self._to_request = set(children)

    @property
    def missing(self) -> list[str]:
        """The children from which nothing has arrived."""
        return sorted(set(self._children) - set(self._reaches))

    @property
    def without_table(self) -> list[str]:
        """The children that have no table."""
        return sorted(set(self._children) - set(self._tables))

    @property
    def tables(self) -> list[Table]:
        """The tables that have arrived, in the order of the children."""
        return [self._tables[child] for child in self._children if child in self._tables]

    @property
    def reaches(self) -> list[Reach]:
        """The reaches of the children, in their order."""
        return [self._reaches[child] for child in self._children if child in self._reaches]

    def update(self, child: str, body: Mapping[str, Any]) -> bool:
        """Take a child's table or a change of it.

        Returns
        -------
        bool
            Whether it was of use: a change of a version that is not here is not, and the whole table will be requested.

        """
        if child not in self._children:
            raise PenstockError(f"a table from {child!r}, which is not a child")
        table = None
        if "base" in body:
            known = self._tables.get(child)
            if known is None or int(body["base"]) != self._versions.get(child):
                self._to_request.add(child)
                return False
            table = Delta.from_message(body["table"]).apply(known)
        elif body["table"] is not None:
            table = Table.from_message(body["table"])
            if table.node != child:
                raise PenstockError(f"{child!r} has sent the table of node {table.node!r}")
        columns = table.columns if table is not None else tuple(str(name) for name in body["columns"])
        reach, version = Reach.from_body(columns, body), int(body["version"])
        self._tables.pop(child, None)
        if table is not None:
            self._tables[child] = table
        self._reaches[child], self._versions[child] = reach, version
        self._to_request.discard(child)
        return True

    def take_requests(self) -> list[str]:
        """Return the children to ask for their whole table, each once."""
        requests = sorted(self._to_request)
        self._to_request.clear()
        return requests


class TableSender:
    """Knows what the parent has of this node's table, and finds the least that brings it up to date.

    Parameters
    ----------
    allowed
        The relative difference of scores that needs no message.

    """

    def __init__(self, allowed: float) -> None:
        self._allowed = allowed
        self._version = 0
        self._source: Table | None = None
        self._known: Table | None = None
        self._known_reach: Reach | None = None
        self._is_whole = False  # whether the last update was the whole table

    def reset(self) -> None:
        """Assume that the parent has nothing, so that the next update is the whole table."""
        self._source = self._known = self._known_reach = None

    def note_replaced(self) -> None:
        """Note that the parent will not read the update before the last one.

        It lacks nothing if the last one was the whole table: to send that again, and again until it is read, would help nobody.
        """
        if not self._is_whole:
            self.reset()

    def take_update(self, table: Table | None, reach: Reach) -> Mapping[str, Any] | None:
        """Return what to send so that the parent has this table, and consider it sent; ``None`` if nothing is worth sending.

        Without a table, only the reach is sent.
        """
        if table is None:
            return self._take_reach(reach)
        if table is self._source:
            return None
        self._source = table
        delta = self._find_delta(table)
        if delta is not None and not delta and self._known_reach is not None and self._known_reach.is_close_to(reach):
            return None
        self._version += 1
        self._known_reach = reach
        update: dict[str, Any] = {"version": self._version, **reach.to_body()}
        if self._known is not None and delta is not None and len(delta.scores) + len(delta.removed) < len(table):
            self._known, self._is_whole = delta.apply(self._known), False
            return {**update, "base": self._version - 1, "table": delta.to_message()}
        self._known, self._is_whole = table, True
        return {**update, "table": table.to_message()}

    def _take_reach(self, reach: Reach) -> Mapping[str, Any] | None:
        """Return the update of a node without a table."""
        known, had_table = self._known_reach, self._known is not None
        if not had_table and known is not None and (reach is known or known.is_close_to(reach)):
            return None
        self._version += 1
        self._source, self._known, self._known_reach, self._is_whole = None, None, reach, True
        return {"version": self._version, "columns": list(reach.columns), **reach.to_body(), "table": None}

    def _find_delta(self, table: Table) -> Delta | None:
        """Return the least change that will do, or ``None`` if the whole table is quicker to send than a change is to find."""
        known = self._known
        if known is None or known.columns != table.columns:
            return None
        common = common_rows(known, table)
        changed = np.count_nonzero(~common[1])
        if changed > _MOST_CHANGED_ROWS or changed > _MOST_CHANGED_SHARE * len(table):
            return None
        return delta_between(known, table, self._allowed, common)


def combine_reaches(part: Network, children: Sequence[Reach]) -> Reach:
    """Return the reach of a node, or of several that plan as one.

    Parameters
    ----------
    part
        What the node runs, or the nodes.
    children
        The reaches of its children.

    """
    flows = Flows(part)
    leaving = {name: position for position, name in enumerate(flows.outputs)}
    below = [name for reach in children for name in reach.columns if name not in leaving]
    columns = (*flows.inputs, *below)
    positions = {name: position for position, name in enumerate(columns)}
    own, full = len(flows.inputs), np.ones(len(flows.locations))
    through = np.array([flows.through @ flows.propagate(unit, full) for unit in np.eye(own)]).reshape(own, len(leaving))
    bounds = np.zeros((len(flows.nodes), len(columns)))
    for column, unit in enumerate(np.eye(own)):
        bounds[:, column] = (flows.full_loads @ unit) / flows.capacity
    to_children = {name for reach in children for name in reach.columns}
    is_final = np.array([name not in to_children for name in flows.outputs], dtype=bool)
    worth = np.zeros(len(columns))
    worth[:own] = through[:, is_final] @ flows.weights[is_final]
    for reach in children:
        mapped = np.zeros((len(reach.bounds), len(columns)))
        for column, name in enumerate(reach.columns):
            if name in leaving:
                mapped[:, :own] += reach.bounds[:, [column]] * through[:, leaving[name]]
                worth[:own] += reach.worth[column] * through[:, leaving[name]]
            else:
                mapped[:, positions[name]] += reach.bounds[:, column]
                worth[positions[name]] += reach.worth[column]
        bounds = np.concatenate([bounds, mapped])
    return Reach(columns, _remove_implied(bounds), worth)


def _remove_implied(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows without those that another row implies by being nowhere less."""
    rows = np.unique(rows, axis=0)
    essential = [index for index, row in enumerate(rows) if not np.any(np.all(np.delete(rows, index, axis=0) >= row, axis=1))]
    return rows[essential]
