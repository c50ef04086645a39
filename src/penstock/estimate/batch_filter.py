"""What a batch costs, as a filter: an overhead and a cost per row, an opinion from the first batch on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.estimate.linear_filter import LinearFilter

__all__ = ["BatchFilter"]


class BatchFilter:
    """A Kalman filter of ``period = overhead + cost * kept``: the overhead is steady, the cost may wander and jump.

    Under good control every batch keeps the same number of rows, and then no method can separate overhead from cost. The filter
    attributes a change to the cost, because the overhead belongs to the engine and changes little; small batches show the
    overhead. A batch far outside of what is expected is a jump of the cost: the filter then forgets what it knew of it.

    `MicroBatch` uses it because it needs an answer from the first batch on. `BatchRegression` answers "unknown" instead.

    Parameters
    ----------
    noise
        Deviation of a batch's time, as a share of it.
    wander
        How far the cost moves from batch to batch, as a share of it.
    drift
        How far the overhead moves from batch to batch, as a share of the batch's time.
    surprise
        Deviations from the expected time beyond which a batch counts as a jump.

    Examples
    --------
    >>> model = BatchFilter()
    >>> for kept in (0, 400, 400, 400):
    ...     model.update(kept, 0.2 + 0.001 * kept)
    >>> round(model.overhead_s, 2), round(model.cost_s, 4)
    (0.2, 0.001)
    >>> for kept in (400, 300, 300):
    ...     model.update(kept, 0.2 + 0.002 * kept)         # rows cost twice as much
    >>> round(model.overhead_s, 1), round(model.cost_s, 3)
    (0.2, 0.002)
    """

    def __init__(self, noise: float = 0.06, wander: float = 0.05, drift: float = 0.01, surprise: float = 3.0) -> None:
        self._noise, self._wander, self._drift, self._surprise = noise, wander, drift, surprise
        self._filter = LinearFilter([0.0, 0.0], [0.0, 0.0])  # the cost of a row and the overhead
        self._has_cost = self._has_overhead = False

    @property
    def cost_s(self) -> float | None:
        """Seconds per row; ``None`` before the first row."""
        return float(self._filter.values[0]) if self._has_cost else None

    @property
    def overhead_s(self) -> float | None:
        """Seconds that a batch takes without any rows; ``None`` before the first batch."""
        return float(self._filter.values[1]) if self._has_overhead else None

    def update(self, kept: int, period_s: float) -> None:
        """Learn from one batch. A batch without a length is ignored."""
        if kept < 0 or not (math.isfinite(period_s) and period_s > 0.0):
            return
        if not self._has_overhead or (not self._has_cost and kept > 0):
            self._begin(kept, period_s)
            return
        costs = self._filter
        counts = np.array([float(kept), 1.0])
        costs.widen([self._wander * costs.values[0], self._drift * period_s])
        error_s = period_s - costs.predict(counts)
        noise = (self._noise * period_s) ** 2
        if kept > 0 and error_s**2 > self._surprise**2 * (costs.variance(counts) + noise):
            costs.widen([error_s / kept, 0.0])
        least_cost_s = _LEAST_COST_S if self._has_cost else 0.0
        costs.correct(counts, error_s, noise, least=[least_cost_s, 0.0], most=[math.inf, period_s])

    def _begin(self, kept: int, period_s: float) -> None:
        """Start from the first batch, or the first one with rows: all that is not known to be overhead is the rows' cost."""
        costs = self._filter
        if not self._has_overhead:
            overhead_s, deviation_s = (period_s, 0.5 * period_s) if kept == 0 else (0.0, 0.3 * period_s)
            costs.values[1], costs.covariance[1, 1] = overhead_s, deviation_s**2
            self._has_overhead = True
        if kept > 0:
            # After an empty batch that took longer than this one: an error larger than that would contradict the cost's.
            costs.values[1] = min(costs.values[1], period_s)
            costs.covariance[1, 1] = min(costs.covariance[1, 1], (0.5 * period_s) ** 2)
            costs.values[0] = max(_LEAST_COST_S, (period_s - costs.values[1]) / kept)
            costs.covariance[0, 0] = (0.5 * period_s / kept) ** 2
            costs.covariance[0, 1] = costs.covariance[1, 0] = -costs.covariance[1, 1] / kept  # what is not the one is the other
            self._has_cost = True

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"filter": self._filter.snapshot(), "has_cost": self._has_cost, "has_overhead": self._has_overhead}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self._filter.restore(state["filter"])
        self._has_cost, self._has_overhead = state["has_cost"], state["has_overhead"]


_LEAST_COST_S = 1e-12
