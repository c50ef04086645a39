"""How many rows an operator puts out per row that it takes in."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.estimate.estimate import Estimate

__all__ = ["SelectivityEstimator"]


class SelectivityEstimator:
    """Rows out per row in, with older batches counting less; a batch far outside of what is expected starts it anew.

    Parameters
    ----------
    declared
        The ratio to start from.
    weight
        How many rows the declared ratio counts as.
    decay
        Weight of a batch, relative to the one after it.
    surprise
        Deviations from the expected rows beyond which everything before the batch is forgotten.

    Examples
    --------
    >>> ratio = SelectivityEstimator(1.0)
    >>> for _ in range(5):
    ...     ratio.update(1000, 400)
    >>> round(ratio.estimate.value, 2)
    0.4
    """

    def __init__(self, declared: float, *, weight: float = 20.0, decay: float = 0.8, surprise: float = 4.0) -> None:
        self._rows_in, self._rows_out, self._squares = weight, weight * declared, 0.0
        self._decay, self._surprise = decay, surprise

    def update(self, rows_in: float, rows_out: float) -> None:
        """Learn from one batch."""
        if not (rows_in > 0 and rows_out >= 0 and math.isfinite(rows_in) and math.isfinite(rows_out)):
            return
        before = self.estimate
        off = rows_out - before.value * rows_in
        if off * off > self._surprise**2 * (self._variance * rows_in + before.error**2 * rows_in**2):
            self._rows_in = self._rows_out = self._squares = 0.0
        self._rows_in = self._decay * self._rows_in + rows_in
        self._rows_out = self._decay * self._rows_out + rows_out
        value = self._rows_out / self._rows_in
        self._squares = self._decay * self._squares + (rows_out - value * rows_in) ** 2

    @property
    def _variance(self) -> float:
        """Of what one row becomes: at least what chance makes of a filter, more where batches differ by more."""
        value = self._rows_out / self._rows_in
        chance = value * (1.0 - value) if 0.0 < value < 1.0 else value
        return max(chance, self._squares / self._rows_in, 1e-4)

    @property
    def estimate(self) -> Estimate:
        """The ratio, with its error."""
        return Estimate(self._rows_out / self._rows_in, math.sqrt(self._variance / self._rows_in))

    def snapshot(self) -> list[float]:
        """Return the state as plain JSON values."""
        return [self._rows_in, self._rows_out, self._squares]

    def restore(self, state: Sequence[float]) -> None:
        """Continue from a snapshot."""
        if state[0] > 0:
            self._rows_in, self._rows_out, self._squares = (float(value) for value in state)
