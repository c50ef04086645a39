"""The point quadtree of Staying FIT, section 6.4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["PointQuadtree"]


class PointQuadtree:
    """Finds the point with the highest score among those component-wise at most r, like ``DominanceIndex``, the paper's way.

    Every point divides its part of the space into 2^m quadrants at its coordinates. Points are inserted by descending score, so a
    point is at least as good as all points below it in the tree. A search visits only quadrants that can hold points at most r,
    and ends a branch at the first point that qualifies.

    ``DominanceIndex`` is faster with several dimensions; this class is here to compare with the paper.

    Examples
    --------
    >>> tree = PointQuadtree(np.array([[1.0, 1.0], [2.0, 0.0]]), np.array([3.0, 2.0]))
    >>> tree.find([1.5, 1.5]), tree.find([3.0, 0.5]), tree.find([0.5, 0.5])
    (0, 1, None)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    def __init__(self, points: NDArray[np.float64], scores: NDArray[np.float64]) -> None:
        order = np.argsort(-scores, kind="stable")
        self._rows: list[int] = order.tolist()
        self._points: list[tuple[float, ...]] = [tuple(point) for point in points[order].tolist()]
        self._children: list[dict[int, int]] = [{} for _ in self._points]
        for rank in range(1, len(self._points)):
            self._insert(rank)

    def _insert(self, rank: int) -> None:
        point, current = self._points[rank], 0
        while True:
            quadrant = 0
            for axis, (value, middle) in enumerate(zip(point, self._points[current], strict=True)):
                quadrant |= (value >= middle) << axis
            child = self._children[current].get(quadrant)
            if child is None:
                self._children[current][quadrant] = rank
                return
            current = child

    def find(self, point: Sequence[float]) -> int | None:
        """Return the row of the best point component-wise at most ``point``, or ``None``."""
        best, open_ranks = len(self._points), [0] if self._points else []
        while open_ranks:
            rank = open_ranks.pop()
            if rank >= best:  # children have higher ranks, so lower scores: nothing below can be better
                continue
            out_of_reach = 0
            for axis, (value, middle) in enumerate(zip(point, self._points[rank], strict=True)):
                out_of_reach |= (value < middle) << axis
            if not out_of_reach:
                best = rank
                continue
            # In a dimension where r is below this point, a qualifying point must be below it too.
            open_ranks += [child for quadrant, child in self._children[rank].items() if not quadrant & out_of_reach]
        return self._rows[best] if best < len(self._points) else None
