"""What comes in and what it costs, as far as observations tell: what the papers' controllers need to know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchRegression

__all__ = ["LoadModel", "given_cost", "given_headroom"]


class LoadModel:
    """The cost of a row, learnt while the job runs (paper 001 leaves a cost that changes to future work), and what comes in.

    An engine that processes rows one by one says how many left and how long it was busy with them: the cost is the ratio. Of
    a micro-batch engine's periods it is the slope, and the rest is the overhead of a batch.
    """

    def __init__(self, delay_target_s: float, cost_s: float | None = None, smoothing: float = 0.3) -> None:
        self._delay_target_s = delay_target_s
        self.given_cost_s = given_cost(cost_s)
        self.batches = BatchRegression()
        self._smoothing = smoothing
        self._row_cost_s: float | None = None
        self._last_start_s: float | None = None
        self._before_last_s: float | None = None

    @property
    def cost_s(self) -> float | None:
        """The load coefficient: seconds of work a row; ``None`` until it is known."""
        if self.given_cost_s is not None:
            return self.given_cost_s
        learnt = self._row_cost_s if self._row_cost_s is not None else self.batches.cost_s
        return None if learnt is None else max(_LEAST_COST_S, learnt)

    @property
    def overhead_s(self) -> float | None:
        """Seconds a batch takes whatever it holds; ``None`` while unknown."""
        return self.batches.overhead_s

    @property
    def headroom_left(self) -> float | None:
        """The headroom that puts two batch times at the target, ``1 - 2 o / D``; ``None`` while the overhead is unknown."""
        overhead_s = self.overhead_s
        return None if overhead_s is None else max(_LEAST_HEADROOM, 1.0 - 2.0 * overhead_s / self._delay_target_s)

    def is_vague(self, observation: Observation) -> bool:
        """Whether the period says too little to run a feedback loop on.

        Its clock stood still; or a learnt cost may still be mostly overhead, while there is no hurry: of short batches with few
        rows nothing tells the two apart, and longer ones are on their way, if there is an overload.
        """
        if observation.period_s < SHORTEST_S:
            return True
        learning = self.given_cost_s is None and observation.completed is None and self.overhead_s is None
        return learning and observation.period_s < self._delay_target_s / 4.0

    def take_in(self, observation: Observation) -> None:
        """Learn from one period."""
        self._before_last_s, self._last_start_s = self._last_start_s, observation.start_s
        if observation.cold:
            return
        if observation.completed is None:
            self.batches.update(observation.kept, observation.period_s)
        elif observation.completed > 0 and math.isfinite(observation.busy_s) and observation.busy_s > 0:
            seen = observation.busy_s / observation.completed
            before = self._row_cost_s if self._row_cost_s is not None else seen
            self._row_cost_s = before + self._smoothing * (seen - before)

    def incoming(self, observation: Observation) -> tuple[int, float] | None:
        """Rows, and the seconds in which they came: of the batch to come where its size is known, else of the one that was.

        To be asked after ``take_in``.
        """
        period_s = observation.period_s
        if observation.upcoming_rows is not None:
            # They arrived since the observed batch began.
            rows = observation.upcoming_rows
            taken_s = observation.taken_s if observation.taken_s is not None else observation.end_s
            gathered_s = max(taken_s - observation.start_s, period_s)
        elif observation.completed is not None:
            rows, gathered_s = observation.offered, period_s
        else:
            # The rows of a batch arrived between the start of the one before and its own.
            rows = observation.offered
            gathered_s = observation.start_s - self._before_last_s if self._before_last_s is not None else 0.0
            gathered_s = gathered_s if gathered_s >= SHORTEST_S else period_s
        return (rows, gathered_s) if gathered_s >= SHORTEST_S else None

    def waiting(self, observation: Observation) -> float:
        """Rows that wait for the next batch: counted where the engine tells, else as many as came in the time of the last one."""
        if observation.upcoming_rows is not None:
            return float(observation.upcoming_rows)
        if observation.backlog_rows:
            return float(sum(observation.backlog_rows.values()))
        incoming = self.incoming(observation)
        return incoming[0] * observation.period_s / incoming[1] if incoming is not None else 0.0

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {
            "batches": self.batches.snapshot(),
            "row_cost_s": self._row_cost_s,
            "last_start_s": self._last_start_s,
            "before_last_s": self._before_last_s,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state of a snapshot."""
        self.batches.restore(state["batches"])
        self._row_cost_s = state["row_cost_s"]
        self._last_start_s = state["last_start_s"]
        self._before_last_s = state["before_last_s"]


def given_cost(cost_s: float | None) -> float | None:
    """Check a cost that a user gives."""
    if cost_s is not None and not (math.isfinite(cost_s) and cost_s > 0):
        raise PenstockError(f"cost_s must be positive, got {cost_s}")
    return cost_s


def given_headroom(headroom: float | None) -> float | None:
    """Check a headroom that a user gives."""
    if headroom is not None and not 0 < headroom <= 1:
        raise PenstockError(f"headroom must lie in (0, 1], got {headroom}")
    return headroom


_LEAST_COST_S = 1e-12
# With an overhead above half the target no headroom reaches it: go on with best effort.
_LEAST_HEADROOM = 0.1
