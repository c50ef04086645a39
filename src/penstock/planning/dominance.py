"""Find the best table entry that some rates can be scaled down to."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DominanceIndex", "grid_cells", "is_on_grid", "pareto_front"]

_MAX_STEPS = 512
_MAX_CELLS_PER_ROW = 64


class DominanceIndex:
    """Finds the point with the highest score among those component-wise at most r.

    Points are ranked by descending score. For each dimension and each value that occurs in it, one integer with one bit per point
    says which points are at most that value. The bitwise AND over all dimensions gives the points that qualify, and its lowest
    set bit is the best of them. A search takes a few operations on large integers, whatever the number of dimensions, while a
    point quadtree visits more branches with each dimension.

    Examples
    --------
    >>> index = DominanceIndex(np.array([[1.0, 1.0], [2.0, 0.0]]), np.array([3.0, 2.0]))
    >>> index.find([1.5, 1.5]), index.find([3.0, 0.5]), index.find([0.5, 0.5])
    (0, 1, None)
    """

    def __init__(self, points: NDArray[np.float64], scores: NDArray[np.float64]) -> None:
        order = np.argsort(-scores, kind="stable")
        self._ranked = points[order]
        self._rows: list[int] = order.tolist()
        self._steps: list[list[float]] = []
        self._bit_sets: list[list[int]] = []
        self._is_exact = True
        for column in self._ranked.T:
            values = np.unique(column)
            if values.size > _MAX_STEPS:
                values = values[np.unique(np.linspace(0, values.size - 1, _MAX_STEPS).astype(np.int64))]
                self._is_exact = False
            self._steps.append(values.tolist())
            self._bit_sets.append([_to_bits(column <= value) for value in values])
        self._all = (1 << len(self._rows)) - 1

    def find(self, point: Sequence[float], *, before: int | None = None) -> int | None:
        """Return the row of the best point component-wise at most ``point``, or ``None``.

        ``before`` restricts the search to that many points with the highest scores.
        """
        candidates = self._all if before is None else (1 << before) - 1
        if self._is_exact:
            for value, steps, bit_sets in zip(point, self._steps, self._bit_sets, strict=True):
                step = bisect_right(steps, value) - 1
                if step < 0:
                    return None
                candidates &= bit_sets[step]
            return self._rows[(candidates & -candidates).bit_length() - 1] if candidates else None
        for value, steps, bit_sets in zip(point, self._steps, self._bit_sets, strict=True):
            step = bisect_left(steps, value)
            if step < len(bit_sets):
                candidates &= bit_sets[step]
        limit = np.asarray(point)
        while candidates:  # the steps are coarse, so check each candidate
            rank = (candidates & -candidates).bit_length() - 1
            if np.all(self._ranked[rank] <= limit):
                return self._rows[rank]
            candidates &= candidates - 1
        return None

    def pareto_front(self) -> NDArray[np.int64]:
        """Return the Pareto-optimal rows: no other row is component-wise at most them with at least their score."""
        optimal = [
            row for rank, row in enumerate(self._rows) if rank == 0 or self.find(self._ranked[rank].tolist(), before=rank) is None
        ]
        return np.array(sorted(optimal), dtype=np.int64)


def pareto_front(points: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the Pareto-optimal rows: low rates, high scores.

    A row is left out if another row is component-wise at most it and has at least its score. Of equal rows, the first stays.

    Examples
    --------
    >>> pareto_front(np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 0.0]]), np.array([3.0, 3.0, 1.0]))
    array([0, 2])
    """
    if not is_on_grid(points):
        return DominanceIndex(points, scores).pareto_front()
    axes = [np.unique(column, return_inverse=True) for column in points.T]
    shape = tuple(values.size for values, _ in axes)
    order = np.lexsort((-np.arange(scores.size), scores))  # the best last, and of equal rows the first last
    cells = np.ravel_multi_index(tuple(positions for _, positions in axes), shape)[order]
    row_of_cell = np.full(math.prod(shape), -1, dtype=np.int64)
    row_of_cell[cells] = order  # of several rows in a cell, NumPy keeps the last
    best = np.where(row_of_cell >= 0, scores[row_of_cell], -np.inf)
    return np.sort(row_of_cell[grid_cells(best.reshape(shape))])


def is_on_grid(points: NDArray[np.float64]) -> bool:
    """Return whether the points have so many values in common that their grid has not many more cells than there are points."""
    rows, dimensions = points.shape
    cells = math.prod(int(np.unique(column).size) for column in points.T)
    return bool(dimensions > 0 and cells <= _MAX_CELLS_PER_ROW * rows)


def grid_cells(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the cells of a grid, numbered as in memory, whose score exceeds that of all cells that are nowhere higher.

    >>> grid_cells(np.array([[0.0, 1.0], [0.0, 2.0]]))
    array([0, 1, 3])
    """
    below = scores.copy()  # the best of a cell and all cells that are nowhere higher
    for dimension in range(scores.ndim):
        np.maximum.accumulate(below, axis=dimension, out=below)
    is_better = scores > -np.inf
    for dimension in range(scores.ndim):
        upper, lower = np.swapaxes(is_better, 0, dimension)[1:], np.swapaxes(below, 0, dimension)[:-1]
        upper &= np.swapaxes(scores, 0, dimension)[1:] > lower
    return np.flatnonzero(is_better)


def _to_bits(selected: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(selected, bitorder="little").tobytes(), "little")
