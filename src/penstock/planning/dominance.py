"""Find the best entry of a table that some rates can be scaled down to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DominanceIndex", "undominated"]

_MOST_STEPS = 512


class DominanceIndex:
    """Finds, among the points that are nowhere above r, the one with the greatest score.

    The points are numbered by falling score. For each dimension and each value that occurs there, one number of as many bits as
    there are points says which of them are not above it. The numbers of all dimensions, ANDed, say which points qualify, and the
    lowest bit is the best of them. That is a few big-integer operations, whatever the number of dimensions, where a point
    quadtree visits more and more branches as dimensions are added.

    >>> index = DominanceIndex(np.array([[1.0, 1.0], [2.0, 0.0]]), np.array([3.0, 2.0]))
    >>> index.find([1.5, 1.5]), index.find([3.0, 0.5]), index.find([0.5, 0.5])
    (0, 1, None)
    """

    def __init__(self, points: NDArray[np.float64], scores: NDArray[np.float64]) -> None:
        self._order = np.argsort(-scores, kind="stable")
        ordered = points[self._order]
        self._ordered = ordered
        self._rows: list[int] = self._order.tolist()
        self._steps: list[list[float]] = []
        self._sets: list[list[int]] = []
        self._exact = True
        for column in ordered.T:
            values = np.unique(column)
            if values.size > _MOST_STEPS:
                values = values[np.unique(np.linspace(0, values.size - 1, _MOST_STEPS).astype(np.int64))]
                self._exact = False
            self._steps.append(values.tolist())
            self._sets.append([_bits(column <= value) for value in values])
        self._all = (1 << len(self._rows)) - 1

    def find(self, point: Sequence[float], *, before: int | None = None) -> int | None:
        """The row of the best entry, or ``None``. ``before`` asks for one among the first so many by score only."""
        found = self._all if before is None else (1 << before) - 1
        if self._exact:
            for value, steps, sets in zip(point, self._steps, self._sets, strict=True):
                step = bisect_right(steps, value) - 1
                if step < 0:
                    return None
                found &= sets[step]
            return self._rows[(found & -found).bit_length() - 1] if found else None
        for value, steps, sets in zip(point, self._steps, self._sets, strict=True):
            step = bisect_left(steps, value)
            if step < len(sets):
                found &= sets[step]
        limit = np.asarray(point)
        while found:  # between two steps a point may lie above the value: look at each
            place = (found & -found).bit_length() - 1
            if np.all(self._ordered[place] <= limit):
                return self._rows[place]
            found &= found - 1
        return None

    def undominated(self) -> NDArray[np.int64]:
        """The rows that have no other row nowhere above them with at least their score."""
        kept = [
            row
            for place, row in enumerate(self._rows)
            if place == 0 or self.find(self._ordered[place].tolist(), before=place) is None
        ]
        return np.array(sorted(kept), dtype=np.int64)


def undominated(points: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """The rows that some rates would choose: no other is nowhere above them with at least their score.

    >>> undominated(np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 0.0]]), np.array([3.0, 3.0, 1.0]))
    array([0, 2])
    """
    return DominanceIndex(points, scores).undominated()


def _bits(chosen: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
