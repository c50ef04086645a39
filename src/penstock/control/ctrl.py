"""Ctrl: a feedback loop over a virtual queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import Controller, Decision, Observation, describe_model
from penstock.control.design import PUBLISHED, ControlLaw
from penstock.control.load_model import LoadModel, check_headroom

__all__ = ["Ctrl"]


class Ctrl(Controller):
    """How much may come in so that the delay settles at the target? A feedback loop over a virtual queue (CTRL, equation 3).

    The queue is the rows that came in and have not left, ``q += kept - completed``. A row that comes in now waits for
    ``y = c q / H`` seconds. What may be added to the queue follows from the error ``e = D - y`` by the law
    ``u(k) = (b0 e(k) + b1 e(k-1)) H / c - a u(k-1)``. Here u is in rows per period instead of rows per second, which is the same
    while the period is. Together with the rows that leave meanwhile, as many as in the last period, ``v = u + f_out`` of the rows
    that come in may stay. Where nothing is left to do, what could have left counts as f_out. SEaMLeSS repeats the loop in its
    equation 3 with ``e = y - D``; with its parameters that is a sign too many, and it would shed nearly everything.

    The cost is given or learned. The headroom is the operator's to tune: 0.97 unless given, or, on an engine that shows an
    overhead per batch, what that leaves of half the target. A micro-batch engine holds no rows between two batches: there y is
    two batch times, the longest wait of a row, and the rows that fit into half the target stand for those that leave.

    Where it fails: a wrong headroom is never corrected, and the delay settles at ``D`` times the assumed over the true headroom.
    Where an operator feeds several others, more rows leave than came in, so the queue seems empty and nothing is shed. On
    micro-batches, neither a stall nor a backlog behind a cap is worked off any faster; a part of each batch always stays.

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
    >>> round(ctrl.update(full).keep, 2)        # 500 queued rows are 2.5 s: 60 rows of the next 600 may come in
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
        self.estimated_delay_s: float | None = None
        """The delay of a row that comes in now, y (CTRL, equation 3); ``None`` until the cost is known."""
        self._error = self._u = 0.0

    @property
    def headroom(self) -> float:
        """The share of each second that goes to rows."""
        return self._load.headroom if self._given_headroom is None else self._given_headroom

    @property
    def queue(self) -> float:
        """Rows in the virtual queue."""
        return self._load.queue

    def update(self, observation: Observation) -> Decision:
        """Run the loop once."""
        self._load.update(observation)
        incoming, cost_s = self._load.incoming(observation), self._load.cost_s
        if incoming is None or not cost_s or self._load.is_vague(observation):
            return Decision(keep=None)
        if observation.completed is None:
            rows, served = self._load.expect_batch(observation), self._load.count_fitting(observation, self.headroom)
            delay_s, gain = self._load.estimate_batch_delay(observation), self._load.waits * cost_s / self.headroom
        else:
            rows, served = incoming[0], self._count_leaving(observation, cost_s) * incoming[1] / observation.period_s
            delay_s, gain = cost_s * self.queue / self.headroom, cost_s / self.headroom
        error = self.delay_target_s - delay_s
        self._u = self.law.step(error, self._error, self._u, gain)
        self._error, self.estimated_delay_s = error, delay_s
        allowed = max(0.0, self._u + served)
        return Decision(keep=1.0 if allowed >= rows else allowed / rows)

    def _count_leaving(self, observation: Observation, cost_s: float) -> float:
        """Return f_out: the rows that leave in a period, or, if nothing is left to do, that could have left."""
        completed = float(observation.completed or 0)
        return completed if self.queue else max(completed, self.headroom * observation.period_s / cost_s)

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on."""
        super().change_target(delay_target_s)
        self._load.delay_target_s = delay_target_s

    def learnt(self) -> dict[str, float]:
        """Return the cost of a row and the overhead of a batch."""
        return describe_model(self._load, self._load.batch_time_s)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"load": self._load.snapshot()} | {name.lstrip("_"): getattr(self, name) for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, as far as it goes, and return the controller."""
        state = self.snapshot() | dict(state)
        self._load.restore(state["load"])
        for name in self._STATE:
            setattr(self, name, state[name.lstrip("_")])
        return self

    _STATE = ("estimated_delay_s", "_error", "_u")
