"""The point quadtree of paper 000, section 6.4."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["PointQuadtree"]


class PointQuadtree:
    """Answers the same question as ``DominanceIndex``, as the paper does it.

    Every point divides its part of the space at its coordinates into 2^m quadrants. Points go in by falling score, so that
    a point is at least as good as all below it: the space above it is its own, less what better points have taken. A search looks
    only into quadrants that can hold points not above r, and stops in a branch at the first point that qualifies.

    >>> tree = PointQuadtree(np.array([[1.0, 1.0], [2.0, 0.0]]), np.array([3.0, 2.0]))
    >>> tree.find([1.5, 1.5]), tree.find([3.0, 0.5]), tree.find([0.5, 0.5])
    (0, 1, None)
    """

    def __init__(self, points: NDArray[np.float64], scores: NDArray[np.float64]) -> None:
        order = np.argsort(-scores, kind="stable")
        self._rows: list[int] = order.tolist()
        self._points: list[tuple[float, ...]] = [tuple(point) for point in points[order].tolist()]
        self._children: list[dict[int, int]] = [{} for _ in self._points]
        for place in range(1, len(self._points)):
            self._insert(place)

    def _insert(self, place: int) -> None:
        point, here = self._points[place], 0
        while True:
            quadrant = 0
            for axis, (value, middle) in enumerate(zip(point, self._points[here], strict=True)):
                quadrant |= (value >= middle) << axis
            below = self._children[here].get(quadrant)
            if below is None:
                self._children[here][quadrant] = place
                return
            here = below

    def find(self, point: Sequence[float]) -> int | None:
        """The row of the best point that is nowhere above, or ``None``."""
        best, open_places = len(self._points), [0] if self._points else []
        while open_places:
            here = open_places.pop()
            if here >= best:  # places are numbered by falling score: nothing below is better than what was found
                continue
            out_of_reach = 0
            for axis, (value, middle) in enumerate(zip(point, self._points[here], strict=True)):
                out_of_reach |= (value < middle) << axis
            if not out_of_reach:
                best = here
                continue
            # Where r is below the point, so must be what qualifies.
            open_places += [child for quadrant, child in self._children[here].items() if not quadrant & out_of_reach]
        return self._rows[best] if best < len(self._points) else None
