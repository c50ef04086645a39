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
    is free. So the line goes through the weighted mean with the last slope that the data supported. They support one if the rows
    differ by ``min_spread`` of their mean, and if the slope is at least twice its standard error, for batch times that vary by
    ``noise``. A slope drawn from less may be anything.

    Until there is one, the overhead is unknown and the cost is the highest that the data allow: all of the time by all of the
    rows, or, if the rows differed and the times did not, the slope plus twice its error. That errs towards shedding. Both bounds
    fall as batches with more rows take no longer, so a cost learned from a batch of one row does not stay.

    `Aurora`, `Ctrl` and `Seamless` use it because they behave differently while the overhead is unknown. `BatchFilter` always
    has an opinion.

    Parameters
    ----------
    decay
        Weight of a batch, relative to the one after it.
    min_spread
        Standard deviation of the rows, relative to their mean, from which on a slope is believed.
    noise
        Standard deviation of batch times, relative to their mean.

    Examples
    --------
    >>> model = BatchRegression()
    >>> for kept in (100, 400, 200, 300):
    ...     model.update(kept, 0.2 + 0.001 * kept)
    >>> round(model.overhead_s, 6), round(model.cost_s, 6)
    (0.2, 0.001)
    """

    def __init__(self, decay: float = 0.9, min_spread: float = 0.15, noise: float = 0.1) -> None:
        if not 0.0 < decay <= 1.0:
            raise PenstockError(f"decay must lie in (0, 1], got {decay}")
        self._decay = decay
        self._min_spread = min_spread
        self._noise = noise
        self._weight = self._mean_rows = self._mean_s = 0.0
        self._rows_rows = self._rows_s = 0.0  # weighted sums of squares about the means
        self._is_empty = False
        self._slope: float | None = None
        self._most: float | None = None  # the highest slope that the data allow, if they allow no slope

    def update(self, kept: int, period_s: float) -> None:
        """Learn from one batch. One without a length is ignored, and so is an empty one after another."""
        is_repeated = self._is_empty and kept == 0
        if kept < 0 or is_repeated or not (math.isfinite(period_s) and period_s > 0.0):
            return
        self._is_empty = kept == 0
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
            self._fit(spread)

    def _fit(self, spread: float) -> None:
        """Draw the slope, or a bound for it, from rows that differ by ``spread``."""
        slope = self._rows_s / self._rows_rows
        error = self._noise * self._mean_s / (spread * math.sqrt(self._weight))
        # Both parts are positive: a line outside that is noise.
        if slope >= 2.0 * error:
            self._slope = min(slope, self._seconds_per_row)
        elif self._slope is None:
            self._most = max(slope, 0.0) + 2.0 * error
        else:
            self._slope = min(self._slope, max(slope, 0.0) + 2.0 * error)

    @property
    def cost_s(self) -> float | None:
        """Seconds per row; ``None`` before the first row."""
        if self._mean_rows <= 0.0:
            return None
        if self._slope is not None:
            return self._slope
        return self._seconds_per_row if self._most is None else min(self._most, self._seconds_per_row)

    @property
    def _seconds_per_row(self) -> float:
        """All of the time by all of the rows."""
        return self._mean_s / self._mean_rows

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

    _STATE = ("weight", "mean_rows", "mean_s", "rows_rows", "rows_s", "is_empty", "slope", "most")
