"""MicroBatch: give every batch the rows that fit into the time that the delay target leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import SHORTEST_S, Controller, Decision, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchFilter

__all__ = ["MicroBatch"]


class MicroBatch(Controller):
    """How many rows fit into the next batch? A controller for micro-batches, where batch k takes ``o + c * kept(k)``.

    A row waits for the rest of the running batch and then for its own, so the oldest row of a batch waits for two batch times.
    If the last batch took ``B'`` and the oldest row may wait for ``W``, this one may take ``B = W - B'``. After a short batch,
    only half of what it leaves below ``W / 2`` is used; otherwise long and short batches would alternate forever. The number of
    rows that fit is ``(B - o) / c``, and of n rows ``keep = (B - o) / (c n)`` stay. No controller that holds batches of that
    length loses less: the overhead o is paid once per batch whatever is dropped.

    So long batches lose less, and ``worst`` says what that is worth to you: W is that many times the target. At 1 even the oldest
    row of a batch meets it. At 4/3 the mean delay is the target, which is what CTRL and SEaMLeSS aim at.

    The size n is known in ``foreachBatch`` before the batch runs. With a native sink it is expected from the rate of the last
    batches, and ``full_rows`` bounds the damage if there are more: a bounded gate keeps fewer and fewer of the rows beyond it.
    Overhead and cost are learned (`BatchFilter`), and a jump of the cost shows in the next decision.

    Where it fails: if the overhead alone exceeds the batch time, no shedding reaches the target; it says so once and continues
    with best effort. By arrival, a burst that comes after the decision is only held by a bounded gate.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.
    worst
        The longest wait of a row, as a multiple of the target; from 0.1 to 2.

    Examples
    --------
    >>> from penstock.control import GateCount
    >>> controller = MicroBatch(delay_target_s=2.0, worst=0.97)
    >>> for number, kept in enumerate((0, 500, 770)):        # an overhead of 0.2 s, and 1 ms per row
    ...     gates = {"in": GateCount(kept, kept)}
    ...     batch = Observation(number, number, number + 0.2 + kept / 1e3, gates=gates, upcoming_rows=1540)
    ...     decision = controller.update(batch)
    >>> round(decision.keep, 2)                              # 0.77 s of 1.54 s of work
    0.5

    References
    ----------
    Ours. The delay targets of CTRL (Tu and Prabhakar) and SEaMLeSS (Pham, Chrysanthis and Labrinidis) are means.
    """

    def __init__(self, delay_target_s: float, worst: float = 1.0) -> None:
        super().__init__(delay_target_s)
        if not 0.1 <= worst <= 2.0:
            raise PenstockError(f"worst must lie in [0.1, 2], got {worst}")
        self._worst_s = worst * delay_target_s
        self.model = BatchFilter()
        """The estimates of overhead and cost."""
        self._last_start_s: float | None = None
        self._rate: float | None = None
        self._largest = 0.0
        self._has_worked = False
        self._has_warned = False

    @property
    def batch_time_s(self) -> float:
        """The batch time that the target allows in a steady state."""
        return self._worst_s / 2.0

    def update(self, observation: Observation) -> Decision:
        """Learn from the last batch, and decide how much of the next one fits."""
        if not observation.cold:
            self.model.update(observation.kept, observation.period_s)
            self._largest = max(float(observation.kept), self._largest)
            self._has_worked = self._has_worked or (observation.kept > 0 and observation.period_s >= self.delay_target_s / 4.0)
        if observation.upcoming_rows is not None:
            return self._decide_by_batch(observation, float(observation.upcoming_rows))
        return self._decide_by_arrival(observation)

    def _decide_by_batch(self, observation: Observation, rows: float) -> Decision:
        """Decide on a batch whose size is known."""
        waited_s = observation.waited_s if observation.waited_s is not None else observation.period_s
        fitting, note = self._count_fitting(observation, waited_s, _REUSE), self._warn_once()
        if fitting is None:
            return Decision(None, note=note)
        if rows <= fitting or self._is_unproven(rows, waited_s):
            return Decision(1.0, note=note)
        return Decision(fitting / rows, note=note)

    def _decide_by_arrival(self, observation: Observation) -> Decision:
        """Decide on a batch that gathers its rows while one of the right length runs: expect the rate to stay the same."""
        last_start_s, self._last_start_s = self._last_start_s, observation.start_s
        gathered_s = observation.start_s - last_start_s if last_start_s is not None else observation.period_s
        if gathered_s >= SHORTEST_S:
            rate = observation.offered / gathered_s
            self._rate = rate if self._rate is None else 0.5 * (rate + self._rate)
        fitting, note = self._count_fitting(observation, observation.period_s, 0.0), self._warn_once()
        if fitting is None or self._rate is None:
            return Decision(None, note=note)
        expected = self._rate * self.batch_time_s
        keep = min(1.0, fitting / expected) if expected > 0 and not self._is_unproven(expected, observation.period_s) else 1.0
        return Decision(keep, full_rows=_EARLY * max(expected, fitting), note=note)

    def _count_fitting(self, observation: Observation, waited_s: float, reuse: float) -> float | None:
        """Return how many rows fit into the time that the last batch leaves; ``None`` before the first row."""
        overhead_s, cost_s = self.model.overhead_s, self.model.cost_s
        if overhead_s is None or cost_s is None:
            return None
        spare_s = self.batch_time_s - waited_s
        batch_s = self.batch_time_s + (spare_s if spare_s < 0 else reuse * spare_s)
        # After a batch that was far too long the target is missed anyway. Some rows must pass, or nothing is ever learned.
        batch_s = max(batch_s, _LEAST_SHARE * self.batch_time_s)
        return max((batch_s - overhead_s) / cost_s, self._proven_rows(observation, batch_s), 1.0)

    def _proven_rows(self, observation: Observation, batch_s: float) -> float:
        """Return the rows that fit for sure: r times the rows of a batch take at most r times as long, for any r above 1."""
        period_s = observation.period_s
        return observation.kept * batch_s / period_s if SHORTEST_S <= period_s <= batch_s else 0.0

    def _is_unproven(self, rows: float, waited_s: float) -> bool:
        """Return whether the cost would be extrapolated far beyond the batches it was learned from, without hurry.

        Short batches alone can't separate cost from overhead, and a burst is not yet an overload. Keeping it costs one batch, and
        that batch shows the true cost. Once a batch was long enough to judge by, its cost is believed: after a restart, a backlog
        is not a burst.
        """
        return not self._has_worked and waited_s < self.delay_target_s / 4.0 and rows > _STRETCH * self._largest

    def _warn_once(self) -> str | None:
        """Return a note that the engine is too slow for the target whatever is shed; the second time, ``None``."""
        overhead_s = self.model.overhead_s
        if self._has_warned or overhead_s is None or self.model.cost_s is None or overhead_s < self.batch_time_s:
            return None
        self._has_warned = True
        least_s = 2.0 * overhead_s * self.delay_target_s / self._worst_s
        return (
            f"the delay target of {self.delay_target_s:g} s can't be reached, whatever is shed: a batch takes {overhead_s:.2g} s "
            f"without any rows, so the least target is about {least_s:.2g} s; continuing with best effort"
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"model": self.model.snapshot()} | {name: getattr(self, f"_{name}") for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the controller."""
        self.model.restore(state["model"])
        for name in self._STATE:
            setattr(self, f"_{name}", state[name])
        return self

    _STATE = ("last_start_s", "rate", "largest", "has_worked", "has_warned")


_LEAST_SHARE = 0.1
_STRETCH = 4.0
_REUSE = 0.5
# The share of the expected rows from which on a bounded gate keeps fewer: a batch of the expected size loses little by it.
_EARLY = 0.8
