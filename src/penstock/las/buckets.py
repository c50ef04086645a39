"""What rows cost by bucket of their key, batch by batch: one row of the sketches, on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.las.knapsack import How, allocate

__all__ = ["BucketCosts"]

_DECAY = 0.8
_NOISE, _FORGETTING = 0.05, 0.995
_PRIOR = 2.0
"""Rows of the mean cost that a bucket starts with: one slow row of a rare key must not shed it for long."""


class BucketCosts:
    """Counts and cumulated durations by bucket, decayed from batch to batch, and how many rows each bucket is offered.

    Costs are measured row by row (``measured``), or only for several rows together, as a batch function or a native operator
    allows (``together``): then they are learnt by recursive least squares with a fixed time a call, never below 0.

    >>> model = BucketCosts(2)
    >>> for _ in range(20):
    ...     model.measured(np.array([100.0, 100.0]), np.array([0.1, 0.9]), np.ones(2))
    >>> model.costs_s.round(4).tolist()
    [0.001, 0.009]
    """

    def __init__(self, buckets: int, *, how: How = "threshold", floor: float = 0.02) -> None:
        if buckets < 1:
            raise PenstockError(f"the number of buckets must be positive, got {buckets}")
        if not 0.0 < floor < 1.0:
            raise PenstockError(f"the floor must lie in (0, 1), got {floor!r}: what is never kept is never measured again")
        self.how: How = how
        self.floor = floor
        self.rows = np.zeros(buckets)
        """Rows that a batch is expected to offer."""
        self._frequency, self._duration = np.zeros(buckets), np.zeros(buckets)
        self._learnt = np.full(buckets, np.nan)
        self._fixed_s = 0.0
        self._spread: NDArray[np.float64] | None = None
        self.keeps = np.ones(buckets)
        """What was kept of each bucket in the batch that is running, or was last."""

    @property
    def mean_s(self) -> float | None:
        """The mean cost of an offered row; ``None`` before anything was measured."""
        costs = self.costs_s
        offered = float(self.rows.sum())
        if not np.isfinite(costs).all() or offered <= 0.0:
            return None
        return float(costs @ self.rows) / offered

    @property
    def costs_s(self) -> NDArray[np.float64]:
        """The cost of a row of each bucket; nan before anything was measured."""
        if np.isfinite(self._learnt).any():
            return np.where(np.isfinite(self._learnt), self._learnt, np.nanmean(self._learnt))
        count = float(self._frequency.sum())
        mean = float(self._duration.sum()) / count if count > 0 else np.nan
        found: NDArray[np.float64] = (self._duration + _PRIOR * mean) / (self._frequency + _PRIOR)
        return found

    def measured(self, kept: NDArray[np.float64], durations_s: NDArray[np.float64], keeps: NDArray[np.float64]) -> None:
        """Take in a batch: rows executed and the time they took, by bucket, and the keeps that were in force."""
        self._frequency = _DECAY * self._frequency + kept
        self._duration = _DECAY * self._duration + np.maximum(durations_s, 0.0)
        self._offered(kept / np.maximum(keeps, 1e-6))

    def together(self, kept: NDArray[np.float64], seconds: float) -> None:
        """Take in the time that rows of several buckets took together."""
        if kept.sum() <= 0.0 or not np.isfinite(seconds):
            return
        seconds = max(seconds, 0.0)
        if not np.isfinite(self._learnt).any():
            self._learnt[:] = seconds / float(kept.sum())
        if self._spread is None:
            # What is not known yet may be off by about as much as it is; the fixed time of a call likewise, by a row or two.
            typical = max(float(np.mean(self._learnt)), 1e-9)
            self._spread = np.diag(np.full(kept.size + 1, typical**2))
        seen = np.append(kept, 1.0)
        error = seconds - float(kept @ self._learnt) - self._fixed_s
        gain = self._spread @ seen
        noise = (_NOISE * max(seconds, float(kept @ self._learnt), 1e-9)) ** 2
        gain_scaled = gain / (float(seen @ gain) + noise)
        self._learnt = np.maximum(self._learnt + gain_scaled[:-1] * error, 0.0)
        self._fixed_s = max(self._fixed_s + float(gain_scaled[-1]) * error, 0.0)
        self._spread = (self._spread - np.outer(gain_scaled, gain)) / _FORGETTING

    def offered(self, rows: Sequence[float] | NDArray[np.float64]) -> None:
        """Take in how many rows of each bucket a batch was offered, where that was counted."""
        self._offered(np.asarray(rows, dtype=np.float64))

    def _offered(self, rows: NDArray[np.float64]) -> None:
        if rows.sum() > 0:
            self.rows = rows.copy() if not self.rows.any() else 0.7 * self.rows + 0.3 * rows

    def share_out(self, keep: float) -> NDArray[np.float64]:
        """Turn a share of the work into keeps, and remember them."""
        costs = self.costs_s
        if keep >= 1.0 or self.mean_s is None:
            self.keeps = np.full(self.rows.size, min(1.0, keep))
        else:
            # A bucket that no row has come to yet may get one: count it as a little.
            rows = self.rows + 1e-3 * float(self.rows.mean())
            self.keeps = allocate(rows, costs, keep * float(rows @ costs), how=self.how, floor=self.floor)
        return self.keeps

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        learnt = [None if np.isnan(value) else value for value in self._learnt.tolist()]
        return {
            "rows": self.rows.tolist(),
            "frequency": self._frequency.tolist(),
            "duration": self._duration.tolist(),
            "learnt": learnt if any(value is not None for value in learnt) else None,
            "keeps": self.keeps.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Take the state of a snapshot and return the model."""
        if len(state["rows"]) != self.rows.size:
            raise PenstockError(f"the costs of {len(state['rows'])} buckets were stored, and there are {self.rows.size} now")
        self.rows = np.array(state["rows"], dtype=np.float64)
        self._frequency = np.array(state["frequency"], dtype=np.float64)
        self._duration = np.array(state["duration"], dtype=np.float64)
        if state["learnt"] is not None:
            self._learnt = np.array([np.nan if value is None else value for value in state["learnt"]], dtype=np.float64)
        self.keeps = np.array(state["keeps"], dtype=np.float64)
        return self
