"""What to keep of each bucket of keys, batch by batch: its rows, its costs, its keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.estimate.bucket_costs import BucketCosts
from penstock.las.knapsack import How, allocate

__all__ = ["BucketKeeps"]

Values = NDArray[np.float64]


class BucketKeeps:
    """Turns a share of the work into a keep for each bucket, from the costs and the rows of the batches before.

    Parameters
    ----------
    buckets
        How many there are.
    how
        How the share is divided; see `allocate`.
    floor
        The least keep of a bucket.

    Examples
    --------
    >>> model = BucketKeeps(2)
    >>> for _ in range(20):
    ...     model.update(np.array([100.0, 100.0]), np.array([0.1, 0.9]), np.ones(2))
    >>> model.costs_s.round(4).tolist()
    [0.001, 0.009]
    >>> model.share_out(0.55).round(2).tolist()             # of 1 s of work 0.55 s stay: the cheap rows, and half of the others
    [1.0, 0.5]
    """

    def __init__(self, buckets: int, *, how: How = "threshold", floor: float = 0.02) -> None:
        if not 0.0 < floor < 1.0:
            raise PenstockError(f"the floor must lie in (0, 1), got {floor!r}: what is never kept is never measured again")
        self.how: How = how
        self.floor = floor
        self._costs = BucketCosts(buckets)
        self.rows = np.zeros(buckets)
        """Rows that the next batch is expected to offer, by bucket."""
        self.keeps = np.ones(buckets)
        """The keep of each bucket in the batch that is running, or ran last."""

    @property
    def costs_s(self) -> Values:
        """Seconds per row of each bucket; nan before anything was measured."""
        return self._costs.costs_s

    @property
    def mean_s(self) -> float | None:
        """Mean seconds per offered row; ``None`` before anything was measured."""
        costs_s = self.costs_s
        offered = float(self.rows.sum())
        if not np.isfinite(costs_s).all() or offered <= 0.0:
            return None
        return float(costs_s @ self.rows) / offered

    def update(self, kept: Values, durations_s: Values, keeps: Values) -> None:
        """Learn from a batch of rows timed one by one: rows and seconds by bucket, and the keeps that were in force."""
        self._costs.update(kept, durations_s)
        self.update_offered(kept / np.maximum(keeps, 1e-6))

    def update_from_total(self, kept: Values, total_s: float) -> None:
        """Learn from the time that rows of several buckets took together."""
        self._costs.update_from_total(kept, total_s)

    def update_offered(self, rows: Sequence[float] | Values) -> None:
        """Learn how many rows of each bucket a batch was offered."""
        offered = np.asarray(rows, dtype=np.float64)
        if offered.sum() > 0:
            self.rows = 0.7 * self.rows + 0.3 * offered if self.rows.any() else offered.copy()

    def share_out(self, keep: float) -> Values:
        """Set ``keeps`` so that this share of the work stays, and return them."""
        costs_s = self.costs_s
        if keep >= 1.0 or self.mean_s is None:
            self.keeps = np.full(self.rows.size, min(1.0, keep))
        else:
            # A bucket without rows so far may get some: count it as a little.
            rows = self.rows + 1e-3 * float(self.rows.mean())
            self.keeps = allocate(rows, costs_s, keep * float(rows @ costs_s), how=self.how, floor=self.floor)
        return self.keeps

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"costs": self._costs.snapshot(), "rows": self.rows.tolist(), "keeps": self.keeps.tolist()}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the model."""
        self._costs.restore(state["costs"])
        self.rows = np.array(state["rows"], dtype=np.float64)
        self.keeps = np.array(state["keeps"], dtype=np.float64)
        return self
