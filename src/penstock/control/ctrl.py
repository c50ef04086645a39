"""Ctrl: a feedback loop over a virtual queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import Controller, Decision, Observation
from penstock.control.design import PUBLISHED, ControlLaw
from penstock.control.load_model import LoadModel, check_headroom

__all__ = ["Ctrl"]


class Ctrl(Controller):
    """How much may come in so that the delay settles at the target? A feedback loop over a virtual queue (CTRL, equation 3).

    The queue is the rows that came in and have not left, ``q += kept - completed``. A row that comes in now waits for
    ``y = c q / H`` seconds. What may come in above capacity follows from the error ``e = D - y`` by the law
    ``u(k) = (b0 e(k) + b1 e(k-1)) H / c - a u(k-1)``. Here u is in rows per period instead of rows per second, which is the same
    while the period T is. So ``u + H T / c`` of the next period's rows stay. SEaMLeSS repeats the loop in its equation 3 with
    ``e = y - D``; with its parameters that is a sign too many, and it would shed nearly everything.

    The cost is given or learned. The headroom is the operator's to tune: 0.97 unless given, or, on an engine that shows an
    overhead per batch, what that leaves of half the target. A micro-batch engine holds no rows between two batches: there the
    queue is what waits for the next one.

    Where it fails: a wrong headroom is never corrected, and the delay settles at ``D`` times the assumed over the true headroom.
    Where an operator feeds several others, more rows leave than came in, so the queue seems empty and nothing is shed.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.
    cost_s
        Seconds of work per row; learned if not given.
    headroom
        The share of each second that goes to rows.
    law
        The parameters b0, b1 and a.

    Examples
    --------
    >>> from penstock.control import GateCount
    >>> ctrl = Ctrl(delay_target_s=2.0, cost_s=0.005, headroom=1.0)
    >>> full = Observation(0, 0.0, 0.5, gates={"in": GateCount(600, 600)}, completed=100)
    >>> round(ctrl.update(full).keep, 2)        # 500 queued rows are 2.5 s: 120 rows/s may come in, of 1200
    0.1

    References
    ----------
    Tu and Prabhakar, *Control-Based Load Shedding in Data Stream Management Systems* (CTRL).
    """

    def __init__(
        self, delay_target_s: float, cost_s: float | None = None, headroom: float | None = None, law: ControlLaw = PUBLISHED
    ) -> None:
        super().__init__(delay_target_s)
        self.law = law
        self._given_headroom = check_headroom(headroom)
        self._load = LoadModel(delay_target_s, cost_s)
        self.queue = 0.0
        """Rows in the virtual queue."""
        self._error = self._u = 0.0

    @property
    def headroom(self) -> float:
        """The share of each second that goes to rows."""
        if self._given_headroom is not None:
            return self._given_headroom
        left = self._load.headroom_left
        return _HEADROOM if left is None else left

    @property
    def estimated_delay_s(self) -> float | None:
        """The delay of a row that comes in now, y (CTRL, equation 3); ``None`` until the cost is known."""
        return None if self._load.cost_s is None else self._load.cost_s * self.queue / self.headroom

    def update(self, observation: Observation) -> Decision:
        """Run the loop once."""
        self._load.update(observation)
        if observation.completed is None:
            self.queue = self._load.waiting_rows(observation)
        else:
            self.queue = max(0.0, self.queue + observation.kept - observation.completed)
        incoming, delay_s, cost_s = self._load.incoming(observation), self.estimated_delay_s, self._load.cost_s
        period_s = observation.period_s
        if incoming is None or delay_s is None or not cost_s or self._load.is_vague(observation):
            return Decision(keep=None)
        error = self.delay_target_s - delay_s
        self._u = self.law.step(error, self._error, self._u, gain=cost_s / self.headroom)
        self._error = error
        rows, gathered_s = incoming
        rows_per_period = rows * period_s / gathered_s
        allowed = self._u + self.headroom * period_s / cost_s
        return Decision(keep=1.0 if allowed >= rows_per_period or not rows else max(0.0, allowed / rows_per_period))

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"load": self._load.snapshot(), "queue": self.queue, "error": self._error, "u": self._u}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the controller."""
        self._load.restore(state["load"])
        self.queue, self._error, self._u = state["queue"], state["error"], state["u"]
        return self


_HEADROOM = 0.97
