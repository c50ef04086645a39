"""ArrivalCosts: what the tuples that arrive are expected to cost, as a histogram that forgets."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["ArrivalCosts"]

BINS, BINS_PER_OCTAVE, FIRST_OCTAVE = 160, 4, -32
"""From 2^-33 s, a tenth of a nanosecond, to 2^7 s: four bins for each doubling of the cost."""
BLOCK, FIRST_BLOCK = 64, 16
"""Arrivals after which the histogram is added up again, and how many are needed for the first time."""
MEMORY = 0.9
"""The share of the histogram that is kept from one block to the next."""


class ArrivalCosts:
    """Tells how much work the tuples bring that cost less than a given one, and whether costs differ at all.

    The first answer tells whether a tuple fits: cheapest first, a budget of work per arrival admits a tuple if all cheaper ones
    fit as well. The second one, ``spread``, is 0 if all cost the same: then nobody can choose. It is ``2 k - 1``, where k is the
    share of the arrivals, cheapest first, that brings half of the work.

    Examples
    --------
    >>> costs = ArrivalCosts()
    >>> for _ in range(32):
    ...     costs.add(0.001)
    ...     costs.add(0.010)
    >>> round(costs.work_up_to(0.010), 4), round(costs.mean_s, 4), round(costs.spread, 2)     # 0.0005 + 0.005 / 2
    (0.003, 0.0055, 0.45)
    """

    def __init__(self) -> None:
        self.is_ready = False
        """Whether enough tuples have arrived."""
        self.mean_s = 0.0
        self.spread = 0.0
        self._work_s, self._count = np.zeros(BINS), np.zeros(BINS)
        self._new_work_s, self._new_count = [0.0] * BINS, [0.0] * BINS
        self._below_s = [0.0] * BINS
        self._size, self._new = 0.0, 0

    def add(self, cost_s: float) -> None:
        """Count a tuple that arrives."""
        number = bin_of(cost_s)
        self._new_work_s[number] += cost_s
        self._new_count[number] += 1.0
        self._new += 1
        if self._new >= (BLOCK if self.is_ready else FIRST_BLOCK):
            self._add_up()

    def work_up_to(self, cost_s: float) -> float:
        """Return how many seconds of work an arrival brings on average in tuples cheaper than this; equal ones count by half."""
        return self._below_s[bin_of(cost_s)]

    def _add_up(self) -> None:
        self._size = self._size * MEMORY + self._new
        self._work_s = self._work_s * MEMORY + np.array(self._new_work_s)
        self._count = self._count * MEMORY + np.array(self._new_count)
        self._new_work_s, self._new_count, self._new = [0.0] * BINS, [0.0] * BINS, 0
        work_s, count = np.cumsum(self._work_s), np.cumsum(self._count)
        total_s = float(work_s[-1])
        self._below_s = ((work_s - 0.5 * self._work_s) / self._size).tolist()
        self.mean_s, self.is_ready = total_s / self._size, True
        middle = int(np.searchsorted(work_s, 0.5 * total_s))
        before = float(count[middle]) - float(self._count[middle])
        if self._work_s[middle] > 0:
            part = (0.5 * total_s - (float(work_s[middle]) - float(self._work_s[middle]))) / float(self._work_s[middle])
            before += float(self._count[middle]) * part
        self.spread = max(2.0 * before / self._size - 1.0, 0.0)


def bin_of(cost_s: float) -> int:
    """Return the bin of a cost, by the bits of the number: four to a doubling.

    >>> bin_of(0.0), bin_of(1.0) - bin_of(0.5), bin_of(1e9)
    (0, 4, 159)
    """
    mantissa, exponent = math.frexp(cost_s)
    number = (exponent - FIRST_OCTAVE) * BINS_PER_OCTAVE + int((mantissa - 0.5) * (2 * BINS_PER_OCTAVE))
    return min(max(number, 0), BINS - 1) if cost_s > 0 else 0
