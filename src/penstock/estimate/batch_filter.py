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
    overhead. A batch far outside of what is expected is a jump of the cost: the filter then forgets what it knew of it. There are
    two exceptions. A batch many times too long is a stall until the next one confirms it: engines pause more often than rows
    become ten times as expensive. One that is too short is luck until then: to believe it makes the next ones late. And if the
    next batch is just as long with far fewer rows, time does not depend on rows: then
    the overhead has jumped; once a batch is as short as before the jump, it has jumped back. A moderate surprise in a batch of
    few rows is the engine's.

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
        self._settled = 0  # batches in a row that went as expected
        self._jump: tuple[float, float, float] | None = None  # rows and time of the last surprise, and the cost before it
        self._before: tuple[float, float] | None = None  # cost and overhead before the overhead jumped

    @property
    def cost_deviation_s(self) -> float:
        """The standard deviation of the cost per row."""
        return math.sqrt(max(0.0, float(self._filter.covariance[0, 0])))

    @property
    def cost_s(self) -> float | None:
        """Seconds per row; ``None`` before the first row."""
        return float(self._filter.values[0]) if self._has_cost else None

    @property
    def overhead_s(self) -> float | None:
        """Seconds that a batch takes without any rows; ``None`` before the first batch."""
        return float(self._filter.values[1]) if self._has_overhead else None

    def update(self, kept: int, period_s: float) -> None:
        """Learn from one batch. One without a length, or with one that no clock can have measured, is ignored."""
        if kept < 0 or not _SHORTEST_S <= period_s <= _LONGEST_S:
            return
        if not self._has_overhead or (not self._has_cost and kept > 0):
            self._begin(kept, period_s)
            return
        costs = self._filter
        counts = np.array([float(kept), 1.0])
        costs.widen([self._wander * costs.values[0], self._drift * period_s])
        expected_s = costs.predict(counts)
        error_s = period_s - expected_s
        noise = (self._noise * period_s) ** 2
        if error_s**2 <= self._surprise**2 * (costs.variance(counts) + noise):
            self._settled, self._jump = self._settled + 1, None
        elif self._return_overhead(kept, period_s, expected_s):
            return
        elif self._jump is None and self._settled >= _SETTLED and self._is_doubtful(kept, period_s, expected_s):
            self._jump = (float(kept), period_s, self._cost_before())
            return
        elif self._jump_overhead(kept, period_s):
            return
        elif kept > 0 and not self._is_of_engine(error_s, expected_s, kept):
            self._settled = 0
            self._jump = (float(kept), period_s, self._cost_before())
            costs.widen([error_s / kept, 0.0])
        least_cost_s = _LEAST_COST_S if self._has_cost else 0.0
        costs.correct(counts, error_s, noise, least=[least_cost_s, 0.0], most=[math.inf, period_s])

    @staticmethod
    def _is_doubtful(kept: int, period_s: float, expected_s: float) -> bool:
        """Whether to wait for the next batch before a surprise is believed: it may be a stall, or luck."""
        return period_s > _STALL * max(expected_s, _LEAST_COST_S) or (kept > 0 and period_s < expected_s)

    def _is_of_engine(self, error_s: float, expected_s: float, kept: int) -> bool:
        """Whether rows are so few that they can't have caused a moderate surprise."""
        return abs(error_s) <= _MODERATE * expected_s and abs(error_s) > _GROWN * float(self._filter.values[0]) * kept

    def _cost_before(self) -> float:
        """Return the cost before a series of surprises."""
        return float(self._filter.values[0]) if self._jump is None else self._jump[2]

    def _jump_overhead(self, kept: int, period_s: float) -> bool:
        """Take over a new overhead if a second surprise shows that the time does not depend on the rows."""
        if self._jump is None:
            return False
        rows, last_s, cost_s = self._jump
        (fewer, shorter_s), (more, longer_s) = sorted(((rows, last_s), (float(kept), period_s)))
        if more and (fewer > (1.0 - _HALF) * more or shorter_s < _AS_LONG * longer_s):
            return False
        cost_s = max(min(cost_s, period_s / max(1.0, 2.0 * kept)), _LEAST_COST_S)
        if self._before is None:
            self._before = (cost_s, float(self._filter.values[1]))
        self._set(cost_s, period_s - cost_s * kept, period_s)
        return True

    def _return_overhead(self, kept: int, period_s: float, expected_s: float) -> bool:
        """Go back to the overhead before a jump, if a batch is surprisingly short and was to take just that then."""
        if self._before is None or period_s >= expected_s:
            return False
        cost_s, overhead_s = self._before
        if abs(overhead_s + cost_s * kept - period_s) > _UNLIKE * period_s:
            return False
        self._before = None
        self._set(cost_s, overhead_s, period_s)
        return True

    def _set(self, cost_s: float, overhead_s: float, period_s: float) -> None:
        """Start again from two numbers, neither of them sure."""
        self._filter.values[:] = [cost_s, overhead_s]
        self._filter.covariance[:] = np.diag([(0.5 * cost_s) ** 2, (0.2 * period_s) ** 2])
        self._settled, self._jump = 0, None

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
        return {
            "filter": self._filter.snapshot(),
            "has_cost": self._has_cost,
            "has_overhead": self._has_overhead,
            "settled": self._settled,
            "jump": None if self._jump is None else list(self._jump),
            "before": None if self._before is None else list(self._before),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot, as far as it goes."""
        state = self.snapshot() | dict(state)
        self._filter.restore(state["filter"])
        self._has_cost, self._has_overhead = state["has_cost"], state["has_overhead"]
        self._settled = state["settled"]
        self._jump = None if state["jump"] is None else tuple(state["jump"])
        self._before = None if state["before"] is None else tuple(state["before"])


_LEAST_COST_S = 1e-12
_SHORTEST_S, _LONGEST_S = 1e-9, 1e9
_SETTLED, _STALL = 3, 4.0
_UNLIKE = 0.3
_HALF, _AS_LONG = 0.5, 0.75
_MODERATE, _GROWN = 0.5, 4.0
