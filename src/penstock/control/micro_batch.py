"""MicroBatch: give every batch as many rows as fit the time that the delay target leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from penstock.control.base import SHORTEST_S, Controller, Decision, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchFilter

__all__ = ["MicroBatch"]


class MicroBatch(Controller):
    """A controller made for micro-batches, which are no queue: batch k takes ``o + c * kept(k)``.

    A row waits for the rest of the running batch and then for its own, so the oldest row of a batch waits for two batch times.
    If the last batch took ``B'`` and the oldest row may wait for ``W``, this one may take ``B = W - B'``; after a short one
    only half of what that leaves over ``W / 2`` is used, or long and short ones would take turns for ever. The number of rows
    that fit is ``(B - o) / c``, and of the ``n`` rows there are ``keep = (B - o) / (c n)`` stay. Among all controllers that
    hold batches of that length none loses less: the overhead o is paid once a batch whatever is dropped.

    Long batches lose less, then, and ``worst`` says what that is worth to you: W is so many times the target. At 1 even the
    oldest row of a batch meets it. At 4/3 the mean delay is the target, which is what CTRL and SEaMLeSS aim at.

    What it needs is n. In ``foreachBatch`` the size of the batch is known before it runs. With a native sink it is expected from
    the rate of the last batches, and ``full_rows`` bounds what happens if it is more: a gate that is bounded lets fewer and fewer
    of the rows beyond it through. The overhead and the cost are learnt (``BatchFilter``), and a jump of the cost is taken in
    at once.

    >>> from penstock.control.base import GateCount
    >>> law = MicroBatch(delay_target_s=2.0, worst=0.97)
    >>> for number, kept in enumerate((0, 500, 770)):        # an overhead of 0.2 s, and 1 ms a row
    ...     seen = Observation(number, number, number + 0.2 + kept / 1e3, gates={"in": GateCount(kept, kept)}, upcoming_rows=1540)
    ...     decision = law.update(seen)
    >>> round(decision.keep, 2)                              # 0.77 s of 1.54 s of work
    0.5
    """

    def __init__(self, delay_target_s: float, worst: float = 1.0) -> None:
        super().__init__(delay_target_s)
        if not 0.1 <= worst <= 2.0:
            raise PenstockError(f"worst must lie in [0.1, 2], got {worst}")
        self._worst_s = worst * delay_target_s
        self.model = BatchFilter()
        """What is known of overhead and cost."""
        self._last_start_s: float | None = None
        self._rate: float | None = None
        self._largest = 0.0
        self._worked = False
        self._warned = False

    @property
    def batch_time_s(self) -> float:
        """The batch time that the target allows when all goes well."""
        return self._worst_s / 2.0

    def update(self, observation: Observation) -> Decision:
        """Learn from the batch that was, and say how much of the next one fits."""
        if not observation.cold:
            self.model.update(observation.kept, observation.period_s)
            self._largest = max(float(observation.kept), self._largest)
            self._worked = self._worked or (observation.kept > 0 and observation.period_s >= self.delay_target_s / 4.0)
        if observation.upcoming_rows is not None:
            return self._by_batch(observation, float(observation.upcoming_rows))
        return self._by_arrival(observation)

    def _by_batch(self, observation: Observation, rows: float) -> Decision:
        """The size of the batch is known."""
        waited_s = observation.waited_s if observation.waited_s is not None else observation.period_s
        fitting, note = self._fitting(observation, waited_s, _REUSE), self._unreachable()
        if fitting is None:
            return Decision(None, note=note)
        if rows <= fitting or self._unproven(rows, waited_s):
            return Decision(1.0, note=note)
        return Decision(fitting / rows, note=note)

    def _by_arrival(self, observation: Observation) -> Decision:
        """The decision meets a batch that gathers its rows while one of the right length runs: expect the rate to stay."""
        last_start_s, self._last_start_s = self._last_start_s, observation.start_s
        gathered_s = observation.start_s - last_start_s if last_start_s is not None else observation.period_s
        if gathered_s >= SHORTEST_S:
            rate = observation.offered / gathered_s
            self._rate = rate if self._rate is None else 0.5 * (rate + self._rate)
        fitting, note = self._fitting(observation, observation.period_s, 0.0), self._unreachable()
        if fitting is None or self._rate is None:
            return Decision(None, note=note)
        expected = self._rate * self.batch_time_s
        keep = min(1.0, fitting / expected) if expected > 0 and not self._unproven(expected, observation.period_s) else 1.0
        return Decision(keep, full_rows=_EARLY * max(expected, fitting), note=note)

    def _fitting(self, observation: Observation, waited_s: float, reuse: float) -> float | None:
        """How many rows fit the time that is left by the batch before; ``None`` before the first row."""
        overhead_s, cost_s = self.model.overhead_s, self.model.cost_s
        if overhead_s is None or cost_s is None:
            return None
        spare_s = self.batch_time_s - waited_s
        batch_s = self.batch_time_s + (spare_s if spare_s < 0 else reuse * spare_s)
        # After a batch that was far too long the target is missed anyway: some rows must pass, or nothing is ever learnt.
        batch_s = max(batch_s, _LEAST_SHARE * self.batch_time_s)
        return max((batch_s - overhead_s) / cost_s, self._proven_rows(observation, batch_s), 1.0)

    def _proven_rows(self, observation: Observation, batch_s: float) -> float:
        """Whatever overhead and cost are, r times the rows take at most r times as long, for r of 1 and more."""
        period_s = observation.period_s
        return observation.kept * batch_s / period_s if SHORTEST_S <= period_s <= batch_s else 0.0

    def _unproven(self, rows: float, waited_s: float) -> bool:
        """Whether the cost would be stretched far beyond the batches it was learnt from, while there is no hurry.

        Of short batches alone nothing tells it from overhead, and a burst is not yet an overload. Keeping it costs one batch and
        shows. Once a batch was long enough to shed by, its cost is believed: after a restart, a backlog is not a burst.
        """
        return not self._worked and waited_s < self.delay_target_s / 4.0 and rows > _STRETCH * self._largest

    def _unreachable(self) -> str | None:
        """Say once that the engine is too slow for the target, whatever is shed."""
        overhead_s = self.model.overhead_s
        if self._warned or overhead_s is None or self.model.cost_s is None or overhead_s < self.batch_time_s:
            return None
        self._warned = True
        least_s = 2.0 * overhead_s * self.delay_target_s / self._worst_s
        return (
            f"the delay target of {self.delay_target_s:g} s can't be reached, whatever is shed: a batch takes {overhead_s:.2g} s "
            f"without any rows, so the least target is about {least_s:.2g} s; going on with best effort"
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {"model": self.model.snapshot()} | {name: getattr(self, name) for name in self._STATE}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Take the state of a snapshot and return the controller."""
        self.model.restore(state["model"])
        for name in self._STATE:
            setattr(self, name, state[name])
        return self

    _STATE = ("_last_start_s", "_rate", "_largest", "_worked", "_warned")


_LEAST_SHARE = 0.1
_STRETCH = 4.0
_REUSE = 0.5
# Of the expected rows, keep falls from here on: a batch that is just as expected loses little by it.
_EARLY = 0.8
