"""Costs and selectivities of operators, learnt from counts and times of micro-batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CostModel", "Estimate", "SelectivityEstimator"]

_LEAST = 1e-12


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and how unsure it is: one standard deviation."""

    value: float
    error: float


class CostModel:
    """Recursive least squares of ``busy = overhead + sum of cost * rows`` over the operators of one query.

    Operators that Spark fuses into one stage have one time between them. Batches differ in how many rows each operator gets,
    and that tells their costs apart; where counts always go in step it can't be told, and then the errors say so while the
    cost of the whole stays sure (``group``). It is a Kalman filter: costs may wander a little from batch to batch, and a batch
    far outside of what is expected is a jump, after which the filter trusts what it knew the less the more the operator had to
    do with it.

    >>> model = CostModel({"a": 0.001, "b": 0.001})
    >>> for a, b in 3 * ((100, 10), (100, 90), (50, 50), (200, 20), (10, 100), (150, 30)):
    ...     model.update({"a": a, "b": b}, 0.05 + 0.001 * a + 0.004 * b)
    >>> round(model.cost("a").value, 3), round(model.cost("b").value, 3)
    (0.001, 0.004)
    """

    def __init__(
        self,
        declared: Mapping[str, float],
        *,
        overhead_s: float = 0.1,
        noise: float = 0.05,
        wander: float = 0.03,
        jitter_s: float = 0.03,
        surprise: float = 3.0,
    ) -> None:
        self.operators = tuple(declared)
        self._mean = np.array([*declared.values(), overhead_s], dtype=np.float64)
        # Declared values are only the start: as unsure as they are great, and of what is said to cost nothing, by a millisecond.
        spread = np.array([*(max(value, 1e-3) for value in declared.values()), overhead_s])
        self._covariance: NDArray[np.float64] = np.diag(spread**2)
        self._noise, self._wander, self._surprise, self._jitter_s = noise, wander, surprise, jitter_s
        self._least = 0.2 * np.maximum(self._mean, 1e-4)
        self.batches = 0

    def update(self, rows: Mapping[str, float], busy_s: float) -> None:
        """Take in one batch: rows that each operator got, and the seconds that all of them took together."""
        counts = np.array([*(float(rows.get(name, 0.0)) for name in self.operators), 1.0])
        if not (math.isfinite(busy_s) and busy_s >= 0.0 and np.all(np.isfinite(counts)) and np.all(counts >= 0.0)):
            return
        drift = self._wander * np.maximum(
            self._mean, self._least
        )  # what was taken for nothing may still turn out to be something
        self._covariance[np.diag_indices_from(self._covariance)] += drift**2
        expected = float(counts @ self._mean)
        off = busy_s - expected
        noise = (self._noise * max(busy_s, expected)) ** 2 + self._jitter_s**2
        spread = float(counts @ self._covariance @ counts) + noise
        if off * off > self._surprise**2 * spread:
            self._forget(counts, off)
            spread = float(counts @ self._covariance @ counts) + noise
        gain = self._covariance @ counts / spread
        self._mean = np.maximum(self._mean + gain * off, _LEAST)
        self._covariance -= np.outer(gain, counts @ self._covariance)
        self._covariance = (self._covariance + self._covariance.T) / 2.0
        self.batches += 1

    def _forget(self, counts: NDArray[np.float64], off: float) -> None:
        """A jump: each cost is unsure by its share of it."""
        work, rows = counts * self._mean, counts.copy()
        work[-1] = rows[-1] = 0.0  # a jump is the operators': the engine's part changes little
        # Half by what they were thought to do and half by their rows: one that was taken for nothing may be the one.
        share = 0.5 * work / max(work.sum(), _LEAST) + 0.5 * rows / max(rows.sum(), 1.0)
        change = np.divide(share * off, counts, out=np.zeros_like(counts), where=counts > 0)
        self._covariance[np.diag_indices_from(self._covariance)] += 4.0 * change**2

    def cost(self, operator: str) -> Estimate:
        """Seconds a row of one operator."""
        place = self.operators.index(operator)
        return Estimate(float(self._mean[place]), self._error(np.eye(len(self._mean))[place]))

    @property
    def overhead_s(self) -> Estimate:
        """Seconds a batch takes whatever it holds."""
        return Estimate(float(self._mean[-1]), self._error(np.eye(len(self._mean))[-1]))

    def group(self, rows: Mapping[str, float]) -> Estimate:
        """Seconds that these rows take together, without the overhead: what is sure even where the parts are not."""
        counts = np.array([*(float(rows.get(name, 0.0)) for name in self.operators), 0.0])
        return Estimate(float(counts @ self._mean), self._error(counts))

    def _error(self, direction: NDArray[np.float64]) -> float:
        return math.sqrt(max(0.0, float(direction @ self._covariance @ direction)))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "operators": list(self.operators),
            "mean": self._mean.tolist(),
            "covariance": self._covariance.tolist(),
            "batches": self.batches,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of a snapshot, if it is of the same operators."""
        if tuple(state["operators"]) != self.operators:
            return
        self._mean = np.array(state["mean"], dtype=np.float64)
        self._covariance = np.array(state["covariance"], dtype=np.float64)
        self.batches = int(state["batches"])


class SelectivityEstimator:
    """Rows out for each row in, older batches counting less; a batch far outside of what is expected starts it anew.

    >>> ratio = SelectivityEstimator(1.0)
    >>> for _ in range(5):
    ...     ratio.update(1000, 400)
    >>> round(ratio.estimate.value, 2)
    0.4
    """

    def __init__(self, declared: float, *, weight: float = 20.0, decay: float = 0.8, surprise: float = 4.0) -> None:
        self._in, self._out, self._square = weight, weight * declared, 0.0
        self._decay, self._surprise = decay, surprise

    def update(self, rows_in: float, rows_out: float) -> None:
        """Take in one batch."""
        if not (rows_in > 0 and rows_out >= 0 and math.isfinite(rows_in) and math.isfinite(rows_out)):
            return
        value = self._out / self._in
        off = rows_out - value * rows_in
        if off * off > self._surprise**2 * (self._variance * rows_in + self.estimate.error**2 * rows_in**2):
            self._in = self._out = self._square = 0.0
        self._in = self._decay * self._in + rows_in
        self._out = self._decay * self._out + rows_out
        now = self._out / self._in
        self._square = self._decay * self._square + (rows_out - now * rows_in) ** 2

    @property
    def _variance(self) -> float:
        """Of what one row becomes: at least what chance makes of a filter, more where batches differ by more."""
        value = self._out / self._in if self._in else 0.0
        chance = value * (1.0 - value) if 0.0 < value < 1.0 else value
        return max(chance, self._square / self._in if self._in else 0.0, 1e-4)

    @property
    def estimate(self) -> Estimate:
        """The ratio."""
        return Estimate(self._out / self._in, math.sqrt(self._variance / self._in))

    def snapshot(self) -> list[float]:
        """Return the state as plain JSON values."""
        return [self._in, self._out, self._square]

    def restore(self, state: Sequence[float]) -> None:
        """Take the state of a snapshot."""
        if state[0] > 0:
            self._in, self._out, self._square = (float(value) for value in state)
