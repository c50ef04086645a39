"""How many rows each of many operators puts out per row that it takes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Selectivities"]

Values = NDArray[np.float64]


class Selectivities:
    """A `SelectivityEstimator` for each of many operators, as arrays: a thousand operators take little longer than one.

    Parameters
    ----------
    declared
        The ratio to start from, by operator.
    weight, decay, surprise
        As for `SelectivityEstimator`, for all operators or for each.

    Examples
    --------
    >>> ratios = Selectivities([1.0, 1.0])
    >>> for _ in range(5):
    ...     ratios.update(np.array([0, 1]), [1000, 1000], [400, 900])
    >>> ratios.values.round(2).tolist()
    [0.4, 0.9]
    """

    def __init__(
        self, declared: ArrayLike, *, weight: ArrayLike = 20.0, decay: ArrayLike = 0.8, surprise: ArrayLike = 4.0
    ) -> None:
        start = np.asarray(declared, dtype=np.float64)
        self._rows_in = np.broadcast_to(np.asarray(weight, dtype=np.float64), start.shape).copy()
        self._rows_out = self._rows_in * start
        self._squares = np.zeros_like(start)
        self._decay = np.broadcast_to(np.asarray(decay, dtype=np.float64), start.shape)
        self._surprise = np.broadcast_to(np.asarray(surprise, dtype=np.float64), start.shape)

    def update(self, operators: NDArray[np.int64], rows_in: ArrayLike, rows_out: ArrayLike) -> None:
        """Learn from one batch of some operators, by position."""
        entering, leaving = np.asarray(rows_in, dtype=np.float64), np.asarray(rows_out, dtype=np.float64)
        usable = (entering > 0) & (leaving >= 0) & np.isfinite(entering) & np.isfinite(leaving)
        members, entering, leaving = operators[usable], entering[usable], leaving[usable]
        value, variance = self.values[members], self._variances()[members]
        off = leaving - value * entering
        expected = variance * entering + variance / self._rows_in[members] * entering**2
        with np.errstate(invalid="ignore"):  # an infinite surprise is never reached
            is_new = off * off > self._surprise[members] ** 2 * expected
        memory = np.where(is_new, 0.0, self._decay[members])
        self._rows_in[members] = memory * self._rows_in[members] + entering
        self._rows_out[members] = memory * self._rows_out[members] + leaving
        value = self._rows_out[members] / self._rows_in[members]
        self._squares[members] = memory * self._squares[members] + (leaving - value * entering) ** 2

    def _variances(self) -> Values:
        """Of what one row becomes: at least what chance makes of a filter, more where batches differ by more."""
        value = self.values
        chance = np.where((value > 0.0) & (value < 1.0), value * (1.0 - value), value)
        return np.maximum(np.maximum(chance, self._squares / self._rows_in), 1e-4)

    @property
    def values(self) -> Values:
        """The ratios."""
        ratios: Values = self._rows_out / self._rows_in
        return ratios

    @property
    def errors(self) -> Values:
        """One standard deviation of each ratio."""
        return np.sqrt(self._variances() / self._rows_in)

    def snapshot(self, operators: NDArray[np.int64] | None = None) -> list[list[float]]:
        """Return the state of all operators, or of some by position, as plain JSON values."""
        members = slice(None) if operators is None else operators
        state = np.column_stack([self._rows_in[members], self._rows_out[members], self._squares[members]])
        return state.tolist()  # type: ignore[no-any-return]

    def restore(self, state: Sequence[Sequence[Any]], operators: NDArray[np.int64] | None = None) -> None:
        """Continue from a snapshot, of all operators or of some by position."""
        values = np.array(state, dtype=np.float64).reshape(-1, 3)
        members = np.arange(self._rows_in.size) if operators is None else operators
        usable = values[:, 0] > 0
        members, values = members[usable], values[usable]
        self._rows_in[members], self._rows_out[members], self._squares[members] = values.T
