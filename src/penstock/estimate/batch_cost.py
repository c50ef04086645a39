"""What a batch costs: a fixed overhead and a cost a row, learnt while the job runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError

__all__ = ["BatchCost", "BatchFilter"]


class BatchCost:
    """Least squares of batch time on rows kept, ``period = overhead + cost * kept``, older batches counting less.

    Under good control every batch keeps the same number of rows, and then overhead and cost can't be told apart: the
    slope is free. So the line is drawn through the weighted mean with the last slope that the data did support, rows having
    differed by ``min_spread`` of their mean; less than that is noise, and a slope drawn from it may be anything. Until there is
    one, all of the time is put down to the rows and the overhead is unknown. That errs towards shedding, which changes
    the number of rows, and that separates the two.

    >>> model = BatchCost()
    >>> for kept in (100, 400, 200, 300):
    ...     model.update(kept, 0.2 + 0.001 * kept)
    >>> round(model.overhead_s, 6), round(model.cost_s, 6)
    (0.2, 0.001)
    """

    def __init__(self, decay: float = 0.9, min_spread: float = 0.15) -> None:
        if not 0.0 < decay <= 1.0:
            raise PenstockError(f"decay must lie in (0, 1], got {decay}")
        self._decay = decay
        self._min_spread = min_spread
        self._weight = self._mean_rows = self._mean_s = 0.0
        self._rows_rows = self._rows_s = 0.0  # weighted sums of squares about the means
        self._slope: float | None = None

    def update(self, kept: int, period_s: float) -> None:
        """Take in one batch; one without rows or without a length says nothing about the cost of a row."""
        if kept < 0 or not (math.isfinite(period_s) and period_s > 0.0):
            return
        before = self._weight * self._decay
        self._weight = before + 1.0
        share = 1.0 / self._weight
        off_rows, off_s = kept - self._mean_rows, period_s - self._mean_s
        self._mean_rows += share * off_rows
        self._mean_s += share * off_s
        self._rows_rows = self._rows_rows * self._decay + before * share * off_rows * off_rows
        self._rows_s = self._rows_s * self._decay + before * share * off_rows * off_s
        spread = math.sqrt(self._rows_rows / self._weight)
        if spread > self._min_spread * self._mean_rows and self._mean_rows > 0.0:
            slope = self._rows_s / self._rows_rows
            # Both parts are positive: a line outside that is noise.
            self._slope = min(max(slope, 0.0), self._mean_s / self._mean_rows) or None

    @property
    def cost_s(self) -> float | None:
        """Seconds a row; ``None`` before the first row."""
        if self._mean_rows <= 0.0:
            return None
        return self._slope if self._slope is not None else self._mean_s / self._mean_rows

    @property
    def overhead_s(self) -> float | None:
        """Seconds a batch takes whatever it holds; ``None`` while it can't be told from the cost of its rows."""
        return None if self._slope is None else max(0.0, self._mean_s - self._slope * self._mean_rows)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {name: getattr(self, name) for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of a snapshot."""
        for name in self._STATE:
            setattr(self, name, state[name])

    _STATE = ("_weight", "_mean_rows", "_mean_s", "_rows_rows", "_rows_s", "_slope")


class BatchFilter:
    """A Kalman filter of ``period = overhead + cost * kept``: the overhead steady, the cost free to wander and to jump.

    Where batches keep the same number of rows, as they do under good control, a regression can't tell the two apart. Here
    a change goes to the cost, because the overhead is the engine's and changes little, and small batches tell the overhead. A
    batch that lies far outside of what is expected is a jump of the cost: the filter then forgets what it knew of it.

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
        self._noise = noise
        self._wander = wander
        self._drift = drift
        self._surprise = surprise
        self.overhead_s: float | None = None
        """Seconds a batch takes whatever it holds."""
        self.cost_s: float | None = None
        """Seconds a row; ``None`` before the first row."""
        self._oo = self._oc = self._cc = 0.0  # how unsure both are

    def update(self, kept: int, period_s: float) -> None:
        """Take in one batch."""
        if kept < 0 or not (math.isfinite(period_s) and period_s > 0.0):
            return
        if self.overhead_s is None or (self.cost_s is None and kept > 0):
            self._begin(kept, period_s)
            return
        cost_s = self.cost_s if self.cost_s is not None else 0.0
        self._oo += (self._drift * period_s) ** 2
        self._cc += (self._wander * cost_s) ** 2
        off_s = period_s - (self.overhead_s + cost_s * kept)
        noise = (self._noise * period_s) ** 2
        if kept > 0 and off_s * off_s > self._surprise**2 * (self._spread(kept) + noise):
            self._cc += (off_s / kept) ** 2
        spread = self._spread(kept) + noise
        to_overhead = (self._oo + kept * self._oc) / spread
        to_cost = (self._oc + kept * self._cc) / spread
        self.overhead_s = min(max(0.0, self.overhead_s + to_overhead * off_s), period_s)
        if self.cost_s is not None:
            self.cost_s = max(_LEAST_COST_S, self.cost_s + to_cost * off_s)
        oo, oc, cc = self._oo, self._oc, self._cc
        self._oo = max(0.0, oo - to_overhead * (oo + kept * oc))
        self._oc = oc - to_overhead * (oc + kept * cc)
        self._cc = max(0.0, cc - to_cost * (oc + kept * cc))

    def _begin(self, kept: int, period_s: float) -> None:
        """The first batch, or the first one with rows: all that is not known to be overhead is put down to the rows."""
        if kept == 0:
            self.overhead_s, self._oo = period_s, (0.5 * period_s) ** 2
            return
        if self.overhead_s is None:
            self.overhead_s, self._oo = 0.0, (0.3 * period_s) ** 2
        self.overhead_s = min(self.overhead_s, period_s)
        self.cost_s = max(_LEAST_COST_S, (period_s - self.overhead_s) / kept)
        self._cc = (0.5 * period_s / kept) ** 2
        self._oc = -self._oo / kept  # what is not the one is the other

    def _spread(self, kept: int) -> float:
        return max(0.0, self._oo + 2.0 * kept * self._oc + kept * kept * self._cc)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {name: getattr(self, name) for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of a snapshot."""
        for name in self._STATE:
            setattr(self, name, state[name])

    _STATE = ("overhead_s", "cost_s", "_oo", "_oc", "_cc")


_LEAST_COST_S = 1e-12
