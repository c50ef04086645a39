"""A ceiling on what is shed, whatever the controller wants."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from penstock.control.base import Decision
from penstock.decision.instructions import Warn
from penstock.errors import PenstockError
from penstock.journal.records import BatchRecord

__all__ = ["LossCeiling"]

WINDOW_S = 60.0


class LossCeiling:
    """Never more than a share of the rows is shed, over any minute.

    >>> ceiling = LossCeiling(0.9)
    >>> ceiling.record(time_s=10.0, offered=1_000, kept=50)        # 50 too few, by the ceiling
    >>> round(ceiling.least_keep(now_s=11.0, rows=1_000), 3)
    0.15
    """

    def __init__(self, max_loss: float = 1.0) -> None:
        if not (math.isfinite(max_loss) and 0.0 <= max_loss <= 1.0):
            raise PenstockError(f"max_loss must lie in [0, 1], got {max_loss}")
        self.max_loss = max_loss
        self._batches: deque[tuple[float, int, int]] = deque()

    @property
    def is_set(self) -> bool:
        """Whether there is a ceiling at all."""
        return self.max_loss < 1.0

    def record(self, time_s: float, offered: int, kept: int) -> None:
        """Take in a batch."""
        if self.is_set:
            self._forget(time_s)
            self._batches.append((time_s, offered, kept))

    def _forget(self, now_s: float) -> None:
        """Drop what is older than the window, or lies in a future that a clock has since left."""
        while self._batches and not now_s - WINDOW_S <= self._batches[0][0] <= now_s + WINDOW_S:
            self._batches.popleft()

    def least_keep(self, now_s: float, rows: float) -> float:
        """Return the least share to keep of the next rows: what the ceiling leaves and, if fewer were kept by chance, more.

        Each batch holds the ceiling by itself, so any minute does, however the traffic goes on.
        """
        if not self.is_set or rows <= 0:
            return 0.0
        self._forget(now_s)
        offered = sum(one for _, one, _ in self._batches) + rows
        kept = sum(one for _, _, one in self._batches)
        return min(1.0, max(1.0 - self.max_loss, ((1.0 - self.max_loss) * offered - kept) / rows))

    def record_batch(self, record: BatchRecord) -> None:
        """Take in a batch whose end is known."""
        if record.end_s is not None:
            counts = record.gates.values()
            self.record(record.end_s, sum(offered for offered, _ in counts), sum(kept for _, kept in counts))

    def hold(self, decision: Decision, now_s: float, rows: float | None, label: str) -> tuple[Decision, list[Warn]]:
        """Return a decision that does not shed more of the next rows than may be shed, and what to tell the user of a query."""
        least = 1.0 - self.max_loss if rows is None else self.least_keep(now_s, rows)
        age = decision.age
        keeps = [decision.keep, *decision.gates.values(), *(() if age is None else (age.older, age.fresh))]
        if self.is_set and decision.full_rows is not None:
            decision = replace(decision, full_rows=None)  # a bound by rank knows no ceiling
        if all(keep is None or keep >= least for keep in keeps):
            return decision, []
        raised = replace(
            decision,
            keep=None if decision.keep is None else max(decision.keep, least),
            gates={name: max(keep, least) for name, keep in decision.gates.items()},
            age=None if age is None else replace(age, fresh=max(age.fresh, least), older=max(age.older, least)),
            full_rows=None,
        )
        message = f"{label}: more than {self.max_loss:.0%} would be shed, which max_loss forbids: the delay may grow"
        return raised, [Warn(message)]
