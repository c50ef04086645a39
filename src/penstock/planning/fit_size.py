"""The size of a Feasible Input Table: predicted, checked, and reduced."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.planning.dominance import is_on_grid, pareto_front
from penstock.planning.flows import Vector
from penstock.planning.table import Table

__all__ = ["TableTooLargeError", "check_size", "count_combinations", "most_rows", "reduce_table"]

_MAX_ROWS = 8_000_000
_MAX_TABLE_ENTRIES = 400_000
_ROWS_PER_ENTRY = 200
_BINS = 512
_REMEDY = "use a larger epsilon, max_entries, or the method exact"


class TableTooLargeError(PenstockError):
    """A table would take too many entries, or too many combinations of rates to build."""


def most_rows(budget: int | None) -> int:
    """Return how many combinations of rates a node may generate for a table of about this many entries; ``None`` for any."""
    return _MAX_ROWS if budget is None else min(_MAX_ROWS, _ROWS_PER_ENTRY * budget + 50_000)


def check_size(rows: int, most: int, node: str) -> None:
    """Raise if a node would generate too many combinations of rates."""
    if rows > most:
        raise TableTooLargeError(f"node {node!r}: {rows:,} combinations of rates are too many: {_REMEDY}")


def count_combinations(loads: Sequence[Vector], margin: float) -> float:
    """Return about how many combinations of samples fit into a node at most while they are generated one input after another.

    Parameters
    ----------
    loads
        By input: the load of each sample, as a share of the capacity.
    margin
        How far below the capacity the last input's samples are needed, as a share.

    Examples
    --------
    >>> count_combinations([np.array([0.0, 0.5, 1.0])] * 2, margin=1.0)
    6.0
    """
    counts = np.zeros(_BINS + 1)
    counts[0] = most = 1.0
    for number, shares in enumerate(loads):
        bins = np.floor(np.minimum(shares, 2.0) * _BINS).astype(np.int64)
        counts = np.convolve(counts, np.bincount(bins[bins <= _BINS], minlength=_BINS + 1))[: _BINS + 1]
        lowest = max(0, math.floor((1.0 - margin) * _BINS)) if number == len(loads) - 1 else 0
        most = max(most, float(counts[lowest:].sum()))
    return most


def reduce_table(table: Table, max_entries: int | None) -> Table:
    """Keep the Pareto-optimal entries; with ``max_entries``, only some of them."""
    order = np.lexsort((-table.scores, *table.points.T))
    points = table.points[order]
    is_first = np.ones(order.size, dtype=bool)
    is_first[1:] = np.any(points[1:] != points[:-1], axis=1)
    table = table.select(order[is_first])
    if len(table) > _MAX_TABLE_ENTRIES and not is_on_grid(table.points):  # on a grid the front is found quickly
        raise TableTooLargeError(f"node {table.node!r}: its table has {len(table):,} entries: {_REMEDY}")
    table = table.select(pareto_front(table.points, table.scores))
    if len(table) > _MAX_TABLE_ENTRIES:
        raise TableTooLargeError(f"node {table.node!r}: its table has {len(table):,} entries: {_REMEDY}")
    return table if max_entries is None else table.select(_spread_rows(table, max_entries))


def _spread_rows(table: Table, count: int) -> NDArray[np.int64]:
    """Return at most ``count`` rows: the one with the highest score, and others spread evenly over the table in its order."""
    if len(table) <= count:
        return np.arange(len(table))
    even = np.linspace(0, len(table) - 1, count).astype(np.int64)
    best = int(np.argmax(table.scores))
    even[np.argmin(np.abs(even - best))] = best
    return np.unique(even)
