"""The operator's side of LAS: it learns what tuples cost, and says so when it is sure (paper 004, listing III.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.errors import PenstockError
from penstock.las.countmin import CostSketch

__all__ = ["Matrices", "Operator", "Sync"]


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """What the operator has learnt, sent to the shedder."""

    sketch: CostSketch


@dataclass(frozen=True, slots=True)
class Sync:
    """By how much the shedder's estimate of the operator's clock is off."""

    delta_s: float


class Operator:
    """Two states: START until N tuples are executed, then STABILIZING until W/F has hardly changed over N more.

    Then F and W are sent and reset (figure 2). Hardly changed means that the relative error of equation 1 is at most mu; cells
    that nothing has reached count as 0, where the equation has 0/0.
    """

    def __init__(self, sketch: CostSketch, window: int = 1024, mu: float = 0.05) -> None:
        if window < 1:
            raise PenstockError(f"the window N must be positive, got {window}")
        if not mu > 0:
            raise PenstockError(f"mu must be positive, got {mu!r}")
        self.sketch = sketch
        self._window, self._mu = window, mu
        self.state: Literal["START", "STABILIZING"] = "START"
        self._executed = 0
        self._snapshot = np.zeros_like(sketch.frequency)

    def update(self, key: int, duration_s: float, clock_s: float, request_s: float | None = None) -> list[Matrices | Sync]:
        """Take in an executed tuple; ``clock_s`` is when it was done, ``request_s`` the shedder's guess of that, if it asked."""
        messages: list[Matrices | Sync] = []
        self._executed += 1
        if request_s is not None:
            messages.append(Sync(clock_s - request_s))
        if self._executed % self._window == 0:
            messages += self.window_done()
        self.sketch.add([key], [duration_s])
        return messages

    def window_done(self) -> list[Matrices | Sync]:
        """N tuples more are executed: send what was learnt if it is stable, else look again after N more."""
        if self.state == "STABILIZING" and self.relative_error() <= self._mu:
            sent = Matrices(self.sketch.copy())
            self.sketch.reset()
            self.state = "START"
            return [sent]
        self._snapshot = self._ratios()
        self.state = "STABILIZING"
        return []

    def relative_error(self) -> float:
        """Equation 1."""
        total = float(self._snapshot.sum())
        return float(np.abs(self._snapshot - self._ratios()).sum()) / total if total > 0 else float("inf")

    def _ratios(self) -> np.ndarray:
        frequency = self.sketch.frequency
        return np.divide(self.sketch.duration, frequency, out=np.zeros_like(frequency), where=frequency > 0)
