"""How far an estimate of the cost may be trusted: rows to try while little is known, growing as batches prove short."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from penstock.control.base import SHORTEST_S
from penstock.estimate import BatchFilter

__all__ = ["RowRamp"]


class RowRamp:
    """The most rows that a batch may keep, from what is known of the cost and from the batches that were seen.

    With nothing known that is a small number. It grows fourfold with every batch that stays below half of its time, and whatever
    the cost is, r times the rows of a batch take at most r times as long. Even a cold batch shows that. Once a batch was long
    enough to judge by, its cost is believed, but not for a batch many times larger than any before: there the cost counts as high
    as it may be.

    >>> ramp, model = RowRamp(first_rows=500.0), BatchFilter()
    >>> ramp.limit(model, batch_s=1.0)
    500.0
    >>> ramp.update(kept=500, period_s=0.4, batch_s=1.0, work_s=0.2)
    >>> ramp.limit(model, batch_s=1.0)
    2000.0
    """

    def __init__(self, first_rows: float, *, is_known: bool = False) -> None:
        self.first_rows = first_rows
        self.is_known = is_known
        """Whether the first number comes from a cost that the user knows."""
        self._first = first_rows  # what may be tried while batches say nothing
        self._proven = 0.0  # what they have shown to fit
        self._largest = 0.0
        self._has_worked = False

    @property
    def _start(self) -> float:
        """The rows that may be tried, whatever the estimate says. Batches that are not tiny say what a next step may be."""
        return self._proven if self._largest >= _TELLING * self.first_rows else max(self._first, self._proven)

    def update(self, kept: int, period_s: float, batch_s: float, work_s: float, *, is_cold: bool = False) -> None:
        """Learn from one batch of ``batch_s`` seconds at most, of which the rows took about ``work_s``.

        Of a cold batch, up to three seconds may be warm-up: it does not count against its rows, but proves no more of them.
        """
        if not kept or period_s < SHORTEST_S:
            return
        most = _GROWTH * kept if period_s <= batch_s / 2.0 else 0.0
        if is_cold and period_s > batch_s:
            period_s = max(period_s - _WARM_UP_S, _LEAST_WORK * period_s, batch_s)
        proven = kept * batch_s / period_s
        if period_s > batch_s:
            self._first = max(_LEAST_SHARE * self.first_rows, min(self._first, proven))
            self._proven = min(self._proven or proven, proven)
        else:
            self._proven = max(self._proven, proven, most)
        if not is_cold:
            self._largest = max(float(kept), self._largest)
            self._has_worked = self._has_worked or (work_s >= period_s / 4.0 and period_s >= batch_s / 2.0)

    @property
    def has_worked(self) -> bool:
        """Whether a batch was long enough, and full enough, to judge the cost by."""
        return self._has_worked

    def limit(self, model: BatchFilter, batch_s: float, *, is_late: bool = False, may_try: bool = True) -> float:
        """Return the most rows that the next batch may keep, to take ``batch_s`` seconds.

        If nothing was proven yet and the job is late already, there is no time to try many. Unless it may try, an estimate
        counts, however little is behind it.
        """
        if model.overhead_s is None or model.cost_s is None:
            careful = 1.0 if self.is_known else _CAREFUL
            return max(1.0, self._proven, careful * self._first) if is_late else max(1.0, self._start)
        room_s = max(0.0, batch_s - model.overhead_s)
        fitting = room_s / model.cost_s
        reach = max(self._start, _GROWTH * self._largest)
        careful = room_s / (model.cost_s + 2.0 * model.cost_deviation_s)
        if self._has_worked or not may_try:
            return max(1.0, min(fitting, max(careful, reach)))
        cheap_s = model.cost_s - 2.0 * model.cost_deviation_s
        hopeful = room_s / cheap_s if cheap_s > 0.0 else math.inf
        return max(1.0, min(max(fitting, self._start), hopeful, max(careful, reach)))

    def is_beyond(self, rows: float) -> bool:
        """Whether a batch would be many times larger than any before."""
        return rows > _GROWTH * self._largest

    def is_first(self, limit: float) -> bool:
        """Whether a limit comes from what may be tried at first, and not from what rows cost."""
        return limit <= self.first_rows and self._largest < self.first_rows / _GROWTH

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {name: getattr(self, f"_{name}") for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot, as far as it goes."""
        state = self.snapshot() | dict(state)
        for name in self._STATE:
            setattr(self, f"_{name}", state[name])

    _STATE = ("first", "proven", "largest", "has_worked")


_GROWTH = 4.0
_LEAST_SHARE = 0.125
_CAREFUL, _TELLING = 0.2, 0.05
_WARM_UP_S, _LEAST_WORK = 3.0, 0.25
