"""What a row costs in each operator of one query, from the time that all of them took together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.diagonal_filter import DiagonalFilter
from penstock.estimate.estimate import Estimate
from penstock.estimate.linear_filter import LinearFilter

__all__ = ["OperatorCosts"]


class OperatorCosts:
    """A Kalman filter of ``busy = overhead + sum of cost * rows`` over the operators of one query.

    Operators that Spark fuses into one stage share one time. Batches differ in how many rows each operator gets, and that
    separates their costs. Where the counts always move together no method can separate them: then the errors are large, while
    the cost of the group stays certain (``group_cost``). Costs may wander a little from batch to batch. A batch far outside of
    what is expected is a jump, after which the filter trusts what it knew of an operator less, the more that operator had to do
    in the batch.

    Beyond 128 operators, what is known of one operator no longer depends on what is known of another (`DiagonalFilter`): one
    time cannot tell so many apart, and the covariances would fill megabytes of every snapshot.

    Where it fails: a cost that depends on anything but the number of rows, such as the size of a state, shows as noise.

    Parameters
    ----------
    declared
        Seconds per row of each operator, as far as anyone knows: only the start.
    overhead_s
        The same for what a batch takes without any rows.
    noise
        Deviation of a batch's time, as a share of it.
    wander
        How far a cost moves from batch to batch, as a share of it.
    jitter_s
        Deviation of a batch's time that does not depend on its length.
    surprise
        Deviations from the expected time beyond which a batch counts as a jump.

    Examples
    --------
    >>> costs = OperatorCosts({"a": 0.001, "b": 0.001})
    >>> for a, b in 3 * ((100, 10), (100, 90), (50, 50), (200, 20), (10, 100), (150, 30)):
    ...     costs.update({"a": a, "b": b}, 0.05 + 0.001 * a + 0.004 * b)
    >>> round(costs.cost("a").value, 3), round(costs.cost("b").value, 3)
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
        values = np.array([*declared.values(), overhead_s], dtype=np.float64)
        # Declared values are only the start: each may be off by as much as it is, and one declared as 0 by a millisecond.
        deviations = np.array([*(max(value, 1e-3) for value in declared.values()), overhead_s])
        self._filter = (LinearFilter if len(declared) <= _MOST_CORRELATED else DiagonalFilter)(values, deviations)
        self._noise, self._wander, self._surprise, self._jitter_s = noise, wander, surprise, jitter_s
        # A cost that was estimated as nothing may still turn out to be something, so it wanders as if it were this large.
        self._least_wandering = 0.2 * np.maximum(values, 1e-4)
        self.batches = 0
        """How many batches it has learned from."""

    def update(self, rows: Mapping[str, float], busy_s: float) -> None:
        """Learn from one batch: the rows that each operator got, and the seconds that all of them took together."""
        counts = self._counts(rows, overhead=1.0)
        if not (math.isfinite(busy_s) and busy_s >= 0.0 and np.all(np.isfinite(counts)) and np.all(counts >= 0.0)):
            return
        self._filter.widen(self._wander * np.maximum(self._filter.values, self._least_wandering))
        expected_s = self._filter.predict(counts)
        error_s = busy_s - expected_s
        noise = (self._noise * max(busy_s, expected_s)) ** 2 + self._jitter_s**2
        if error_s**2 > self._surprise**2 * (self._filter.variance(counts) + noise):
            self._filter.widen(self._blame(counts, error_s))
        self._filter.correct(counts, error_s, noise, least=_LEAST)
        self.batches += 1

    def _blame(self, counts: NDArray[np.float64], error_s: float) -> NDArray[np.float64]:
        """Return how far each cost may be off after a jump: by its share of the error, twice."""
        work, rows = counts * self._filter.values, counts.copy()
        work[-1] = rows[-1] = 0.0  # the operators jump: the engine's overhead changes little
        # Half by estimated work and half by rows: an operator that seemed to cost nothing may be the one that jumped.
        share = 0.5 * work / max(work.sum(), _LEAST) + 0.5 * rows / max(rows.sum(), 1.0)
        change: NDArray[np.float64] = np.divide(share * error_s, counts, out=np.zeros_like(counts), where=counts > 0)
        return 2.0 * change

    def _counts(self, rows: Mapping[str, float], overhead: float) -> NDArray[np.float64]:
        return np.array([*(float(rows.get(name, 0.0)) for name in self.operators), overhead])

    @property
    def costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The seconds per row of all operators, and their errors."""
        return self._filter.values[:-1].copy(), np.sqrt(self._filter.variances[:-1])

    def cost(self, operator: str) -> Estimate:
        """Return the seconds per row of one operator."""
        return self._estimate(self._counts({operator: 1.0}, overhead=0.0))

    @property
    def overhead_s(self) -> Estimate:
        """Seconds that a batch takes without any rows."""
        return Estimate(float(self._filter.values[-1]), math.sqrt(self._filter.variances[-1]))

    def group_cost(self, rows: Mapping[str, float]) -> Estimate:
        """Return the seconds that these rows take together, without the overhead: certain even where its parts are not."""
        return self._estimate(self._counts(rows, overhead=0.0))

    def _estimate(self, counts: NDArray[np.float64]) -> Estimate:
        return Estimate(self._filter.predict(counts), math.sqrt(self._filter.variance(counts)))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"operators": list(self.operators), "filter": self._filter.snapshot(), "batches": self.batches}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot; one of other operators is ignored."""
        if tuple(state["operators"]) != self.operators:
            return
        self._filter.restore(state["filter"])
        self.batches = int(state["batches"])


_LEAST = 1e-12
_MOST_CORRELATED = 128
