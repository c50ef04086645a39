"""Seamless: the queued load of any query network, and a headroom that corrects itself while shedding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import Controller, Decision, Observation, describe_model
from penstock.control.design import PUBLISHED, ControlLaw
from penstock.control.load_model import LEAST_HEADROOM, LoadModel, check_headroom
from penstock.errors import PenstockError

__all__ = ["Seamless"]


class Seamless(Controller):
    """How much may come in on any query network, with an unknown headroom? CTRL over the queued load, and a loop for H.

    The loop of CTRL runs over the queued load ``qL``: the sum over all queues of their length times the load coefficient of what
    lies behind them (SEaMLeSS, equation 4), so joins, aggregates and shared operators count for what they cost. The estimated
    delay is ``y = qL / H`` (equation 5). The load that may be added is ``u = H (b0 e + b1 e') - a u'`` seconds of work per period
    (equation 6), with ``e = D - y``. Together with the ``H T`` that is processed meanwhile it is compared with the load of the
    last period in which rows came.

    If the headroom is right, the real delay settles at the target whenever load is shed. So after every ``adjust_every`` periods
    with shedding, ``H`` is set to ``H D / D'``, where ``D'`` is the mean real delay in them (section III B).

    On a micro-batch engine no row is in a queue between two batches. There, y is one and a half batch times, the mean wait of a
    row, and what fits into two thirds of the target stands for ``H T``, with no more headroom than the overhead per batch leaves.

    Where it fails: the headroom is only corrected while load is shed and the real delay is known. On micro-batches, neither a
    stall nor a backlog behind a cap is worked off any faster; a part of each batch always stays, though next to nothing if the
    overhead exceeds the target.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.
    cost_s
        Seconds of work that an incoming row causes; learned if not given.
    headroom
        The share of each second that goes to rows, to start from.
    adjust_every
        Periods with shedding between two corrections of the headroom.
    coefficients
        Seconds of work behind each queue, by its name in ``Observation.backlog_rows``. ``cost_s`` stands in for queues without
        an entry. A micro-batch engine has no queues to apply them to.
    law
        The parameters b0, b1 and a.

    Examples
    --------
    >>> from penstock.control import GateCount
    >>> seamless = Seamless(delay_target_s=2.0, cost_s=0.005, coefficients={"join": 0.004})
    >>> queues = {"source": 120, "join": 500}
    >>> full = Observation(0, 0.0, 0.5, gates={"in": GateCount(600, 600)}, completed=90, backlog_rows=queues)
    >>> seamless.update(full).keep
    0.0
    >>> round(seamless.estimated_delay_s, 3)      # (120 * 5 ms + 500 * 4 ms) / 0.8
    3.25

    References
    ----------
    Pham, Chrysanthis and Labrinidis, *Self-managing load shedding for data stream management systems* (SEaMLeSS), section III.
    """

    def __init__(
        self,
        delay_target_s: float,
        cost_s: float | None = None,
        headroom: float = 0.8,
        *,
        adjust_every: int = 30,
        coefficients: Mapping[str, float] | None = None,
        law: ControlLaw = PUBLISHED,
    ) -> None:
        super().__init__(delay_target_s)
        if adjust_every < 1:
            raise PenstockError(f"adjust_every must be at least 1 period, got {adjust_every}")
        for name, value in (coefficients or {}).items():
            if not (math.isfinite(value) and value >= 0):
                raise PenstockError(f"the load coefficient of queue {name!r} must not be negative, got {value}")
        check_headroom(headroom)
        self.law = law
        self.headroom = headroom
        """The share of each second that goes to rows, as currently estimated."""
        self.adjust_every = adjust_every
        self.queued_load_s = 0.0
        """Seconds of work in the queues."""
        self.estimated_delay_s = 0.0
        """The delay of a row that comes in now, y (SEaMLeSS, equation 5)."""
        self._coefficients = dict(coefficients or {})
        self._load = LoadModel(delay_target_s, cost_s, waits=1.5)
        self._error = self._u = 0.0
        self._delay_sum_s, self._delays = 0.0, 0

    def update(self, observation: Observation) -> Decision:
        """Run both loops once."""
        self._load.update(observation)
        self._adjust(observation)
        incoming, cost_s = self._load.incoming(observation), self._load.cost_s
        if incoming is None or not cost_s or self._load.is_vague(observation):
            return Decision(keep=None)
        if observation.completed is None:
            rows, headroom = self._load.expect_batch(observation), min(self.headroom, self._load.headroom)
            processed_s = cost_s * self._load.count_fitting(observation, headroom)
            self.estimated_delay_s, gain = self._load.estimate_batch_delay(observation), self._load.waits / headroom
        else:
            rows, processed_s = incoming[0], self.headroom * incoming[1]
            self.queued_load_s = self._sum_queued_load(observation, cost_s)
            self.estimated_delay_s, gain = self.queued_load_s / self.headroom, 1.0 / self.headroom
        error = self.delay_target_s - self.estimated_delay_s
        self._u = self.law.step(error, self._error, self._u, gain)
        self._error = error
        allowed, load = max(0.0, self._u + processed_s), rows * cost_s
        return Decision(keep=1.0 if allowed >= load else allowed / load)

    def _sum_queued_load(self, observation: Observation, cost_s: float) -> float:
        """Return qL (SEaMLeSS, equation 4); where the queues are unknown, CTRL's virtual queue stands for them."""
        if not observation.backlog_rows:
            return self._load.queue * cost_s
        return sum(rows * self._coefficients.get(name, cost_s) for name, rows in observation.backlog_rows.items())

    def _adjust(self, observation: Observation) -> None:
        """Run the second loop: set H to ``H D / D'`` from the real delay while shedding (SEaMLeSS, section III B)."""
        delay_s = self._load.measure_delay(observation)
        if observation.keep >= 1.0 or delay_s is None:
            return
        self._delay_sum_s += delay_s
        self._delays += 1
        if self._delays < self.adjust_every:
            return
        mean_s = self._delay_sum_s / self._delays
        self._delay_sum_s, self._delays = 0.0, 0
        least = _LEAST_HEADROOM if observation.completed is not None else LEAST_HEADROOM
        if mean_s > 0.0:
            self.headroom = min(1.0, max(least, self.headroom * self.delay_target_s / mean_s))

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

    _STATE = ("headroom", "queued_load_s", "estimated_delay_s", "_error", "_u", "_delay_sum_s", "_delays")


_LEAST_HEADROOM = 0.01
