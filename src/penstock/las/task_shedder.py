"""The shedder of LAS in front of one partition of a micro-batch, in numpy and one plain loop."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from penstock.las.shedder_state import Instance, ShedderState

__all__ = ["TaskShedder"]

Values = NDArray[np.float64]


class TaskShedder:
    """Decides on the tuples of one partition in their order, as LAS, listing III.2, does.

    The decision follows from the state, which is in the journal before the batch runs, and from the tuples: a partition that is
    run again drops the same ones. Costs are looked up for many tuples at once. Only the clock needs a loop, and that loop is
    plain Python, so workers need no compiler; the benchmark ``las-overhead`` shows what it takes.

    Parameters
    ----------
    state
        What is known when the batch begins.
    partition
        Which instance of the operator this is.

    Examples
    --------
    >>> from penstock.las import CostSketch
    >>> sketch = CostSketch(epsilon=0.05, delta=0.1)
    >>> sketch.add([1, 2], [1.0, 0.1])
    >>> state = ShedderState("las", "abs", 0.5, 0.05, "RUN", 0, sketch.mean_s, 1, sketch)
    >>> TaskShedder(state, 0).decide(np.array([2, 1, 2]), np.zeros(3)).round(3).tolist()     # as `Las` does; nan is dropped
    [0.0, 0.105, nan]
    """

    def __init__(self, state: ShedderState, partition: int) -> None:
        self._state = state
        self._instance = state.instance(partition)
        self._clock_s = self._instance.offset_s
        self._total_s, self._count = self._instance.total_s, self._instance.count
        self.bad_costs = 0
        """Tuples whose cost was given as less than zero or not a number, and counted as zero."""

    @property
    def instance(self) -> Instance:
        """What is known now: the offset of the beginning, and the waits with those of this batch."""
        return Instance(self._instance.offset_s, self._total_s, self._count)

    def decide(self, keys: NDArray[np.int64], arrivals_s: Values, costs_s: Values | None = None) -> Values:
        """Return for each tuple when the operator should begin with it, in seconds after the batch began; nan to drop it.

        Parameters
        ----------
        keys
            The keys, as whole numbers.
        arrivals_s
            When the tuples arrived, in seconds after the batch began. That is before it began, whatever a clock says.
        costs_s
            The true costs, for Full Knowledge.
        """
        arrivals = np.minimum(np.nan_to_num(arrivals_s, nan=0.0), 0.0).tolist()
        if self._state.phase == "NOP":
            return np.full(len(arrivals), self._clock_s)
        costs = self._costs(keys, costs_s).tolist()
        begins = self._hold_each(arrivals, costs) if self._state.bound == "abs" else self._hold_mean(arrivals, costs)
        return np.array(begins, dtype=np.float64)

    def _costs(self, keys: NDArray[np.int64], costs_s: Values | None) -> Values:
        state = self._state
        if state.policy == "straw-man":
            return np.full(len(keys), state.mean_s or 0.0)
        if state.policy == "full-knowledge":
            given = np.full(len(keys), math.nan) if costs_s is None else costs_s
            is_good = np.isfinite(given) & (given >= 0.0)
            self.bad_costs += int(given.size - is_good.sum())
            return np.where(is_good, given, 0.0)
        return state.sketch.estimate(keys) * (1.0 + state.margin)

    def _hold_each(self, arrivals: list[float], costs: list[float]) -> list[float]:
        """ABS: no tuple waits for more than tau."""
        tau_s, clock_s, nan = self._state.tau_s, self._clock_s, math.nan
        begins: list[float] = []
        for arrival, cost in zip(arrivals, costs, strict=True):
            if arrival > clock_s:  # noqa: PLR1730 - max() takes twice as long
                clock_s = arrival
            if clock_s - arrival > tau_s:
                begins.append(nan)
            else:
                begins.append(clock_s)
                clock_s += cost
        self._clock_s = clock_s
        return begins

    def _hold_mean(self, arrivals: list[float], costs: list[float]) -> list[float]:
        """AVG: the mean over all tuples enqueued so far is at most tau."""
        tau_s, clock_s, nan = self._state.tau_s, self._clock_s, math.nan
        total_s, count = self._total_s, self._count
        begins: list[float] = []
        for arrival, cost in zip(arrivals, costs, strict=True):
            if arrival > clock_s:  # noqa: PLR1730 - max() takes twice as long
                clock_s = arrival
            with_tuple_s = total_s + (clock_s - arrival)
            if with_tuple_s / (count + 1) > tau_s:
                begins.append(nan)
            else:
                begins.append(clock_s)
                total_s, count = with_tuple_s, count + 1
                clock_s += cost
        self._clock_s, self._total_s, self._count = clock_s, total_s, count
        return begins
