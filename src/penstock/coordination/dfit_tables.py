"""The tables that D-FIT's nodes send to their parents: what a node has of its children, and what its parent has of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.flows import Flows
from penstock.planning.table import Delta, Table, common_rows, delta_between

__all__ = ["ChildTables", "TableSender", "combine_bounds"]

_MOST_CHANGED_ROWS = 1000

Bounds = NDArray[np.float64]
"""By node and column: the share of the node's capacity that one row per second takes if nothing is dropped."""


class ChildTables:
    """The tables of a node's children as it has received them, with the bounds that came with them."""

    def __init__(self, children: Sequence[str]) -> None:
        self._children = tuple(children)
        self._tables: dict[str, Table] = {}
        self._bounds: dict[str, Bounds] = {}
        self._versions: dict[str, int] = {}
        self._to_request = set(children)

    @property
    def missing(self) -> list[str]:
        """The children whose table has not arrived."""
        return sorted(set(self._children) - set(self._tables))

    @property
    def tables(self) -> list[Table]:
        """The tables that have arrived, in the order of the children."""
        return [self._tables[child] for child in self._children if child in self._tables]

    @property
    def bounds(self) -> list[tuple[Table, Bounds]]:
        """The tables that have arrived, each with its bounds."""
        return [(table, self._bounds[table.node]) for table in self.tables]

    def update(self, child: str, body: Mapping[str, Any]) -> bool:
        """Take a child's table or a change of it.

        Returns
        -------
        bool
            Whether it was of use: a change of a version that is not here is not, and the whole table will be requested.

        """
        if child not in self._children:
            raise PenstockError(f"a table from {child!r}, which is not a child")
        if "base" in body:
            known = self._tables.get(child)
            if known is None or int(body["base"]) != self._versions.get(child):
                self._to_request.add(child)
                return False
            table = Delta.from_message(body["table"]).apply(known)
        else:
            table = Table.from_message(body["table"])
            if table.node != child:
                raise PenstockError(f"{child!r} has sent the table of node {table.node!r}")
        version = int(body["version"])
        self._bounds[child] = np.array(body["bounds"], dtype=np.float64).reshape(-1, len(table.columns))
        self._tables[child], self._versions[child] = table, version
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
        self._known_bounds: Bounds | None = None

    def reset(self) -> None:
        """Assume that the parent has nothing, so that the next update is the whole table."""
        self._source = self._known = None

    def take_update(self, table: Table, bounds: Bounds) -> Mapping[str, Any] | None:
        """Return what to send so that the parent has this table, and consider it sent; ``None`` if nothing is worth sending."""
        if table is self._source:
            return None
        self._source = table
        delta = self._find_delta(table)
        if delta is not None and not delta and self._has_bounds(bounds):
            return None
        self._version += 1
        self._known_bounds = bounds
        update: dict[str, Any] = {"version": self._version, "bounds": bounds.tolist()}
        if self._known is not None and delta is not None and len(delta.scores) + len(delta.removed) < len(table):
            self._known = delta.apply(self._known)
            return {**update, "base": self._version - 1, "table": delta.to_message()}
        self._known = table
        return {**update, "table": table.to_message()}

    def _find_delta(self, table: Table) -> Delta | None:
        """Return the least change that will do, or ``None`` if the whole table is quicker to send than a change is to find."""
        known = self._known
        if known is None or known.columns != table.columns:
            return None
        if np.count_nonzero(~common_rows(known, table)[1]) > _MOST_CHANGED_ROWS:
            return None
        return delta_between(known, table, self._allowed)

    def _has_bounds(self, bounds: Bounds) -> bool:
        known = self._known_bounds
        return known is not None and known.shape == bounds.shape and np.allclose(known, bounds, rtol=1e-3)


def combine_bounds(part: Network, capacity: float, columns: Sequence[str], children: Sequence[tuple[Table, Bounds]]) -> Bounds:
    """Return the bounds of a node and of all nodes below it.

    Parameters
    ----------
    part
        What the node runs.
    capacity
        The CPU seconds per second that it has.
    columns
        The columns of its table.
    children
        The tables of its children, each with its bounds.

    """
    positions = {name: position for position, name in enumerate(columns)}
    flows = Flows(part)
    entries = [positions[name] for name in flows.inputs]
    rows = np.zeros((1, len(columns)))
    rows[0, entries] = [float((flows.full_loads @ unit)[0]) / capacity for unit in np.eye(len(entries))]
    through = np.array([flows.through @ flows.propagate(unit, np.ones(len(flows.locations))) for unit in np.eye(len(entries))])
    leaving = {name: position for position, name in enumerate(flows.outputs)}
    for table, bounds in children:
        mapped = np.zeros((len(bounds), len(columns)))
        for column, name in enumerate(table.columns):
            if name in leaving:
                mapped[:, entries] += bounds[:, [column]] * through[:, leaving[name]]
            else:
                mapped[:, positions[name]] += bounds[:, column]
        rows = np.concatenate([rows, mapped])
    return _remove_implied(rows)


def _remove_implied(rows: Bounds) -> Bounds:
    """Return the rows without those that another row implies by being nowhere less."""
    rows = np.unique(rows, axis=0)
    essential = [index for index, row in enumerate(rows) if not np.any(np.all(np.delete(rows, index, axis=0) >= row, axis=1))]
    return rows[essential]
