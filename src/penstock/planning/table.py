"""Feasible Input Tables, what nodes send each other, and how little of it is enough after a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.dominance import DominanceIndex
from penstock.planning.flows import Vector

__all__ = ["Delta", "Table", "common_rows", "delta_between", "entries_to_send"]

_SCHEMA = 1
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Paper 000, section 6.1: rates that a node and all below it can take, with the score they bring.

    ``keeps`` is the complementary local plan of each entry, by split arc, and ``picks`` the entry of each child's table that it
    rests on. Both stay on the node; a parent gets columns, points and scores.
    """

    node: str
    columns: tuple[str, ...]
    points: NDArray[np.float64]
    scores: Vector
    keeps: Mapping[str, Vector] = field(default_factory=dict)
    picks: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    generated: int = 0
    """How many entries there were before those that nobody would choose were left out."""

    def __len__(self) -> int:
        return len(self.scores)

    def chosen(self, rows: NDArray[np.int64]) -> Table:
        """The same table with some of its rows."""
        return Table(
            self.node,
            self.columns,
            self.points[rows],
            self.scores[rows],
            {name: values[rows] for name, values in self.keeps.items()},
            {name: values[rows] for name, values in self.picks.items()},
            self.generated,
        )

    def to_message(self) -> dict[str, Any]:
        """Return what a node sends to its parent, as plain JSON values."""
        return {
            "schema": _SCHEMA,
            "node": self.node,
            "columns": list(self.columns),
            "points": self.points.tolist(),
            "scores": self.scores.tolist(),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Table:
        """Take what a child has sent.

        >>> table = Table("B", ("i",), np.array([[0.5]]), np.array([1.0]))
        >>> Table.from_message(table.to_message()).points
        array([[0.5]])
        """
        try:
            if message["schema"] != _SCHEMA:
                raise PenstockError(f"a table of schema {message['schema']!r}, this is schema {_SCHEMA}")
            columns = tuple(str(name) for name in message["columns"])
            scores = np.array(message["scores"], dtype=np.float64)
            points = np.array(message["points"], dtype=np.float64).reshape(scores.size, len(columns))
            node = str(message["node"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"not a table of feasible inputs: {error!r}") from error
        if not (np.all(np.isfinite(points)) and np.all(points >= 0) and np.all(np.isfinite(scores))):
            raise PenstockError(f"table of node {node!r}: rates and scores must be finite, rates not negative")
        return cls(node, columns, points, scores, generated=scores.size)


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What a parent must change in a child's table: rows to forget, by number, and entries to add."""

    node: str
    removed: tuple[int, ...]
    points: NDArray[np.float64]
    scores: Vector

    def __bool__(self) -> bool:
        return bool(self.removed) or bool(self.scores.size)

    def applied(self, table: Table) -> Table:
        """The parent's table after the change."""
        if self.node != table.node or (self.scores.size and self.points.shape[1] != len(table.columns)):
            raise PenstockError(f"a change of node {self.node!r} does not fit the table of node {table.node!r}")
        if self.removed and max(self.removed) >= len(table):
            raise PenstockError(f"a change of node {self.node!r} removes row {max(self.removed)} of a table of {len(table)} rows")
        left = np.setdiff1d(np.arange(len(table)), np.array(self.removed, dtype=np.int64))
        points = np.concatenate([table.points[left], self.points.reshape(-1, len(table.columns))])
        scores = np.concatenate([table.scores[left], self.scores])
        return Table(table.node, table.columns, points, scores, generated=scores.size)

    def to_message(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "schema": _SCHEMA,
            "node": self.node,
            "removed": list(self.removed),
            "points": self.points.tolist(),
            "scores": self.scores.tolist(),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Delta:
        """Take what a child has sent."""
        try:
            if message["schema"] != _SCHEMA:
                raise PenstockError(f"a change of schema {message['schema']!r}, this is schema {_SCHEMA}")
            removed = tuple(int(row) for row in message["removed"])
            scores = np.array(message["scores"], dtype=np.float64)
            points = np.array(message["points"], dtype=np.float64).reshape(scores.size, -1 if scores.size else 0)
            node = str(message["node"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"not a change of a table: {error!r}") from error
        if any(row < 0 for row in removed) or not (
            np.all(np.isfinite(points)) and np.all(points >= 0) and np.all(np.isfinite(scores))
        ):
            raise PenstockError(
                f"a change of node {node!r}: rows, rates and scores must be finite, and rows and rates not negative"
            )
        return cls(node, removed, points, scores)


def delta_between(known: Table, new: Table, allowed: float = 0.0) -> Delta:
    """What to send to a parent that knows one table so that it does as well as with the new one, within ``allowed``.

    ``allowed`` is a relative difference of scores. A row that the parent knows may stay if its rates are feasible still, because
    some new entry is nowhere below them, and if it does not claim too high a score. Then the fewest new entries are added (by
    greedy covering) such that for each new entry there is one nowhere above it with nearly its score.

    >>> table = Table("B", ("i",), np.array([[1.0], [0.5]]), np.array([1.0, 0.5]))
    >>> bool(delta_between(table, table))
    False
    """
    if known.columns != new.columns:
        raise PenstockError(
            f"table of node {new.node!r}: its columns changed from {known.columns} to {new.columns}: send it whole"
        )
    if not 0 <= allowed < 1:
        raise PenstockError(f"the allowed difference must lie in [0, 1), got {allowed!r}")
    # Of what is allowed, half for rows that claim too much, and what that leaves for entries that are not sent.
    too_much = allowed / 2.0
    in_known, in_new = common_rows(known, new)
    stays = in_known.copy()
    others = np.flatnonzero(~in_known)
    stays[others] = _still_right(known.chosen(others), new, too_much)
    open_rows = np.flatnonzero(~in_new)  # what is in both tables covers itself
    added = open_rows[
        _cover(known.points[stays], known.scores[stays], new.chosen(open_rows), 1.0 - (1.0 - allowed) * (1.0 + too_much))
    ]
    return Delta(new.node, tuple(np.flatnonzero(~stays).tolist()), new.points[added], new.scores[added])


def common_rows(known: Table, new: Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows of two tables are in both, to the last digit."""
    first = np.column_stack([known.points, known.scores])
    second = np.column_stack([new.points, new.scores])
    rows = {row.tobytes() for row in first} & {row.tobytes() for row in second}
    return np.array([row.tobytes() in rows for row in first], dtype=bool), np.array(
        [row.tobytes() in rows for row in second], dtype=bool
    )


def entries_to_send(known: Table, new: Table, allowed: float) -> float:
    """The share of the new entries that must be sent (figures 15b and 15c of paper 000)."""
    return len(delta_between(known, new, allowed).scores) / max(1, len(new))


def _still_right(known: Table, new: Table, allowed: float) -> NDArray[np.bool_]:
    """Which rows of the parent's table are feasible still, with a score that is near enough."""
    index = DominanceIndex(new.points, new.scores)
    # A point is feasible if some entry is nowhere below it: the same question with all signs turned.
    above = DominanceIndex(-new.points, new.scores)
    right = np.zeros(len(known), dtype=bool)
    for row, (point, score) in enumerate(zip(known.points, known.scores, strict=True)):
        slack = point * (1.0 + _TOLERANCE)
        best = index.find(slack.tolist())
        if best is None or above.find((-point * (1.0 - _TOLERANCE)).tolist()) is None:
            continue
        right[row] = score <= new.scores[best] * (1.0 + allowed + _TOLERANCE)
    return right


def _cover(points: NDArray[np.float64], scores: Vector, new: Table, allowed: float) -> NDArray[np.int64]:
    """New entries that, with the rows that stay, cover all new entries."""
    wanted = new.scores * (1.0 - allowed) * (1.0 - _TOLERANCE)
    open_rows = np.ones(len(new), dtype=bool)
    for point, score in zip(points, scores, strict=True):
        open_rows &= ~(np.all(point <= new.points * (1.0 + _TOLERANCE), axis=1) & (score >= wanted))
    left = np.flatnonzero(open_rows)
    if not left.size:
        return left
    covers = np.ones((left.size, left.size), dtype=bool)
    for axis in range(new.points.shape[1]):
        column = new.points[left, axis]
        covers &= column[:, None] <= column[None, :] * (1.0 + _TOLERANCE)
    covers &= new.scores[left][:, None] >= wanted[left][None, :]
    chosen: list[int] = []
    uncovered = np.ones(left.size, dtype=bool)
    while uncovered.any():
        best = int(np.argmax(np.count_nonzero(covers[:, uncovered], axis=1)))
        chosen.append(int(left[best]))
        uncovered &= ~covers[best]
    return np.array(sorted(chosen), dtype=np.int64)
