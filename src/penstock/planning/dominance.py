"""Find the best table entry that some rates can be scaled down to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DominanceIndex", "pareto_front"]

_MAX_STEPS = 512


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
    return DominanceIndex(points, scores).pareto_front()


def _to_bits(selected: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(selected, bitorder="little").tobytes(), "little")
