"""Coarse tables with a known error: one entry per direction in the space of rates, as far out as the nodes can process."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.planning.column_effects import ColumnEffects
from penstock.planning.fit_rows import repeat_index
from penstock.planning.flows import Vector

__all__ = ["DirectionGrid", "count_directions", "estimate_error", "estimate_parts", "finest_parts"]

_CHUNK = 20_000
_PROBE_ENTRIES = 2_000
_EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0)

Units = NDArray[np.int64]
_Number = TypeVar("_Number", np.float64, np.int64)


def count_directions(columns: int, parts: int) -> int:
    """Return in how many ways ``parts`` equal parts can be given to the columns.

    >>> count_directions(8, 11)
    31824
    """
    return math.comb(parts + columns - 1, columns - 1)


@dataclass(frozen=True, slots=True, eq=False)
class DirectionGrid:
    """The points of a coarse table, and how far from the best score a lookup among them may be.

    For networks that drop only where inputs enter. There, rates are feasible if ``shares @ rates`` is nowhere above 1, and their
    score is ``worth @ rates``. A grid of rates needs about ``m / epsilon`` steps along each of m columns, because each rate is
    rounded down. Here the entries are directions instead: all divisions of k equal parts among the columns, each moved out until
    some node is full. Rates r are planned by the entry that is worth most when cut to r (``ClippingLookup``), so an entry may lie
    above r in some columns.

    The error: let y be the best plan and z its direction. Rounding z to k parts, so that the sum stays, moves R columns up and j
    columns down. What moves down costs score, and moving up may bring a node closer to its capacity. The worst case over all R
    and j is a closed form for each entry; ``error`` is the greatest over all entries. It falls like 1/k.

    Parameters
    ----------
    points
        By entry and column: feasible rates.
    scores
        Their scores.
    error
        The greatest relative error of the score, at most 1.

    Examples
    --------
    >>> effects = ColumnEffects(np.array([[0.5, 1.0]]), np.array([1.0, 1.0]))
    >>> grid = DirectionGrid.divide(effects, parts=2)
    >>> grid.points.round(3).tolist()
    [[0.0, 1.0], [0.746, 0.627], [2.0, 0.0]]
    >>> DirectionGrid.divide(effects, parts=20).error < 0.05 < grid.error
    True
    """

    points: NDArray[np.float64]
    scores: Vector
    error: float

    @classmethod
    def divide(cls, effects: ColumnEffects, parts: int) -> DirectionGrid:
        """Return the grid of all divisions of ``parts`` among the columns, which must all have a share and a worth."""
        limits = 1.0 / effects.shares.max(axis=0)
        scale = _choose_scale(effects, limits)
        units = _divisions(limits.size, parts)
        points = units * (limits * scale / parts)
        used = np.concatenate([np.max(chunk @ effects.shares.T, axis=1) for chunk in _chunks(points)])
        points /= used[:, None]
        return cls(points, points @ effects.worth, _bound_error(units, parts, effects, limits * scale))

    @classmethod
    def within(cls, effects: ColumnEffects, epsilon: float, most_entries: int) -> DirectionGrid:
        """Return a small grid within epsilon if it has at most this many entries, otherwise the finest that has.

        With fewer entries than columns, the grid has the best columns alone, and an error of 1.
        """
        columns = effects.worth.size
        if most_entries < columns:
            limits = 1.0 / effects.shares.max(axis=0)
            best = np.argsort(-effects.worth * limits, kind="stable")[:most_entries]
            points = np.diag(limits)[best]
            return cls(points, points @ effects.worth, 1.0)
        finest = finest_parts(columns, most_entries)
        parts = min(finest, estimate_parts(effects, epsilon))
        grid = cls.divide(effects, parts)
        while grid.error > epsilon and parts < finest:
            parts = min(finest, max(parts + 1, math.ceil(parts * grid.error / epsilon)))
            grid = cls.divide(effects, parts)
        return grid


def finest_parts(columns: int, most_entries: int) -> int:
    """Return the greatest number of parts whose grid has at most this many entries; with one column, one part will do."""
    if columns == 1:
        return 1
    low, high = 0, 1
    while count_directions(columns, high) <= most_entries:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count_directions(columns, middle) <= most_entries else (low, middle)
    return low


def estimate_parts(effects: ColumnEffects, epsilon: float) -> int:
    """Estimate the parts that a grid needs for an error of epsilon, from two small grids."""
    if effects.worth.size == 1:
        return 1
    scale, offset = _fit_error(effects)
    return max(1, math.ceil(scale / epsilon - offset - 1e-9))


def estimate_error(effects: ColumnEffects, parts: int) -> float:
    """Estimate the error of a grid, from two small grids."""
    scale, offset = _fit_error(effects)
    return scale / (parts + offset)


def _fit_error(effects: ColumnEffects) -> tuple[float, float]:
    """Return c and d such that a grid of k parts has an error of about ``c / (k + d)``."""
    columns = effects.worth.size
    fine = max(2, finest_parts(columns, _PROBE_ENTRIES))
    coarse = max(1, fine // 2)
    coarse_error, fine_error = (DirectionGrid.divide(effects, parts).error for parts in (coarse, fine))
    if coarse_error <= fine_error:
        return fine_error * fine, 0.0
    offset = max(0.0, (coarse_error * coarse - fine_error * fine) / (fine_error - coarse_error))
    return fine_error * (fine + offset), offset


def _choose_scale(effects: ColumnEffects, limits: Vector) -> Vector:
    """Return the unit of each column relative to its limit: from equal loads to equal scores, by the least error."""
    worth = effects.worth * limits
    parts = max(1, finest_parts(limits.size, _PROBE_ENTRIES // 4))
    units = _divisions(limits.size, parts)
    scales = [(worth / worth.min()) ** -exponent for exponent in _EXPONENTS]
    return min(scales, key=lambda scale: _bound_error(units, parts, effects, limits * scale))


def _divisions(columns: int, parts: int) -> Units:
    """Return all ways to give ``parts`` equal parts to the columns.

    >>> _divisions(2, 2).tolist()
    [[0, 2], [1, 1], [2, 0]]
    """
    units: Units = np.zeros((1, 0), dtype=np.int64)
    left: Units = np.array([parts], dtype=np.int64)
    for _ in range(columns - 1):
        index, position = repeat_index(left + 1)
        units = np.column_stack([units[index], position])
        left = left[index] - position
    return np.column_stack([units, left])


def _bound_error(units: Units, parts: int, effects: ColumnEffects, unit_rates: Vector) -> float:
    """Return the greatest error of a lookup among the directions."""
    if units.shape[1] == 1:
        return 0.0
    loads, values = effects.shares * unit_rates, effects.worth * unit_rates
    return min(1.0, max(_bound_chunk(chunk, parts, loads, values) for chunk in _chunks(units)))


def _bound_chunk(units: Units, parts: int, loads: NDArray[np.float64], values: Vector) -> float:
    """Return the greatest error over the plans whose direction is rounded to one of some entries.

    R of the entry's columns were rounded up by ``j / (R + j)`` parts and j columns down by ``R / (R + j)`` parts: the vertices of
    what rounding to the nearest can do. Of the fullest node, ``excess`` bounds the share of load that moving back would free.
    """
    columns = units.shape[1]
    is_used = units > 0
    by_node = (units @ loads.T) / parts
    fullest = np.argmax(by_node, axis=1)
    load = by_node[np.arange(len(units)), fullest]
    score = (units @ values) / parts
    up_loads = _sum_greatest(loads[fullest] * is_used)
    down_loads = np.cumsum(np.sort(loads[fullest], axis=1), axis=1)
    up_values = _sum_greatest(values * is_used)
    down_values = _sum_greatest(values[None, :])[0]
    used = is_used.sum(axis=1)
    worst = 0.0
    for ups in range(1, columns):
        for downs in range(1, columns - ups + 1):
            down, up = ups / (ups + downs) / parts, downs / (ups + downs) / parts
            loss, gain = down * down_values[downs - 1], up * up_values[:, ups - 1]
            excess = np.maximum(up * up_loads[:, ups - 1] - down * down_loads[:, downs - 1], 0.0) / load
            error = (loss + excess * score) / np.maximum(score + loss - gain, 1e-300)
            worst = max(worst, float(np.max(error[used >= ups], initial=0.0)))
    return worst


def _sum_greatest(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by row the sums of the greatest value, the two greatest, and so on."""
    sums: NDArray[np.float64] = np.cumsum(-np.sort(-values, axis=1), axis=1)
    return sums


def _chunks(rows: NDArray[_Number]) -> list[NDArray[_Number]]:
    return [rows[first : first + _CHUNK] for first in range(0, len(rows), _CHUNK)]
