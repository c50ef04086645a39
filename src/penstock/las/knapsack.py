"""How much of each bucket to keep when the whole batch is known: a knapsack over buckets."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError

__all__ = ["How", "allocate"]

How = Literal["threshold", "root", "uniform"]

Values = NDArray[np.float64]


def allocate(rows: Values, costs_s: Values, budget_s: float, *, how: How = "threshold", floor: float = 0.0) -> Values:
    """Return the keep of each bucket so that the rows that stay cost ``budget_s``.

    Parameters
    ----------
    rows, costs_s
        Rows of each bucket, and the seconds per row.
    budget_s
        Seconds that the rows that stay may cost.
    how
        ``threshold`` keeps the cheapest buckets whole and sheds the most expensive, which keeps the most rows. ``root`` keeps in
        proportion to one over the root of the cost: fewer rows, but no bucket is shed alone, and sums that are scaled back up
        vary least for the time they take (Neyman's allocation). ``uniform`` ignores costs.
    floor
        No keep is below it, unless the budget does not even allow that.

    Examples
    --------
    >>> allocate(np.array([10.0, 10.0]), np.array([1.0, 3.0]), 25.0).tolist()     # 10 of the cheap ones, half of the others
    [1.0, 0.5]
    """
    if not 0.0 <= floor < 1.0:
        raise PenstockError(f"the floor must lie in [0, 1), got {floor!r}")
    work = rows * costs_s
    total = float(work.sum())
    if total <= budget_s or total <= 0.0:
        return np.ones_like(work)
    share = max(0.0, budget_s) / total
    if how == "uniform" or share <= floor:
        return np.full_like(work, share)
    if how == "root":
        return _by_root(work, costs_s, budget_s, floor)
    keep = np.full_like(work, floor)
    left = budget_s - floor * total
    order = np.argsort(costs_s, kind="stable")
    missing = (1.0 - floor) * work[order]
    before = np.concatenate([[0.0], np.cumsum(missing)[:-1]])
    filled = np.divide(np.clip(left - before, 0.0, missing), missing, out=np.ones_like(missing), where=missing > 0)
    keep[order] += (1.0 - floor) * filled
    return keep


def _by_root(work: Values, costs_s: Values, budget_s: float, floor: float) -> Values:
    """Find the scale of the keeps by bisection: the work that stays grows with it."""
    shape = 1.0 / np.sqrt(np.maximum(costs_s, 1e-12))
    low, high = 0.0, 1.0 / float(shape.min())
    for _ in range(60):
        scale = 0.5 * (low + high)
        keep = np.clip(scale * shape, floor, 1.0)
        low, high = (low, scale) if float((work * keep).sum()) > budget_s else (scale, high)
    return np.clip(low * shape, floor, 1.0)
