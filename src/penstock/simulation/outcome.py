"""The result of a simulated run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DelayTally", "Outcome", "PeriodSeries"]

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
        }

    @classmethod
    def of(cls, delays_s: Times, delay_target_s: float, offered: int, kept: int, series: Mapping[str, Times]) -> Outcome:
        """Return the outcome of a run from the delays of all rows that left."""
        tally = DelayTally(delay_target_s)
        tally.add(delays_s)
        return tally.outcome(offered, kept, series)


class DelayTally:
    """Mean, maximum, violation and 99th percentile of delays that are too many to keep: sums and a histogram."""

    def __init__(self, delay_target_s: float, bin_s: float = 0.005, bins: int = 200_000) -> None:
        self.target_s = delay_target_s
        self.bin_s = bin_s
        self.counts = np.zeros(bins, dtype=np.int64)
        """How many delays fell into each bin; the last bin holds all longer ones."""
        self.totals = np.zeros(3)
        """Sum of delays, sum of violations, the largest delay."""

    def add(self, delays_s: Times) -> None:
        """Add delays."""
        if delays_s.size == 0:
            return
        bins = np.minimum((delays_s / self.bin_s).astype(np.int64), self.counts.size - 1)
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
            p99_delay_s=min((last_bin + 1) * self.bin_s, float(self.totals[2])),
            max_delay_s=float(self.totals[2]),
            mean_violation_s=float(self.totals[1] / count) if count else 0.0,
            series=series,
        )


class PeriodSeries:
    """What is recorded of each control period; nan where there is nothing."""

    def __init__(self, periods: int) -> None:
        names = ("t_s", "delay_s", "keep", "rate", "queue", "headroom")
        self.values: dict[str, Times] = {name: np.full(periods, np.nan) for name in names}

    def record(self, period: int, **values: float | None) -> None:
        """Set the values of one period."""
        for name, value in values.items():
            self.values[name][period] = np.nan if value is None else value
