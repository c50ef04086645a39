"""Combine the tables of a node's children (Staying FIT, section 6.3), without those combinations that others beat."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.planning.dominance import grid_cells, pareto_front
from penstock.planning.fit_rows import Rows
from penstock.planning.table import Table

__all__ = ["combine_tables"]

CheckSize = Callable[[int], None]


def combine_tables(children: Sequence[Table], leaving: Collection[str], check_size: CheckSize) -> Rows:
    """Return combinations of the children's entries, with the sum of their scores.

    Branches of one split need the greatest of their rates before it. So of two combinations with the same rates before all
    splits, the one with the lower score is of no use, whatever the node does upstream. Leaving it out child by child keeps the
    work near the size of the result, where all combinations would be the product of all tables.

    Parameters
    ----------
    children
        The tables of the children.
    leaving
        The arcs on which the node feeds them. All other columns are streams that enter below.
    check_size
        Raises if a number of rows is too large.

    Examples
    --------
    A split whose branches lead to two children:

    >>> first = Table("B", ("s->b",), np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 1.0, 2.0]))
    >>> second = Table("C", ("s->c",), np.array([[0.0], [2.0]]), np.array([0.0, 2.0]))
    >>> rows = combine_tables([first, second], ["s->b", "s->c"], lambda rows: None)
    >>> rows["need s->b"], rows["need s->c"], rows["score"]
    (array([0., 1., 2.]), array([0., 0., 2.]), array([0., 1., 4.]))
    """
    rows = Rows(1)
    rows["score"] = np.zeros(1)
    keys: dict[str, NDArray[np.float64]] = {}  # by split or stream: the rate there, of each row
    for child in children:
        own = _keys_of(child, leaving)
        if not keys.keys() & own.keys():  # nothing in common: no combination beats another
            check_size(rows.count * len(child))
            first, second = np.indices((rows.count, len(child))).reshape(2, -1)
        else:
            first, second = _combine_on_grid(keys, rows["score"], own, child.scores, check_size)
        rows.select(first)
        rows["score"] = rows["score"] + child.scores[second]
        rows[f"row {child.node}"] = second
        for column, name in enumerate(child.columns):
            rows[f"{'need' if name in leaving else 'column'} {name}"] = child.points[second, column]
        keys = {name: values[first] for name, values in keys.items()}
        for name, values in own.items():
            keys[name] = np.maximum(keys[name], values[second]) if name in keys else values[second]
    return rows


def _keys_of(child: Table, leaving: Collection[str]) -> dict[str, NDArray[np.float64]]:
    """Return, by the operator before the arc or by stream, the greatest rate that a child's entries need there."""
    keys: dict[str, NDArray[np.float64]] = {}
    for column, name in enumerate(child.columns):
        key = f"at {name.partition('->')[0]}" if name in leaving else name
        values = child.points[:, column]
        keys[key] = np.maximum(keys[key], values) if key in keys else values
    return keys


def _combine_on_grid(
    first: dict[str, NDArray[np.float64]],
    first_scores: NDArray[np.float64],
    second: dict[str, NDArray[np.float64]],
    second_scores: NDArray[np.float64],
    check_size: CheckSize,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of both tables of each useful combination: one for each cell of the grid of all rates at most."""
    names = list(first | second)
    axes = [np.unique(np.concatenate([table[name] for table in (first, second) if name in table])) for name in names]
    cells = math.prod(axis.size for axis in axes)
    if cells > first_scores.size * second_scores.size:
        check_size(first_scores.size * second_scores.size)
        rows, others = np.indices((first_scores.size, second_scores.size)).reshape(2, -1)
        points = np.column_stack(
            [
                np.maximum(first[name][rows] if name in first else 0.0, second[name][others] if name in second else 0.0)
                for name in names
            ]
        )
        front = pareto_front(points, first_scores[rows] + second_scores[others])
        return rows[front], others[front]
    check_size(cells)
    best_first = _best_on_grid(first, first_scores, names, axes)
    best_second = _best_on_grid(second, second_scores, names, axes)
    has_both = (best_first >= 0) & (best_second >= 0)
    scores = np.where(has_both, first_scores[best_first] + second_scores[best_second], -np.inf)
    useful = grid_cells(scores)
    return best_first.reshape(-1)[useful], best_second.reshape(-1)[useful]


def _best_on_grid(
    table: dict[str, NDArray[np.float64]], scores: NDArray[np.float64], names: Sequence[str], axes: Sequence[NDArray[np.float64]]
) -> NDArray[np.int64]:
    """Return, for each cell, the row with the highest score among those with rates at most the cell's; -1 where there is none."""
    order = np.argsort(scores, kind="stable")
    ranks = np.full(tuple(axis.size if name in table else 1 for name, axis in zip(names, axes, strict=True)), -1, dtype=np.int64)
    position = tuple(
        np.searchsorted(axis, table[name][order]) if name in table else np.zeros(order.size, dtype=np.int64)
        for name, axis in zip(names, axes, strict=True)
    )
    ranks[position] = np.arange(order.size)  # of several rows in a cell, NumPy keeps the last, which is the best
    for dimension in range(ranks.ndim):
        np.maximum.accumulate(ranks, axis=dimension, out=ranks)
    rows = np.where(ranks >= 0, order[ranks], -1)
    return np.broadcast_to(rows, tuple(axis.size for axis in axes))
