"""A linear filter for hundreds of values: each has an error of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DiagonalFilter"]

Values = NDArray[np.float64]


class DiagonalFilter:
    """`LinearFilter` with errors that are independent of each other, and values that are never below 0.

    A measurement moves the values by their share of the variance and makes those that took part more certain. What is lost is the
    knowledge that one value is too high if another is too low. In return it costs no more than the number of values, and its
    uncertainty can be bounded value by value.

    Examples
    --------
    >>> costs = DiagonalFilter([1.0, 1.0], [1.0, 1.0])
    >>> for _ in range(100):
    ...     for counts, seconds in ((np.array([1.0, 0.0]), 0.5), (np.array([1.0, 1.0]), 2.5)):
    ...         costs.correct(counts, seconds - costs.predict(counts), noise=0.01)
    >>> costs.values.round(1).tolist()
    [0.5, 2.0]
    """

    def __init__(self, values: Sequence[float] | Values, deviations: Sequence[float] | Values) -> None:
        self.values: Values = np.array(values, dtype=np.float64)
        self.variances: Values = np.square(np.asarray(deviations, dtype=np.float64))

    def predict(self, counts: Values) -> float:
        """Return the seconds that these counts should take."""
        return float(counts @ self.values)

    def variance(self, counts: Values) -> float:
        """Return how unsure ``predict`` is, as the square of a standard deviation."""
        return float(np.square(counts) @ self.variances)

    def widen(self, deviations: Values, most: Values | float = np.inf) -> None:
        """Add to how unsure each value is, up to a deviation of ``most``."""
        self.variances = np.minimum(self.variances + np.square(deviations), np.square(most))

    def correct(self, counts: Values, error_s: float, noise: float, *, least: float = 0.0) -> None:
        """Move the values by a prediction error, each as far as it is to blame, and hold them at ``least`` or above.

        ``noise`` is the variance of the measurement itself.
        """
        shared = self.variances * counts
        variance = float(counts @ shared) + noise
        if not variance > 0.0:
            return  # nothing is unsure, so nothing can be learned
        gain = shared / variance
        self.values = np.maximum(self.values + gain * error_s, least)
        self.variances = np.maximum(self.variances - gain * shared, 0.0)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"values": self.values.tolist(), "variances": self.variances.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self.values = np.array(state["values"], dtype=np.float64)
        variances = state["variances"] if "variances" in state else np.diagonal(state["covariance"])
        self.variances = np.array(variances, dtype=np.float64)
