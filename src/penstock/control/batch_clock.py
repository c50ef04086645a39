"""When a batch begins, and how old rows are at best when an engine can read them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S, Observation

__all__ = ["BatchClock"]


class BatchClock:
    """Two offsets that decide which rows are in time, from the last batches, so that a stall changes neither.

    The *lead* is the time from the start of a batch, when its rows are chosen, to the decision on it: the median, since a batch
    takes its time from a usual start on. The *latency* is how much older rows are than their wait for the engine explains: they
    took a way to the source, or clocks disagree. It is the least, since a stall makes rows older too.

    >>> from penstock.control import GateCount
    >>> clock, gates = BatchClock(), {"in": GateCount(9, 9)}
    >>> for start_s in range(8):                # batches of a second; rows are stamped 0.5 s before they can be read
    ...     times = {"mean_arrival_s": start_s - 1.0, "waited_s": 1.1, "taken_s": start_s + 1.1}
    ...     clock.update(Observation(start_s, start_s, start_s + 1.0, gates, **times), is_capped=False)
    >>> round(clock.lead_s, 3), round(clock.latency_s, 3)
    (0.1, 0.5)
    """

    def __init__(self) -> None:
        self._leads: list[float] = []
        self._latencies: list[float] = []
        self._waited_s: float | None = None  # how long the rows of the observed batch gathered

    @property
    def lead_s(self) -> float:
        """The time from the start of a batch to the decision on it."""
        return statistics.median(self._leads) if self._leads else 0.0

    @property
    def latency_s(self) -> float:
        """How old rows are at least when they can be read; 0 until several batches agree."""
        return max(0.0, min(self._latencies)) if len(self._latencies) >= _AGREE else 0.0

    def update(self, observation: Observation, *, is_capped: bool) -> None:
        """Learn from one batch, and from when the next one is decided on. Behind a cap, rows are old for another reason."""
        if observation.period_s < SHORTEST_S:
            return
        if observation.taken_s is not None and observation.taken_s >= observation.end_s:
            self._leads = [*self._leads, observation.taken_s - observation.end_s][-_LAST:]
        arrival_s = observation.mean_offered_arrival_s
        if arrival_s is not None and self._waited_s and not is_capped:
            self._latencies = [*self._latencies, observation.start_s - arrival_s - self._waited_s / 2.0][-_LAST:]
        self._waited_s = None if observation.waited_s is None else self.waited_s(observation.waited_s)

    def waited_s(self, waited_s: float) -> float:
        """Return how long rows have waited when their batch begins, from how long when it is decided on."""
        return max(0.0, waited_s - self.lead_s) if waited_s else 0.0

    def begin_s(self, observation: Observation) -> float:
        """Return when the upcoming batch began."""
        return (observation.taken_s if observation.taken_s is not None else observation.end_s) - self.lead_s

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"leads": list(self._leads), "latencies": list(self._latencies), "waited_s": self._waited_s}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot, as far as it goes."""
        state = self.snapshot() | dict(state)
        self._leads, self._latencies, self._waited_s = list(state["leads"]), list(state["latencies"]), state["waited_s"]


_LAST, _AGREE = 8, 4
