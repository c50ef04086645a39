"""Aurora: an open loop that sheds what exceeds capacity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import Controller, Decision, Observation, describe_model
from penstock.control.load_model import LoadModel, check_headroom

__all__ = ["Aurora"]


class Aurora(Controller):
    """How much exceeds the capacity? Shed that: every period, the load ``L - Lc``.

    The incoming load is ``L = rate * load_coefficient`` (SEaMLeSS, equation 1; the coefficient is the seconds of work that one
    row causes on its way through the query, equation 2). The capacity is the headroom, ``Lc = H`` seconds of work per second.
    What stays is ``keep = min(1, Lc / L)`` (CTRL, figure 1).

    The coefficient is given (``cost_s``) or learned, and the papers leave the headroom to the operator. Where rows are processed
    one by one it is 0.97 unless given. If rows come in clumps there, with periods without any between them, the rate is that over
    the time between clumps.

    On micro-batches, without a given headroom, this is Aurora adapted: an engine with a fixed overhead ``o`` per batch settles at
    batches of ``o / (1 - H)`` seconds, and a row waits for two of them at worst. So the headroom is the one that puts that at the
    target, ``H = 1 - 2 o / D``, and a batch gets the rows that fit into half the target, however long they were gathered.

    Where it fails: it never looks at the delay. A wrong cost or headroom is never corrected. Where rows are processed one by one,
    and with a given headroom, an existing backlog is not worked off any faster.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.
    cost_s
        Seconds of work per row; learned if not given.
    headroom
        The share of each second that goes to rows; follows from the overhead if not given.

    Examples
    --------
    >>> from penstock.control import GateCount
    >>> aurora = Aurora(delay_target_s=2.0, cost_s=0.004, headroom=0.97)
    >>> batch = Observation(batch_id=0, start_s=0.0, end_s=1.0, gates={"in": GateCount(485, 485)})
    >>> aurora.update(batch).keep                       # 485 rows/s of 4 ms each: twice the capacity
    0.5

    References
    ----------
    The loop as described by Tu and Prabhakar, *Control-Based Load Shedding in Data Stream Management Systems* (CTRL), figure 1,
    and by Pham, Chrysanthis and Labrinidis, *Self-managing load shedding for data stream management systems* (SEaMLeSS),
    equations 1 and 2.
    """

    def __init__(self, delay_target_s: float, cost_s: float | None = None, headroom: float | None = None) -> None:
        super().__init__(delay_target_s)
        self._given_headroom = check_headroom(headroom)
        self._load = LoadModel(delay_target_s, cost_s)
        self._largest = 0.0  # rows kept by the largest recent batch

    @property
    def cost_s(self) -> float | None:
        """The load coefficient: seconds of work per row; ``None`` until it is known."""
        return self._load.cost_s

    @property
    def headroom(self) -> float:
        """The share of each second that goes to rows."""
        return self._load.headroom if self._given_headroom is None else self._given_headroom

    def update(self, observation: Observation) -> Decision:
        """Compare the incoming load with the capacity."""
        self._load.update(observation)
        incoming = self._load.incoming(observation)
        if not observation.cold:
            self._largest = max(float(observation.kept), _FADE * self._largest)
        cost_s = self.cost_s
        if cost_s is None or incoming is None:
            return Decision(keep=None)
        rows, gathered_s = incoming
        load = cost_s * rows / gathered_s
        if load <= self.headroom:
            return Decision(keep=1.0)
        if self._given_headroom is not None or observation.completed is not None:
            return Decision(keep=self.headroom / load)
        if self._is_unproven(rows, observation.period_s):
            return Decision(keep=1.0)
        # A past rate may change before the decision holds, so it is not extrapolated beyond the time it was measured in.
        longest_s = self._load.batch_time_s if observation.upcoming_rows is not None else gathered_s
        within_s = min(self._load.batch_time_s, longest_s)
        return Decision(keep=min(1.0, self._load.count_fitting(observation, self.headroom, within_s) / rows))

    def _is_unproven(self, rows: float, period_s: float) -> bool:
        """Return whether a learned coefficient would be extrapolated far beyond the batches it comes from, without hurry.

        After a quiet time the coefficient is mostly overhead, and a burst is not yet an overload. Keeping it costs one batch, and
        that batch shows the true cost.
        """
        is_urgent = period_s > self.delay_target_s / 4.0 or self._load.is_flood(rows)
        return self._load.given_cost_s is None and not is_urgent and rows > _STRETCH * self._largest

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on."""
        super().change_target(delay_target_s)
        self._load.delay_target_s = delay_target_s

    def learnt(self) -> dict[str, float]:
        """Return the cost of a row and the overhead of a batch."""
        return describe_model(self._load, self._load.batch_time_s)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"load": self._load.snapshot(), "largest": self._largest}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, as far as it goes, and return the controller."""
        state = self.snapshot() | dict(state)
        self._load.restore(state["load"])
        self._largest = state["largest"]
        return self


_STRETCH, _FADE = 4.0, 0.9
