"""What a batch costs, as a regression: an overhead and a cost per row, and no overhead until the data show one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.errors import PenstockError

__all__ = ["BatchRegression"]


class BatchRegression:
    """Least squares of batch time on rows kept, ``period = overhead + cost * kept``, with older batches counting less.

    Under good control every batch keeps the same number of rows, and then no method can separate overhead from cost: the slope
    is free. So the line goes through the weighted mean with the last slope that the data supported. They support one while the
    rows differ by ``min_spread`` of their mean; less than that is noise, and a slope drawn from it may be anything. Until there
    is one, all of the time is attributed to the rows and the overhead is unknown. That errs towards shedding, which changes the
    number of rows, and that separates the two.

    `Aurora`, `Ctrl` and `Seamless` use it because they behave differently while the overhead is unknown. `BatchFilter` always
    has an opinion.

    Parameters
    ----------
    decay
        Weight of a batch, relative to the one after it.
    min_spread
        Standard deviation of the rows, relative to their mean, from which on a slope is believed.

    Examples
    --------
    >>> model = BatchRegression()
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
        """Learn from one batch. A batch without a length is ignored."""
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
            self._slope = min(max(slope, 0.0), self._seconds_per_row) or None

    @property
    def cost_s(self) -> float | None:
        """Seconds per row; ``None`` before the first row."""
        if self._mean_rows <= 0.0:
            return None
        return self._slope if self._slope is not None else self._seconds_per_row

    @property
    def _seconds_per_row(self) -> float:
        """All of the time by all of the rows. After thousands of empty batches their mean is next to nothing."""
        return self._mean_s / max(self._mean_rows, _LEAST_ROWS)

    @property
    def overhead_s(self) -> float | None:
        """Seconds that a batch takes without any rows; ``None`` while it can't be separated from the cost of its rows."""
        return None if self._slope is None else max(0.0, self._mean_s - self._slope * self._mean_rows)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {name: getattr(self, f"_{name}") for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        for name in self._STATE:
            setattr(self, f"_{name}", state[name])

    _STATE = ("weight", "mean_rows", "mean_s", "rows_rows", "rows_s", "slope")


_LEAST_ROWS = 1e-6
