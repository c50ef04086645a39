"""What comes in and what it costs: what Aurora, CTRL and SEaMLeSS need to know, learned from observations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchRegression

__all__ = ["HEADROOM", "LEAST_HEADROOM", "LoadModel", "check_cost", "check_headroom"]

HEADROOM = 0.97
"""The share of each second that goes to rows, if nothing else is known."""
LEAST_HEADROOM = 0.25
"""The least headroom on a micro-batch engine: with an overhead near the target, shedding more would hardly shorten a batch."""


class LoadModel:
    """What does a row cost, how many come in, and how many fit into a batch? The cost is given, or learned while the job runs.

    An engine that processes rows one by one reports how many left and how long it was busy with them: the cost is the ratio,
    smoothed. On a micro-batch engine the cost is the slope of batch time over rows, and the rest is the overhead per batch; see
    `BatchRegression`. CTRL (Tu and Prabhakar) leaves costs that change to future work.

    The papers have periods of one length, and queues. A micro-batch engine has batches of any length, and no row is inside
    between two of them. There, a row waits while the batch before its own runs, and then for its own: for 2 batch times at worst,
    1.5 on average. So the delay of a row is that many batch times, and the target allows batches of ``batch_time_s``. What waits
    in the source, behind a limit on the rows of a batch, has not come in, and no shedding shortens that wait.

    Parameters
    ----------
    delay_target_s
        The controller's delay target.
    cost_s
        Seconds of work per row, if known.
    waits
        How many batch times a row waits on a micro-batch engine: 2 to hold the worst delay at the target, 1.5 to hold the mean.
    smoothing
        Weight of the latest ratio.
    """

    def __init__(self, delay_target_s: float, cost_s: float | None = None, waits: float = 2.0, smoothing: float = 0.3) -> None:
        self.delay_target_s = delay_target_s
        self.given_cost_s = check_cost(cost_s)
        self.batches = BatchRegression()
        self.waits = waits
        self._smoothing = smoothing
        self.queue = 0.0
        """Rows that came in and have not left; a micro-batch engine holds none between two batches."""
        self._row_cost_s: float | None = None
        self._last_start_s: float | None = None
        self._last_end_s: float | None = None  # of the last period in which rows came
        self._rows = self._gathered_s = 0.0

    @property
    def batch_time_s(self) -> float:
        """The batch time that the target allows."""
        return self.delay_target_s / self.waits

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
    def headroom(self) -> float:
        """The share of the allowed batch time that the overhead leaves to rows, ``1 - o / B``."""
        overhead_s = self.overhead_s
        return HEADROOM if overhead_s is None else min(HEADROOM, max(LEAST_HEADROOM, 1.0 - overhead_s / self.batch_time_s))

    def is_vague(self, observation: Observation) -> bool:
        """Return whether the period says too little to run a feedback loop on.

        That is so if its clock stood still. It is also so if a learned cost may still be mostly overhead, nothing is shed, and
        there is no hurry: short batches with few rows can't separate the two, and in an overload longer ones will follow.
        """
        if observation.period_s < SHORTEST_S:
            return True
        is_learning = self.given_cost_s is None and observation.completed is None and self.overhead_s is None
        is_quiet = observation.keep >= 1.0 and observation.period_s < self.delay_target_s / 4.0
        return is_learning and is_quiet and not self.is_flood(observation.upcoming_rows or 0)

    def is_flood(self, rows: float) -> bool:
        """Return whether a batch of so many rows may take ten targets or more; then not even one may pass whole."""
        return (self.cost_s or 0.0) * rows > 10.0 * self.delay_target_s

    def update(self, observation: Observation) -> None:
        """Learn from one period."""
        self._count_arrivals(observation)
        if observation.completed is not None:
            self.queue = max(0.0, self.queue + observation.kept - observation.completed)
        if observation.cold:
            return
        if observation.completed is None:
            self.batches.update(observation.kept, observation.period_s)
        elif observation.completed > 0 and math.isfinite(observation.busy_s) and observation.busy_s > 0:
            latest_s = observation.busy_s / observation.completed
            before_s = self._row_cost_s if self._row_cost_s is not None else latest_s
            self._row_cost_s = before_s + self._smoothing * (latest_s - before_s)

    def _count_arrivals(self, observation: Observation) -> None:
        """Remember how many rows came, and in which time.

        The papers take the load of the last period for that of the next. But rows may come in clumps, say by a clock of whole
        seconds, with periods without any between them. Then the next rows are the next clump: one of mean size, which stands for
        the time since the last clump. Clumps further apart than the target do not even out, so no more time than that counts.
        """
        last_start_s, self._last_start_s = self._last_start_s, observation.start_s
        rows, period_s = observation.offered, observation.period_s
        if not rows:
            return
        if observation.completed is None:
            # The rows of a batch arrived between the start of the batch before and its own start.
            gathered_s = observation.start_s - last_start_s if last_start_s is not None else 0.0
            self._rows, self._gathered_s = float(rows), gathered_s if gathered_s >= SHORTEST_S else period_s
            return
        last_end_s, self._last_end_s = self._last_end_s, observation.end_s
        gathered_s = min(observation.end_s - last_end_s, self.delay_target_s) if last_end_s is not None else 0.0
        if gathered_s < 1.5 * period_s:
            self._rows, self._gathered_s = float(rows), period_s
        else:
            weight = _CLUMP_WEIGHT if self._gathered_s >= 1.5 * period_s else 1.0  # what came before was no clump
            self._rows += weight * (rows - self._rows)
            self._gathered_s += weight * (gathered_s - self._gathered_s)

    def incoming(self, observation: Observation) -> tuple[float, float] | None:
        """Return the rows that come in and the seconds in which they come; ``None`` if the clock stood still.

        They are those of the upcoming batch if its size is known, otherwise those of the last period that had any. Call it after
        ``update``.
        """
        if observation.upcoming_rows is not None:
            # They arrived since the start of the observed batch.
            taken_s = observation.taken_s if observation.taken_s is not None else observation.end_s
            rows, gathered_s = float(observation.upcoming_rows), max(taken_s - observation.start_s, observation.period_s)
        else:
            rows, gathered_s = self._rows, self._gathered_s
        if not rows:
            gathered_s = observation.period_s
        return (rows, gathered_s) if gathered_s >= SHORTEST_S else None

    def expect_batch(self, observation: Observation) -> float:
        """Return the rows of the next batch; if they are unknown, those that come while a batch of the allowed time runs."""
        if observation.upcoming_rows is not None:
            return float(observation.upcoming_rows)
        return self._rows * self.batch_time_s / self._gathered_s if self._gathered_s >= SHORTEST_S else 0.0

    def estimate_batch_delay(self, observation: Observation) -> float:
        """Return the delay that batches as long as the last one cause.

        Two targets at most: a stall, or an overhead beyond the target, must not keep the loop from letting rows in for ever.
        """
        return min(self.waits * observation.period_s, 2.0 * self.delay_target_s)

    def count_fitting(self, observation: Observation, headroom: float, within_s: float | None = None) -> float:
        """Return how many rows fit into a batch of the allowed time, or of another; at least one, or nothing is ever learned.

        A learned cost may be far too high: a small batch is nearly all overhead, and nothing separates that from the cost of its
        rows. But whatever the two are, r times the rows take at most r times as long, so at least those fit that make up a batch
        of the allowed time by that rule.
        """
        period_s, cost_s = observation.period_s, self.cost_s
        proven = observation.kept * self.batch_time_s / period_s if SHORTEST_S <= period_s <= self.batch_time_s else 0.0
        within_s = self.batch_time_s if within_s is None else within_s
        return max(headroom * within_s / cost_s if cost_s else 0.0, proven, 1.0)

    def measure_delay(self, observation: Observation) -> float | None:
        """Return the real mean delay since rows came in; ``None`` if it is unknown.

        A batch without a limit takes all rows that arrived since the start of the one before. A row that waited longer than that
        did so in the source.
        """
        delay_s = observation.delay_s
        if delay_s is None or not math.isfinite(delay_s):
            return None
        return delay_s if observation.completed is not None else min(delay_s, self._gathered_s + observation.period_s)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"batches": self.batches.snapshot()} | {name.lstrip("_"): getattr(self, name) for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot, as far as it goes."""
        state = self.snapshot() | dict(state)
        self.batches.restore(state["batches"])
        for name in self._STATE:
            setattr(self, name, state[name.lstrip("_")])

    _STATE = ("queue", "_row_cost_s", "_last_start_s", "_last_end_s", "_rows", "_gathered_s")


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
_CLUMP_WEIGHT = 0.25
