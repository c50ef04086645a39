"""What a row costs by the bucket of its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.estimate.diagonal_filter import DiagonalFilter

__all__ = ["BucketCosts"]

Values = NDArray[np.float64]

_DECAY = 0.8
_NOISE, _WANDER, _LEAST_WANDER = 0.05, 0.03, 0.006
_OVERHEAD = 0.3
"""The share of a first call that may be overhead, as one standard deviation."""
_PRIOR = 2.0
"""Rows of the mean cost that a bucket starts with: one slow row of a rare key must not shed it for long."""


class BucketCosts:
    """Seconds per row of each bucket, from rows timed one by one or from totals over several buckets.

    Rows timed one by one (``update``) are counted and summed by bucket, as in one row of a LAS sketch, and decayed from batch to
    batch. A batch function or a native operator only gives the time of several rows together (``update_from_total``): then costs
    are learned by a filter of ``total = overhead + sum of cost * rows``, never below 0. Use one of the two throughout.

    The filter treats the errors of buckets as independent. A filter with all their covariances would extract more from each
    total in theory. In practice it runs away: hundreds of unknown costs need more totals than it remembers, and where the rows of
    all buckets rise and fall together, as they do when a native operator is timed, totals do not separate them at all. This one
    then stays near the mean cost. It also makes an update and a snapshot linear in the number of buckets.

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
        self._filter: DiagonalFilter | None = None
        self._first_s = (0.0, 0.0)  # of the first total: seconds per row, and what may be overhead

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
            self._first_s = (max(total_s / count, 1e-9), max(_OVERHEAD * total_s, 1e-9))
            self._filter = DiagonalFilter([*[total_s / count] * self.buckets, 0.0], self._deviations_s())
        # A bucket without rows becomes as uncertain as it was in the beginning, or as its cost is high, but not more.
        most = np.maximum(self._deviations_s(), self._filter.values)
        wander = np.maximum(_WANDER * self._filter.values, _LEAST_WANDER * self._deviations_s())
        self._filter.widen(wander, most)
        counts = np.append(rows, 1.0)
        expected_s = self._filter.predict(counts)
        noise = (_NOISE * max(total_s, expected_s, 1e-9)) ** 2
        self._filter.correct(counts, total_s - expected_s, noise)
        self._counts += rows
        # A bucket without any rows so far costs the mean as it is now: the first call is often far slower than the others.
        costs_s = self._filter.values[:-1]
        costs_s[self._counts == 0.0] = float(self._counts @ costs_s) / float(self._counts.sum())

    def _deviations_s(self) -> Values:
        """How far off each cost may be at most, and the overhead: each by as much as it may be."""
        return np.append(np.full(self.buckets, self._first_s[0]), self._first_s[1])

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "counts": self._counts.tolist(),
            "durations_s": self._durations_s.tolist(),
            "filter": None if self._filter is None else self._filter.snapshot(),
            "first_s": list(self._first_s),
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
        self._first_s = (float(state["first_s"][0]), float(state["first_s"][1]))
        self._filter = None
        if state["filter"] is not None:
            self._filter = DiagonalFilter(np.zeros(self.buckets + 1), np.zeros(self.buckets + 1))
            self._filter.restore(state["filter"])
