"""What comes in and what it costs: what Aurora, CTRL and SEaMLeSS need to know, learned from observations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchRegression

__all__ = ["LoadModel", "check_cost", "check_headroom"]


class LoadModel:
    """What does a row cost, and how many come in? The cost is given, or learned while the job runs.

    An engine that processes rows one by one reports how many left and how long it was busy with them: the cost is the ratio,
    smoothed. On a micro-batch engine the cost is the slope of batch time over rows, and the rest is the overhead per batch; see
    `BatchRegression`. CTRL (Tu and Prabhakar) leaves costs that change to future work.

    Parameters
    ----------
    delay_target_s
        The controller's delay target.
    cost_s
        Seconds of work per row, if known.
    smoothing
        Weight of the latest ratio.
    """

    def __init__(self, delay_target_s: float, cost_s: float | None = None, smoothing: float = 0.3) -> None:
        self._delay_target_s = delay_target_s
        self.given_cost_s = check_cost(cost_s)
        self.batches = BatchRegression()
        self._smoothing = smoothing
        self._row_cost_s: float | None = None
        self._last_start_s: float | None = None
        self._before_last_s: float | None = None

    @property
    def cost_s(self) -> float | None:
        """The load coefficient: seconds of work per row; ``None`` until it is known."""
        if self.given_cost_s is not None:
            return self.given_cost_s
        learned = self._row_cost_s if self._row_cost_s is not None else self.batches.cost_s
        return None if learned is None else max(_LEAST_COST_S, learned)

    @property
    def overhead_s(self) -> float | None:
        """Seconds that a batch takes without any rows; ``None`` while unknown."""
        return self.batches.overhead_s

    @property
    def headroom_left(self) -> float | None:
        """The headroom that puts two batch times at the target, ``1 - 2 o / D``; ``None`` while the overhead is unknown."""
        overhead_s = self.overhead_s
        return None if overhead_s is None else max(_LEAST_HEADROOM, 1.0 - 2.0 * overhead_s / self._delay_target_s)

    def is_vague(self, observation: Observation) -> bool:
        """Return whether the period says too little to run a feedback loop on.

        That is so if its clock stood still. It is also so if a learned cost may still be mostly overhead and there is no hurry:
        short batches with few rows can't separate the two, and if there is an overload, longer ones will follow.
        """
        if observation.period_s < SHORTEST_S:
            return True
        is_learning = self.given_cost_s is None and observation.completed is None and self.overhead_s is None
        return is_learning and observation.period_s < self._delay_target_s / 4.0

    def update(self, observation: Observation) -> None:
        """Learn from one period."""
        self._before_last_s, self._last_start_s = self._last_start_s, observation.start_s
        if observation.cold:
            return
        if observation.completed is None:
            self.batches.update(observation.kept, observation.period_s)
        elif observation.completed > 0 and math.isfinite(observation.busy_s) and observation.busy_s > 0:
            latest_s = observation.busy_s / observation.completed
            before_s = self._row_cost_s if self._row_cost_s is not None else latest_s
            self._row_cost_s = before_s + self._smoothing * (latest_s - before_s)

    def incoming(self, observation: Observation) -> tuple[int, float] | None:
        """Return the rows that came in and the seconds in which they came; ``None`` if the clock stood still.

        They are those of the upcoming batch if its size is known, otherwise those of the last one. Call it after ``update``.
        """
        period_s = observation.period_s
        if observation.upcoming_rows is not None:
            # They arrived since the start of the observed batch.
            rows = observation.upcoming_rows
            taken_s = observation.taken_s if observation.taken_s is not None else observation.end_s
            gathered_s = max(taken_s - observation.start_s, period_s)
        elif observation.completed is not None:
            rows, gathered_s = observation.offered, period_s
        else:
            # The rows of a batch arrived between the start of the batch before and its own start.
            rows = observation.offered
            gathered_s = observation.start_s - self._before_last_s if self._before_last_s is not None else 0.0
            gathered_s = gathered_s if gathered_s >= SHORTEST_S else period_s
        return (rows, gathered_s) if gathered_s >= SHORTEST_S else None

    def waiting_rows(self, observation: Observation) -> float:
        """Return the rows that wait for the next batch, or an estimate: those that came while the last batch ran."""
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
        """Continue from a snapshot."""
        self.batches.restore(state["batches"])
        self._row_cost_s = state["row_cost_s"]
        self._last_start_s = state["last_start_s"]
        self._before_last_s = state["before_last_s"]


def check_cost(cost_s: float | None) -> float | None:
    """Return a cost that a user gives, or raise if it is none."""
    if cost_s is not None and not (math.isfinite(cost_s) and cost_s > 0):
        raise PenstockError(f"cost_s must be positive, got {cost_s}")
    return cost_s


def check_headroom(headroom: float | None) -> float | None:
    """Return a headroom that a user gives, or raise if it is none."""
    if headroom is not None and not 0 < headroom <= 1:
        raise PenstockError(f"headroom must lie in (0, 1], got {headroom}")
    return headroom


_LEAST_COST_S = 1e-12
# With an overhead above half the target no headroom reaches it: continue with best effort.
_LEAST_HEADROOM = 0.1
