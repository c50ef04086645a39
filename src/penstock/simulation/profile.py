"""Quantities that change while a simulation runs: a cost that doubles, a headroom that shrinks."""

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
    """A positive number as a function of time, constant within cells of ``cell_s`` seconds.

    Examples
    --------
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
        """Return a profile unchanged, and a number as a profile that never changes."""
        if isinstance(value, Profile):
            return value
        if not (math.isfinite(value) and value > 0):
            raise PenstockError(f"a cost, an overhead or a headroom must be positive, got {value}")
        return cls(lambda t: np.full(t.shape, float(value)))

    @classmethod
    def step(cls, before: float, after: float, at_s: float, until_s: float = math.inf) -> Profile:
        """Return a value that changes to another at ``at_s``, and back at ``until_s``."""
        return cls(lambda t: np.where((t >= at_s) & (t < until_s), after, before))

    @classmethod
    def sine(cls, mean: float, amplitude: float, period_s: float) -> Profile:
        """Return a sinusoid around a mean; the amplitude is a share of the mean."""
        if not 0 <= amplitude < 1:
            raise PenstockError(f"amplitude must lie in [0, 1), got {amplitude}")
        return cls(lambda t: mean * (1.0 + amplitude * np.sin(2.0 * np.pi * t / period_s)))

    def at(self, t_s: float) -> float:
        """Return the value at one time."""
        return float(self.values(np.array([math.floor(t_s / self.cell_s + 1e-9) * self.cell_s]))[0])

    def grid(self, until_s: float) -> NDArray[np.float64]:
        """Return the values of all cells up to a time; the last one holds from then on."""
        cells = max(1, math.ceil(until_s / self.cell_s) + 1)
        values = np.ascontiguousarray(self.values(np.arange(cells, dtype=np.float64) * self.cell_s), dtype=np.float64)
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise PenstockError("a cost, an overhead or a headroom must be positive at all times")
        return values
