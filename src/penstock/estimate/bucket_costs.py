"""What a row costs by the bucket of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.estimate.linear_filter import LinearFilter

__all__ = ["BucketCosts"]

Values = NDArray[np.float64]

_DECAY = 0.8
_NOISE, _FORGETTING = 0.05, 0.995
_PRIOR = 2.0
"""Rows of the mean cost that a bucket starts with: one slow row of a rare key must not shed it for long."""


class BucketCosts:
    """Seconds per row of each bucket, from rows timed one by one or from totals over several buckets.

    Rows timed one by one (``update``) are counted and summed by bucket, as in one row of a LAS sketch, and decayed from batch to
    batch. A batch function or a native operator only gives the time of several rows together (``update_from_total``): then costs
    are learned by a linear filter with a fixed time per call, never below 0. Use one of the two throughout.

    Examples
    --------
    >>> costs = BucketCosts(2)
    >>> for _ in range(20):
    ...     costs.update(np.array([100.0, 100.0]), np.array([0.1, 0.9]))
    >>> costs.costs_s.round(4).tolist()
    [0.001, 0.009]
    """

    def __init__(self, buckets: int) -> None:
        if buckets < 1:
            raise PenstockError(f"the number of buckets must be positive, got {buckets}")
        self.buckets = buckets
        self._counts, self._durations_s = np.zeros(buckets), np.zeros(buckets)
        self._filter: LinearFilter | None = None

    @property
    def costs_s(self) -> Values:
        """Seconds per row of each bucket; nan before anything was measured."""
        if self._filter is not None:
            return self._filter.values[:-1].copy()
        count = float(self._counts.sum())
        mean_s = float(self._durations_s.sum()) / count if count > 0 else np.nan
        costs_s: Values = (self._durations_s + _PRIOR * mean_s) / (self._counts + _PRIOR)
        return costs_s

    def update(self, rows: Values, durations_s: Values) -> None:
        """Learn from a batch: its rows and the seconds they took, by bucket."""
        self._counts = _DECAY * self._counts + rows
        self._durations_s = _DECAY * self._durations_s + np.maximum(durations_s, 0.0)

    def update_from_total(self, rows: Values, total_s: float) -> None:
        """Learn from the time that rows of several buckets took together."""
        count = float(rows.sum())
        if count <= 0.0 or not np.isfinite(total_s):
            return
        total_s = max(total_s, 0.0)
        if self._filter is None:
            mean_s = total_s / count
            # What is not known yet may be off by about as much as it is; the fixed time of a call likewise, by a row or two.
            deviation_s = max(mean_s, 1e-9)
            self._filter = LinearFilter([*[mean_s] * self.buckets, 0.0], [deviation_s] * (self.buckets + 1))
        counts = np.append(rows, 1.0)
        work_s = float(rows @ self._filter.values[:-1])
        noise = (_NOISE * max(total_s, work_s, 1e-9)) ** 2
        self._filter.correct(counts, total_s - self._filter.predict(counts), noise, least=0.0)
        self._filter.forget(_FORGETTING)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "counts": self._counts.tolist(),
            "durations_s": self._durations_s.tolist(),
            "learned": None if self._filter is None else self._filter.values[:-1].tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot.

        Raises
        ------
        PenstockError
            If the snapshot has another number of buckets.
        """
        if len(state["counts"]) != self.buckets:
            raise PenstockError(f"the costs of {len(state['counts'])} buckets were stored, and there are {self.buckets} now")
        self._counts = np.array(state["counts"], dtype=np.float64)
        self._durations_s = np.array(state["durations_s"], dtype=np.float64)
        learned = state["learned"]
        if learned is not None:
            deviation_s = max(float(np.mean(learned)), 1e-9)
            self._filter = LinearFilter([*learned, 0.0], [deviation_s] * (self.buckets + 1))
