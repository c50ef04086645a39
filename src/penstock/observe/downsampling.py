"""Long series in a few hundred points: the least, the mean and the largest value of every span of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buckets", "assign_buckets", "break_gaps"]

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Which of a few points each value of a series belongs to. Points without any value do not exist.

    >>> import numpy as np
    >>> buckets = assign_buckets(np.array([0.0, 1.0, 2.0, 9.0]), points=2)
    >>> buckets.count, buckets.mean(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    (2, [2.0, 4.0])
    """

    index: NDArray[np.int64]
    """The point of each value, in order."""
    count: int

    def sum(self, values: Vector) -> Vector:
        """Return the sum of each point's values; what is not known counts as zero."""
        return np.bincount(self.index, weights=np.nan_to_num(values), minlength=self.count).astype(np.float64)

    def mean(self, values: Vector, weights: Vector | None = None) -> Vector:
        """Return the mean of what is known of each point; nan where nothing is. Without any weight, all values weigh the same."""
        known = np.isfinite(values)
        plain = known.astype(float)
        heavy = plain if weights is None else np.where(known, np.nan_to_num(weights), 0.0)
        total = np.bincount(self.index, weights=heavy, minlength=self.count)
        heavy = np.where(total[self.index] > 0.0, heavy, plain)
        total = np.bincount(self.index, weights=heavy, minlength=self.count)
        summed = np.bincount(self.index, weights=heavy * np.where(known, values, 0.0), minlength=self.count)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(total > 0.0, summed / total, np.nan)
        # A rounded mean must not leave the range of its values.
        return np.clip(mean, self.min(values), self.max(values))

    def min(self, values: Vector) -> Vector:
        """Return the least of what is known of each point; nan where nothing is."""
        least = np.full(self.count, np.inf)
        np.minimum.at(least, self.index, np.where(np.isfinite(values), values, np.inf))
        return np.where(np.isfinite(least), least, np.nan)

    def max(self, values: Vector) -> Vector:
        """Return the largest of what is known of each point; nan where nothing is."""
        return -self.min(-values)

    def last(self, values: Vector) -> Vector:
        """Return the last of what is known of each point; nan where nothing is."""
        known = np.isfinite(values)
        last = np.full(self.count, np.nan)
        last[self.index[known]] = values[known]  # numpy assigns in order, so the last one stays
        return last


def assign_buckets(times: Vector, points: int) -> Buckets:
    """Share out values with ascending times among at most so many points.

    Few values are points of their own. Many are put together by equal spans of time, so that every point says the same about
    its span, whether batches were short or long.
    """
    count = len(times)
    if count <= points:
        return Buckets(np.arange(count), count)
    width_s = float(times[-1] - times[0]) / points
    if not width_s > 0.0:
        return Buckets(np.zeros(count, dtype=np.int64), 1)
    slots = np.minimum(((times - times[0]) / width_s).astype(np.int64), points - 1)
    _, index = np.unique(slots, return_inverse=True)
    return Buckets(index.reshape(-1), int(index[-1]) + 1)


def break_gaps(times: Vector, *, factor: float = 12.0, least_s: float = 5.0) -> list[int]:
    """Return the positions before which a line must break: nothing was known for far longer than usual.

    >>> import numpy as np
    >>> break_gaps(np.array([0.0, 1.0, 2.0, 300.0, 301.0]))
    [3]
    """
    if len(times) < 3:
        return []
    steps = np.diff(times)
    usual_s = float(np.median(steps))
    return [int(position) + 1 for position in np.flatnonzero(steps > max(least_s, factor * usual_s))]
