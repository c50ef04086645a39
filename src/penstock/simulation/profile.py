"""Quantities that change while a simulation runs: a cost that doubles, a headroom that a background job takes a part of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError

__all__ = ["Profile"]


@dataclass(frozen=True, slots=True)
class Profile:
    """A positive number as a function of time, held constant within cells of ``cell_s`` seconds.

    >>> cost = Profile.step(0.004, 0.008, at_s=100.0)
    >>> cost.at(99.9), cost.at(100.0)
    (0.004, 0.008)
    >>> Profile.of(0.5).at(1e6)
    0.5
    """

    values: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    cell_s: float = 0.05

    @classmethod
    def of(cls, value: float | Profile) -> Profile:
        """Return a profile as it is, and a number as one that never changes."""
        if isinstance(value, Profile):
            return value
        if not (math.isfinite(value) and value > 0):
            raise PenstockError(f"a cost, an overhead or a headroom must be positive, got {value}")
        return cls(lambda t: np.full(t.shape, float(value)))

    @classmethod
    def step(cls, before: float, after: float, at_s: float, until_s: float = math.inf) -> Profile:
        """One value that changes to another, and back if told when."""
        return cls(lambda t: np.where((t >= at_s) & (t < until_s), after, before))

    @classmethod
    def sine(cls, mean: float, amplitude: float, period_s: float) -> Profile:
        """A mean with a sinusoid on it; the amplitude is a share of the mean."""
        if not 0 <= amplitude < 1:
            raise PenstockError(f"amplitude must lie in [0, 1), got {amplitude}")
        return cls(lambda t: mean * (1.0 + amplitude * np.sin(2.0 * np.pi * t / period_s)))

    def at(self, t_s: float) -> float:
        """The value at one moment."""
        return float(self.values(np.array([math.floor(t_s / self.cell_s + 1e-9) * self.cell_s]))[0])

    def grid(self, until_s: float) -> NDArray[np.float64]:
        """The values of all cells up to a time; the last one holds for ever after."""
        cells = max(1, math.ceil(until_s / self.cell_s) + 1)
        found = np.ascontiguousarray(self.values(np.arange(cells, dtype=np.float64) * self.cell_s), dtype=np.float64)
        if not (np.isfinite(found).all() and (found > 0).all()):
            raise PenstockError("a cost, an overhead or a headroom must be positive at all times")
        return found
