"""Feasible Input Tables, the messages that carry them, and small updates after a change."""

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
    """A Feasible Input Table: rates that a node and its descendants can process, with their scores (Staying FIT, section 6.1).

    ``points`` has one row per entry and one column per input of the node. ``keeps`` is the complementary local plan of each
    entry, by split arc. ``child_rows`` is, for each child, the row of its table that an entry was combined from. Both stay on
    the node; a parent receives only columns, points and scores.
    """

    node: str
    columns: tuple[str, ...]
    points: NDArray[np.float64]
    scores: Vector
    keeps: Mapping[str, Vector] = field(default_factory=dict)
    child_rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    generated: int = 0
    """The number of feasible entries generated, before reduction to the Pareto-optimal ones."""

    def __len__(self) -> int:
        return len(self.scores)

    def select(self, rows: NDArray[np.int64]) -> Table:
        """Return a table with some of the rows."""
        return Table(
            self.node,
            self.columns,
            self.points[rows],
            self.scores[rows],
            {name: values[rows] for name, values in self.keeps.items()},
            {name: values[rows] for name, values in self.child_rows.items()},
            self.generated,
        )

    def to_message(self) -> dict[str, Any]:
        """Return the message for the parent, as plain JSON values."""
        return {
            "schema": _SCHEMA,
            "node": self.node,
            "columns": list(self.columns),
            "points": self.points.tolist(),
            "scores": self.scores.tolist(),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Table:
        """Return the table in a message from a child.

        Raises
        ------
        PenstockError
            If the message is not a table, or a rate or score is out of range.

        Examples
        --------
        >>> table = Table("B", ("i",), np.array([[0.5]]), np.array([1.0]))
        >>> Table.from_message(table.to_message()).points
        array([[0.5]])
        """
        try:
            if message["schema"] != _SCHEMA:
                raise PenstockError(f"the table has schema {message['schema']!r}, expected {_SCHEMA}")
            columns = tuple(str(name) for name in message["columns"])
            scores = np.array(message["scores"], dtype=np.float64)
            points = np.array(message["points"], dtype=np.float64).reshape(scores.size, len(columns))
            node = str(message["node"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"the message is not a table of feasible inputs: {error!r}") from error
        if not (np.all(np.isfinite(points)) and np.all(points >= 0) and np.all(np.isfinite(scores))):
            raise PenstockError(f"table of node {node!r}: rates and scores must be finite, and rates not negative")
        return cls(node, columns, points, scores, generated=scores.size)


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """A change to a child's table: the numbers of the rows to remove, and the entries to add."""

    node: str
    removed: tuple[int, ...]
    points: NDArray[np.float64]
    scores: Vector

    def __bool__(self) -> bool:
        return bool(self.removed) or bool(self.scores.size)

    def apply(self, table: Table) -> Table:
        """Return the table after the change.

        Raises
        ------
        PenstockError
            If the change is for another node, other columns, or rows that the table does not have.
        """
        if self.node != table.node or (self.scores.size and self.points.shape[1] != len(table.columns)):
            raise PenstockError(f"a change of node {self.node!r} does not fit the table of node {table.node!r}")
        if self.removed and max(self.removed) >= len(table):
            raise PenstockError(f"a change of node {self.node!r} removes row {max(self.removed)} of a table of {len(table)} rows")
        kept = np.setdiff1d(np.arange(len(table)), np.array(self.removed, dtype=np.int64))
        points = np.concatenate([table.points[kept], self.points.reshape(-1, len(table.columns))])
        scores = np.concatenate([table.scores[kept], self.scores])
        return Table(table.node, table.columns, points, scores, generated=scores.size)

    def to_message(self) -> dict[str, Any]:
        """Return the message for the parent, as plain JSON values."""
        return {
            "schema": _SCHEMA,
            "node": self.node,
            "removed": list(self.removed),
            "points": self.points.tolist(),
            "scores": self.scores.tolist(),
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Delta:
        """Return the change in a message from a child.

        Raises
        ------
        PenstockError
            If the message is not a change, or a row, rate or score is out of range.
        """
        try:
            if message["schema"] != _SCHEMA:
                raise PenstockError(f"a change has schema {message['schema']!r}, expected {_SCHEMA}")
            removed = tuple(int(row) for row in message["removed"])
            scores = np.array(message["scores"], dtype=np.float64)
            points = np.array(message["points"], dtype=np.float64).reshape(scores.size, -1 if scores.size else 0)
            node = str(message["node"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"the message is not a change of a table: {error!r}") from error
        if any(row < 0 for row in removed) or not (
            np.all(np.isfinite(points)) and np.all(points >= 0) and np.all(np.isfinite(scores))
        ):
            raise PenstockError(
                f"a change of node {node!r}: rows, rates and scores must be finite, and rows and rates not negative"
            )
        return cls(node, removed, points, scores)


def delta_between(
    known: Table, new: Table, allowed: float = 0.0, common: tuple[NDArray[np.bool_], NDArray[np.bool_]] | None = None
) -> Delta:
    """Return a small change to a known table after which a parent plans as well as with the new table, within ``allowed``.

    A known row stays if its rates are still feasible, because some new entry is component-wise at least them, and if its score is
    not too high. Then new entries are added, by greedy set cover, until for each new entry the table has one component-wise at
    most it with nearly its score.

    Parameters
    ----------
    known, new
        The table that the parent has, and the table that the node has now.
    allowed
        The relative difference of scores that is allowed, in [0, 1).
    common
        The result of ``common_rows``, if it is known already.

    Raises
    ------
    PenstockError
        If the columns differ; then the whole table must be sent.

    Examples
    --------
    >>> table = Table("B", ("i",), np.array([[1.0], [0.5]]), np.array([1.0, 0.5]))
    >>> bool(delta_between(table, table))
    False
    """
    if known.columns != new.columns:
        raise PenstockError(
            f"table of node {new.node!r}: its columns changed from {known.columns} to {new.columns}: send the whole table"
        )
    if not 0 <= allowed < 1:
        raise PenstockError(f"the allowed difference must lie in [0, 1), got {allowed!r}")
    # Half of what is allowed is for known rows whose score is too high, the rest for new entries that are not sent.
    excess = allowed / 2.0
    in_known, in_new = common_rows(known, new) if common is None else common
    stays = in_known.copy()
    others = np.flatnonzero(~in_known)
    if others.size:
        stays[others] = _is_still_valid(known.select(others), new, excess)
    uncovered = np.flatnonzero(~in_new)  # a row in both tables covers itself
    added = uncovered[
        _cover(known.points[stays], known.scores[stays], new.select(uncovered), 1.0 - (1.0 - allowed) * (1.0 + excess))
    ]
    return Delta(new.node, tuple(np.flatnonzero(~stays).tolist()), new.points[added], new.scores[added])


def common_rows(known: Table, new: Table) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which rows of each of two tables are in both, compared bit by bit."""
    first, second = ([row.tobytes() for row in np.column_stack([table.points, table.scores])] for table in (known, new))
    in_first, in_second = set(first), set(second)
    return np.array([row in in_second for row in first], dtype=bool), np.array([row in in_first for row in second], dtype=bool)


def entries_to_send(known: Table, new: Table, allowed: float) -> float:
    """Return the share of the new entries that must be sent (Staying FIT, figures 15b and 15c)."""
    return len(delta_between(known, new, allowed).scores) / max(1, len(new))


def _is_still_valid(known: Table, new: Table, allowed: float) -> NDArray[np.bool_]:
    """Return which known rows are still feasible and have a score at most ``allowed`` too high."""
    below = DominanceIndex(new.points, new.scores)
    # A point is feasible if some entry is component-wise at least it: the same search with all signs reversed.
    above = DominanceIndex(-new.points, new.scores)
    is_valid = np.zeros(len(known), dtype=bool)
    for row, (point, score) in enumerate(zip(known.points, known.scores, strict=True)):
        slack = point * (1.0 + _TOLERANCE)
        best = below.find(slack.tolist())
        if best is None or above.find((-point * (1.0 - _TOLERANCE)).tolist()) is None:
            continue
        is_valid[row] = score <= new.scores[best] * (1.0 + allowed + _TOLERANCE)
    return is_valid


def _cover(points: NDArray[np.float64], scores: Vector, new: Table, allowed: float) -> NDArray[np.int64]:
    """Return new entries that, with the rows that stay, cover all new entries."""
    required = new.scores * (1.0 - allowed) * (1.0 - _TOLERANCE)
    is_uncovered = np.ones(len(new), dtype=bool)
    most = new.points * (1.0 + _TOLERANCE)
    if len(new) < len(scores):  # go through the shorter of the two
        for row in range(len(new)):
            is_uncovered[row] = not np.any(np.all(points <= most[row], axis=1) & (scores >= required[row]))
    else:
        for point, score in zip(points, scores, strict=True):
            is_uncovered &= ~(np.all(point <= most, axis=1) & (score >= required))
    candidates = np.flatnonzero(is_uncovered)
    if not candidates.size:
        return candidates
    covers = np.ones((candidates.size, candidates.size), dtype=bool)
    for axis in range(new.points.shape[1]):
        column = new.points[candidates, axis]
        covers &= column[:, None] <= column[None, :] * (1.0 + _TOLERANCE)
    covers &= new.scores[candidates][:, None] >= required[candidates][None, :]
    cover: list[int] = []
    uncovered = np.ones(candidates.size, dtype=bool)
    while uncovered.any():
        best = int(np.argmax(np.count_nonzero(covers[:, uncovered], axis=1)))
        cover.append(int(candidates[best]))
        uncovered &= ~covers[best]
    return np.array(sorted(cover), dtype=np.int64)
