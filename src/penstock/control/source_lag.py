"""Whether a source is behind because a cap limits its batches, and whether shedding can help."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S, Observation

__all__ = ["SourceLag", "smooth_rate"]


class SourceLag:
    """Watches the sizes of batches and the age of their rows.

    An uncapped source gives every batch all rows that wait. A capped one gives batches of one size while rows pile up behind
    them, and their age grows. Then whatever is kept makes the rows behind it older, however short the batches are:
    ``is_behind``. If the age grows even though hardly anything is kept, less comes through than arrives, and no shedding helps:
    ``is_hopeless``.

    >>> from penstock.control import GateCount
    >>> lag = SourceLag()
    >>> for number in range(4):                              # batches of 1,000 rows, each older than the one before
    ...     gates, arrival_s = {"in": GateCount(1_000, 1_000)}, 9.0 + number / 2
    ...     lag.update(Observation(number, 10.0 + number, 11.0 + number, gates, mean_arrival_s=arrival_s, upcoming_rows=1_000))
    >>> lag.is_behind
    True
    """

    def __init__(self) -> None:
        self.is_behind = False
        """Whether rows pile up behind a cap."""
        self.is_hopeless = False
        """Whether they would even if nothing were kept."""
        self.rate: float | None = None
        """Rows per second that arrive at the source, where that can be told."""
        self._size = 0
        self._rows = 0.0  # the same in rows, whatever is counted
        self._alike = 0  # batches in a row of this size
        self._last: tuple[float, float] | None = None  # the start of the last batch, and the age of its rows
        self._growing = 0  # batches in a row whose rows were older than those before
        self._falling = 0  # the same of those whose rows were younger
        # Of the batches in a row that kept hardly anything: how many, how much older their rows became, in how long a time.
        self._vain = [0.0, 0.0, 0.0]
        self._was_empty = False  # whether the last batch kept hardly anything
        self._left = 0
        self._is_old = True  # whether rows were older than their batch had to wait for the engine, as far as anyone knows

    @property
    def is_capped(self) -> bool:
        """Whether batches seem to have the largest size that they may have: they are alike, and not because all are in step."""
        return (self._alike >= _ALIKE and self._is_old) or self._left > 0

    @property
    def size(self) -> int:
        """What the last batch counts: the cap, if there is one."""
        return self._size

    @property
    def row_units(self) -> float:
        """What one row counts."""
        return self._size / self._rows if self._rows else 1.0

    @property
    def pace_s(self) -> float:
        """The longest time per batch at which a capped source does not fall further behind; infinite where that is not known."""
        return self._size / self.rate if self.is_behind and self.rate else math.inf

    def update(self, observation: Observation) -> None:
        """Learn from one batch, and from the size of the next."""
        age_s = self._age_s(observation)
        if age_s is not None:
            self._compare(observation, age_s)
        size = observation.offered if observation.upcoming_rows is None else observation.upcoming_rows
        rows = size / observation.row_units
        is_alike = rows >= _LEAST_ROWS and abs(rows - self._rows) <= max(2.0, _TOLERANCE * rows)
        self._alike = self._alike + 1 if is_alike else 0
        self._size, self._rows = size, rows
        if not self.is_capped:
            self.is_behind = self.is_hopeless = False
            self._growing = self._falling = 0
            self._vain = [0.0, 0.0, 0.0]
        elif self._growing >= _GROWING:
            self.is_behind = True
        batches, grown_s, passed_s = self._vain
        if self._falling >= _FALLING:
            self.is_hopeless, self._vain = False, [0.0, 0.0, 0.0]
        elif batches >= _IN_VAIN and grown_s > _CLEARLY * passed_s:
            self.is_hopeless = True

    def _age_s(self, observation: Observation) -> float | None:
        """Return how old the rows of a batch were when it started: by their arrival, else by what waited before them."""
        left, before = observation.left_rows, self._left
        self._left = left or 0
        arrival_s = observation.mean_offered_arrival_s
        if arrival_s is not None:
            return observation.start_s - arrival_s
        if left is None or self._last is None:
            return 0.0 if left is not None else None
        passed_s = observation.start_s - self._last[0]
        if passed_s >= SHORTEST_S:
            self.rate = smooth_rate(self.rate, max(0, observation.offered + left - before), passed_s)
        return left / self.rate if self.rate else 0.0

    def _compare(self, observation: Observation, age_s: float) -> None:
        if self._last is not None:
            grown_s, passed_s = age_s - self._last[1], observation.start_s - self._last[0]
            # Without a cap no row waits for longer than since the last batch was planned, and the mean row for half of that.
            self._is_old = age_s > _OLD * passed_s
            is_growing = grown_s > _NOISE_S and age_s > passed_s
            self._growing = self._growing + 1 if is_growing else 0
            self._falling = self._falling + 1 if grown_s < 0.0 else 0
            # Rows became older while the batch before ran, so what that one kept counts.
            if not self._was_empty or age_s <= passed_s:
                self._vain = [0.0, 0.0, 0.0]
            else:
                self._vain = [a + b for a, b in zip(self._vain, (1.0, grown_s, max(0.0, passed_s)), strict=True)]
            if observation.mean_offered_arrival_s is not None and passed_s - grown_s > SHORTEST_S and self.is_capped:
                self.rate = smooth_rate(self.rate, observation.offered, passed_s - grown_s)  # so far did arrivals move on
        self._last = (observation.start_s, age_s)
        self._was_empty = observation.kept <= _HARDLY * observation.offered

    def oldest_age_s(self, observation: Observation) -> float:
        """Return how old the oldest row of the upcoming batch is, judging by what a cap left before it; 0 if none is known."""
        if not self._left or not self.rate:
            return 0.0
        taken_s = observation.taken_s if observation.taken_s is not None else observation.end_s
        return self._left / self.rate + max(0.0, taken_s - observation.start_s)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        last = None if self._last is None else list(self._last)
        return {name: getattr(self, name) for name in self._STATE} | {"_last": last, "_vain": list(self._vain)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot, as far as it goes."""
        state = self.snapshot() | dict(state)
        for name in self._STATE:
            setattr(self, name, state[name])
        self._last = None if state["_last"] is None else tuple(state["_last"])
        self._vain = list(state["_vain"])

    _STATE = (
        *("is_behind", "is_hopeless", "rate", "_size", "_rows", "_alike"),
        *("_growing", "_falling", "_was_empty", "_left", "_is_old"),
    )


def smooth_rate(rate: float | None, rows: float, gathered_s: float) -> float | None:
    """Return how many rows arrive per second; the latest batch counts half.

    >>> smooth_rate(smooth_rate(None, 300, 1.0), 100, 1.0)
    200.0
    """
    if gathered_s < SHORTEST_S:
        return rate
    return rows / gathered_s if rate is None else 0.5 * (rows / gathered_s + rate)


_ALIKE, _TOLERANCE = 2, 0.01
_GROWING, _IN_VAIN, _FALLING = 2, 5, 3
_NOISE_S = 0.02
_LEAST_ROWS, _OLD = 20, 0.75
_HARDLY, _CLEARLY = 0.02, 0.1
