"""A region quadtree over the space of input rates."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["RegionQuadtree", "SIDE"]

_DEPTH = 20

SIDE = 1 << 30
"""The width of the space along each dimension, in units. Corners are whole units, so equal corners compare equal."""


class RegionQuadtree:
    """Divides a box into regions, each into 2^m equal parts, and finds the region of a point in about a microsecond per level.

    Examples
    --------
    >>> tree = RegionQuadtree([100.0, 100.0])
    >>> tree.divide(0)
    range(1, 5)
    >>> tree.find([60.0, 75.0])                          # the upper right one
    4
    >>> tree.corners(4)
    ((536870912, 536870912), (1073741824, 1073741824))
    """

    def __init__(self, sides: Sequence[float]) -> None:
        self._scale = [SIDE / side for side in sides]
        self._dimensions = range(len(sides))
        self._children: list[int] = [0]
        self._bottoms: list[tuple[int, ...]] = [(0,) * len(sides)]
        self._widths: list[int] = [SIDE]

    def leaves(self) -> list[int]:
        """Return the regions that are not divided."""
        return [region for region, first in enumerate(self._children) if not first]

    def corners(self, region: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bottom-most and the top-most point of a region, in units of the space."""
        bottom, width = self._bottoms[region], self._widths[region]
        return bottom, tuple([coordinate + width for coordinate in bottom])

    def divide(self, region: int) -> range:
        """Divide a region and return the numbers of its parts."""
        first, half, bottom = len(self._children), self._widths[region] >> 1, self._bottoms[region]
        self._children[region] = first
        for part in range(1 << len(bottom)):
            self._bottoms.append(tuple([low + half if part >> axis & 1 else low for axis, low in enumerate(bottom)]))
        count = 1 << len(bottom)
        self._children += [0] * count
        self._widths += [half] * count
        return range(first, first + count)

    def can_divide(self, region: int) -> bool:
        """Return whether a region is wide enough to divide: more than a millionth of the space."""
        return self._widths[region] > SIDE >> _DEPTH

    def find(self, point: Sequence[float]) -> int:
        """Return the number of the smallest region that contains a point. Points outside the box are moved to its edge."""
        units = [min(int(value * scale), SIDE - 1) for value, scale in zip(point, self._scale, strict=True)]
        children, dimensions = self._children, self._dimensions
        region, shift = 0, 29
        while first := children[region]:
            part = 0
            for axis in dimensions:
                part |= (units[axis] >> shift & 1) << axis
            region = first + part
            shift -= 1
        return region
