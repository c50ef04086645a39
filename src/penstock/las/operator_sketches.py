"""The operator's side of LAS: it learns what tuples cost, and sends that once it is stable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.las.countmin import CostSketch

__all__ = ["Matrices", "Operator", "Sync"]


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """What the operator has learned, as a message to the shedder."""

    sketch: CostSketch


@dataclass(frozen=True, slots=True)
class Sync:
    """By how much the shedder's estimate of the operator's clock is off, as a message to it."""

    delta_s: float
    request_s: float | None = field(default=None, compare=False)
    """The estimate that this answers, so that a shedder with several requests under way knows which."""


class Operator:
    """Learns costs in two states: START until N tuples are executed, then STABILIZING until W/F hardly changes over N more.

    Then F and W are sent and reset (LAS, listing III.1 and figure 2). "Hardly" means that the relative error of LAS, equation 1,
    is at most mu. Cells that no tuple has reached count as 0, where the equation has 0/0.

    Parameters
    ----------
    sketch
        The matrices F and W.
    window
        N, in tuples.
    mu
        The relative error up to which matrices are stable.

    References
    ----------
    Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016.
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
        self._last_ratios = np.zeros_like(sketch.frequency)

    def update(self, key: int, duration_s: float, clock_s: float, request_s: float | None = None) -> list[Matrices | Sync]:
        """Learn from an executed tuple.

        Parameters
        ----------
        key, duration_s
            The tuple's key and how long it took.
        clock_s
            When it was done.
        request_s
            When the shedder expected that, if it asked.

        Returns
        -------
        list
            Messages to the shedder.
        """
        messages: list[Matrices | Sync] = []
        self._executed += 1
        if request_s is not None:
            messages.append(Sync(clock_s - request_s, request_s))
        if self._executed % self._window == 0:
            messages += self.end_window()
        self.sketch.add([key], [duration_s])
        return messages

    def end_window(self) -> list[Matrices | Sync]:
        """End a window of N tuples: send what was learned if it is stable, otherwise look again after N more."""
        if self.state == "STABILIZING" and self.relative_error() <= self._mu:
            message = Matrices(self.sketch.copy())
            self.sketch.reset()
            self.state = "START"
            return [message]
        self._last_ratios = self._ratios()
        self.state = "STABILIZING"
        return []

    def relative_error(self) -> float:
        """Return the change of W/F since the end of the last window (LAS, equation 1)."""
        total = float(self._last_ratios.sum())
        return float(np.abs(self._last_ratios - self._ratios()).sum()) / total if total > 0 else float("inf")

    def _ratios(self) -> NDArray[np.float64]:
        frequency = self.sketch.frequency
        ratios: NDArray[np.float64] = np.divide(
            self.sketch.duration, frequency, out=np.zeros_like(frequency), where=frequency > 0
        )
        return ratios
