"""The filter behind the learners: what each unit of several things costs, from what they cost together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LinearFilter"]

Values = NDArray[np.float64]


class LinearFilter:
    """A Kalman filter of ``seconds = sum of values * counts``: each value is a cost per unit of what its count counts.

    An overhead is a value whose count is always 1. The filter only does the algebra. How noisy a measurement is, how far values
    wander from one to the next and what counts as a jump is decided by the learners that use it: they call ``widen`` before
    ``correct``.

    Parameters
    ----------
    values
        Where each value starts.
    deviations
        How far off each of them may be, as one standard deviation.

    Examples
    --------
    >>> costs = LinearFilter([0.0, 0.0], [1.0, 1.0])
    >>> for counts, seconds in (([1, 1], 3.0), ([2, 1], 4.0)):
    ...     costs.correct(counts, seconds - costs.predict(counts), noise=1e-12)
    >>> costs.values.round(6).tolist()
    [1.0, 2.0]
    """

    def __init__(self, values: Sequence[float] | Values, deviations: Sequence[float] | Values) -> None:
        self.values: Values = np.array(values, dtype=np.float64)
        self.covariance: Values = np.diag(np.square(np.asarray(deviations, dtype=np.float64)))

    @property
    def variances(self) -> Values:
        """The square of each value's standard deviation."""
        return np.maximum(np.diagonal(self.covariance), 0.0)

    def predict(self, counts: ArrayLike) -> float:
        """Return the seconds that these counts should take."""
        return float(np.asarray(counts, dtype=np.float64) @ self.values)

    def variance(self, counts: ArrayLike) -> float:
        """Return how unsure ``predict`` is, as the square of a standard deviation."""
        vector = np.asarray(counts, dtype=np.float64)
        return max(0.0, float(vector @ self.covariance @ vector))

    def widen(self, deviations: ArrayLike) -> None:
        """Add to how unsure each value is, independently of the others."""
        diagonal = np.diag_indices_from(self.covariance)
        self.covariance[diagonal] += np.square(np.asarray(deviations, dtype=np.float64))

    def correct(
        self,
        counts: ArrayLike,
        error_s: float,
        noise: float,
        *,
        least: ArrayLike = -np.inf,
        most: ArrayLike = np.inf,
    ) -> None:
        """Move the values by a prediction error, each as far as it is to blame, and hold them between bounds.

        Parameters
        ----------
        counts
            The counts that were measured.
        error_s
            The seconds measured minus the seconds predicted.
        noise
            Variance of the measurement itself.
        least, most
            Bounds, for all values or for each.
        """
        vector = np.asarray(counts, dtype=np.float64)
        shared = self.covariance @ vector
        variance = max(0.0, float(vector @ shared)) + noise
        if not variance > 0.0:
            return  # nothing is unsure, so nothing can be learned
        gain = shared / variance
        self.values = np.clip(self.values + gain * error_s, least, most)
        covariance = self.covariance - np.outer(gain, shared)
        # Rounding may leave a covariance that its two variances do not allow, and the next corrections would run away.
        deviations = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
        largest = np.outer(deviations, deviations)
        self.covariance = np.clip((covariance + covariance.T) / 2.0, -largest, largest)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"values": self.values.tolist(), "covariance": self.covariance.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot."""
        self.values = np.array(state["values"], dtype=np.float64)
        self.covariance = np.array(state["covariance"], dtype=np.float64)
