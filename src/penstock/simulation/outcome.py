"""The result of a simulated run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.compiled import compiled

__all__ = ["DelayTally", "Outcome", "PeriodSeries", "find_bin"]

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Delay, violation and loss of a run. The violation of a row is ``max(0, delay - target)``."""

    delay_target_s: float
    offered: int
    kept: int
    completed: int
    """Rows that left before the run ended."""
    mean_delay_s: float
    p99_delay_s: float
    max_delay_s: float
    mean_violation_s: float
    expired: int = 0
    """Rows that were shed because they could not meet the target any more."""
    notes: tuple[str, ...] = ()
    """What a user of a real job would have been told."""
    series: Mapping[str, Times] = field(default_factory=dict, repr=False)
    """By period or batch: ``t_s``, ``delay_s`` (nan if nothing left), ``keep``, ``rate``, and others that the engine adds."""

    @property
    def max_violation_s(self) -> float:
        """The worst violation."""
        return max(0.0, self.max_delay_s - self.delay_target_s)

    @property
    def loss(self) -> float:
        """The share of the rows that was shed."""
        return 1.0 - self.kept / self.offered if self.offered else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        return {
            "mean_delay_s": self.mean_delay_s,
            "p99_delay_s": self.p99_delay_s,
            "mean_violation_s": self.mean_violation_s,
            "max_violation_s": self.max_violation_s,
            "loss": self.loss,
            "offered": self.offered,
            "kept": self.kept,
            "completed": self.completed,
            "expired": self.expired,
            "notes": list(self.notes),
        }

    @classmethod
    def of(cls, delays_s: Times, delay_target_s: float, offered: int, kept: int, series: Mapping[str, Times]) -> Outcome:
        """Return the outcome of a run from the delays of all rows that left."""
        tally = DelayTally(delay_target_s)
        tally.add(delays_s)
        return tally.outcome(offered, kept, series)


_BIN_S, _EVEN_BINS = 0.005, 200_000
_GROWTH = 0.005
_GROWING_BINS = 4_200


class DelayTally:
    """Mean, maximum, violation and 99th percentile of delays that are too many to keep: sums and a histogram.

    Up to 1,000 s all bins are 5 ms wide; beyond that each is wider than the last by 0.5 %, up to 10^12 s. So a percentile is
    exact to 5 ms or 0.5 %, however long the delay.

    Examples
    --------
    >>> tally = DelayTally(delay_target_s=2.0)
    >>> tally.add(np.full(100, 5_000.0))
    >>> tally.add(np.full(1, 9_000.0))
    >>> bool(abs(tally.outcome(101, 101, {}).p99_delay_s / 5_000.0 - 1.0) < 0.005)
    True
    """

    def __init__(self, delay_target_s: float) -> None:
        self.target_s = delay_target_s
        self.counts = np.zeros(_EVEN_BINS + _GROWING_BINS, dtype=np.int64)
        """How many delays fell into each bin; see ``find_bin``."""
        self.totals = np.zeros(3)
        """Sum of delays, sum of violations, the largest delay."""

    def add(self, delays_s: Times) -> None:
        """Add delays."""
        if delays_s.size == 0:
            return
        even = delays_s / _BIN_S
        growing = _EVEN_BINS + np.log(np.maximum(even / _EVEN_BINS, 1.0)) / math.log1p(_GROWTH)
        bins = np.where(even < _EVEN_BINS, even, np.minimum(growing, self.counts.size - 1)).astype(np.int64)
        self.counts += np.bincount(bins, minlength=self.counts.size)
        self.totals[0] += delays_s.sum()
        self.totals[1] += np.maximum(0.0, delays_s - self.target_s).sum()
        self.totals[2] = max(self.totals[2], delays_s.max())

    def outcome(self, offered: int, kept: int, series: Mapping[str, Times]) -> Outcome:
        """Return the outcome of the run."""
        count = int(self.counts.sum())
        last_bin = int(np.searchsorted(np.cumsum(self.counts), 0.99 * count)) if count else 0
        return Outcome(
            delay_target_s=self.target_s,
            offered=offered,
            kept=kept,
            completed=count,
            mean_delay_s=float(self.totals[0] / count) if count else 0.0,
            p99_delay_s=min(_upper_edge_s(last_bin), float(self.totals[2])),
            max_delay_s=float(self.totals[2]),
            mean_violation_s=float(self.totals[1] / count) if count else 0.0,
            series=series,
        )


def _upper_edge_s(number: int) -> float:
    """Return the longest delay of a bin."""
    growing = max(0, number + 1 - _EVEN_BINS)
    return _BIN_S * min(number + 1, _EVEN_BINS) * (1.0 + _GROWTH) ** growing


@compiled
def find_bin(delay_s: float, bins: int) -> int:
    """Return the bin of a delay in the histogram of a tally: the same as ``DelayTally.add``, for compiled loops."""
    even = delay_s / _BIN_S
    if even < _EVEN_BINS:
        return int(even)
    return min(_EVEN_BINS + int(math.log(even / _EVEN_BINS) / math.log1p(_GROWTH)), bins - 1)


class PeriodSeries:
    """What is recorded of each control period; nan where there is nothing."""

    def __init__(self, periods: int) -> None:
        names = ("t_s", "delay_s", "keep", "rate", "queue", "headroom")
        self.values: dict[str, Times] = {name: np.full(periods, np.nan) for name in names}

    def record(self, period: int, **values: float | None) -> None:
        """Set the values of one period."""
        for name, value in values.items():
            self.values[name][period] = np.nan if value is None else value
