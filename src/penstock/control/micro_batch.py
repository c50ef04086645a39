"""MicroBatch: give every batch the rows that fit into the time that the delay target leaves it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from penstock.control.base import SHORTEST_S, AgeRule, Controller, Decision, Observation
from penstock.control.batch_clock import BatchClock
from penstock.control.row_ramp import RowRamp
from penstock.control.source_lag import SourceLag, smooth_rate
from penstock.errors import PenstockError
from penstock.estimate import BatchFilter

__all__ = ["MicroBatch"]


class MicroBatch(Controller):
    """How many rows fit into the next batch, and which? A controller for micro-batches, where batch k takes ``o + c * kept(k)``.

    A row of age a comes out when its batch ends, B seconds later. If no row may wait longer than W, rows with ``a > W - B`` have
    expired: they miss the target whatever is done. While everything fits, everything is kept, old rows too. If it does not, or
    if the engine has stood still and catching up would make others late, expired rows go first, and that needs to know neither
    their number nor their cost. Of the others:

    - ``prefer="even"`` keeps the same share of all. Rows gather while the last batch runs, so two batch times are the longest
      wait, and ``B = W / 2``. That holds ``(B - o) / c`` rows. No controller that holds batches of that length and a sample that
      is even over time loses less: the overhead o is paid once per batch whatever is dropped.
    - ``prefer="fresh"`` keeps the newest x seconds and nothing else, with ``x + o + c r x = W`` at r rows per second. The oldest
      row kept waits for x + B instead of 2 B, so batches may be longer at the same wait, and less of the time is overhead.

    ``floor`` is the share of older rows that stays in any case, so that weights remain unbiased; those rows are late.

    So long batches lose less, and ``worst`` says what that is worth to you: W is that many times the target. At 1 even the oldest
    row of a batch meets it. At 4/3 the mean delay is the target, which is what CTRL and SEaMLeSS aim at.

    Overhead and cost are learned (`BatchFilter`). While little is known only a small number of rows is kept, and it grows
    (`RowRamp`). Batches of one size with rows that get older show a capped source (`SourceLag`).

    Where it fails: if the overhead alone exceeds the batch time, no shedding reaches the target. Then five times the overhead is
    held instead, where three fifths of the time go to rows, and it says so. If a cap lets in less than arrives, it says which cap
    would do, and sheds no more for it. By arrival, a burst that comes after the decision is only held by a bounded gate.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.
    worst
        The longest wait of a row, as a multiple of the target; from 0.1 to 2.
    prefer
        Which rows to keep in an overload: a sample that is even over time, or the freshest.
    expired
        Whether to ``"shed"`` rows that can't meet the target any more in an overload, or to ``"keep"`` as many as of all others.
    floor
        The least share of older rows to keep.
    first_cost_s
        Seconds per row to start with, if known.

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

    def __init__(
        self,
        delay_target_s: float,
        worst: float = 1.0,
        *,
        prefer: Literal["even", "fresh"] = "even",
        expired: Literal["shed", "keep"] = "shed",
        floor: float = 0.0,
        first_cost_s: float | None = None,
    ) -> None:
        super().__init__(delay_target_s)
        _check_options(worst, prefer, expired, floor, first_cost_s)
        self.worst, self.prefer, self.expired, self.floor = worst, prefer, expired, floor
        self.model = BatchFilter()
        """The estimates of overhead and cost."""
        self._ramp = RowRamp(max(_LEAST_ROWS, _FIRST_ROWS_PER_S * delay_target_s))
        self._lag = SourceLag()
        self._clock = BatchClock()
        self.unit = "rows"
        """What its observations count, for messages."""
        self._last_start_s: float | None = None
        self._rate: float | None = None
        self._is_out_of_reach = False
        self._is_started = False
        self._cold_batch: tuple[int, float] | None = None  # rows and time of the first batch of a run
        self._newest: float | None = None  # rows that the last batch should have kept as the newest
        self._unevenness = _FIRST_UNEVENNESS  # the mean square of how much more it kept, relative to that
        self._newest_seen = 0
        self._is_trying = False
        self._said: list[str] = []
        if first_cost_s is not None:
            self.suppose_cost(first_cost_s)

    def suppose_cost(self, cost_s: float) -> None:
        """Start with the rows that fit at this cost, if a fifth of a batch's time is overhead."""
        self._ramp = RowRamp(max(1.0, 0.8 * self.worst * self.delay_target_s / 2.0 / cost_s), is_known=True)

    @property
    def wait_s(self) -> float:
        """The longest wait that is held, W: that of the target, or what can be reached."""
        overhead_s = self.model.overhead_s
        if self._is_out_of_reach and overhead_s is not None:
            return self._clock.latency_s + _ROOMY * overhead_s
        return self.worst * self.delay_target_s

    @property
    def batch_time_s(self) -> float:
        """The batch time in a steady state, if the sample is even."""
        return max(0.0, self.wait_s - self._clock.latency_s) / 2.0

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on, and say again if that can't be reached."""
        super().change_target(delay_target_s)
        self._said = [said for said in self._said if said != "reach"]

    def start(self) -> Decision:
        """By arrival, bound the first batch."""
        return Decision(None, full_rows=self._ramp.limit(self.model, self.batch_time_s))

    def update(self, observation: Observation) -> Decision:
        """Learn from the last batch, and decide how much of the next one fits."""
        kept, period_s = observation.kept, observation.period_s
        if not observation.cold:
            self.model.update(kept, period_s)
        elif not self._is_started and period_s > SHORTEST_S:
            self._cold_batch = (kept, period_s)
        self._is_started = self._is_started or period_s > SHORTEST_S
        if self._newest is not None and self._newest > 0.0 and period_s > SHORTEST_S:
            self._newest_seen += 1
            gain = max(_SLOWLY, 1.0 / (1.0 + self._newest_seen))
            self._unevenness += gain * (min(max(0.0, kept / self._newest - 1.0) ** 2, _MOST_UNEVEN) - self._unevenness)
        self._newest = None
        work_s = (self.model.cost_s or 0.0) * kept
        self._ramp.update(kept, period_s, self.batch_time_s, work_s, is_cold=observation.cold)
        self._lag.update(observation)
        self._clock.update(observation, is_capped=self._lag.is_capped)
        self._judge_reach()
        if observation.upcoming_rows is None:
            decision = self._decide_by_arrival(observation)
        else:
            decision = self._decide_by_batch(observation, float(observation.upcoming_rows))
            gathered_s = self._clock.waited_s(observation.waited_s or 0.0)
            self._rate = smooth_rate(self._rate, observation.upcoming_rows, gathered_s)
        reachable_s = self.wait_s / self.worst if self._is_out_of_reach else None
        return replace(decision, note=self._note(), reachable_s=reachable_s)

    # -- by batch --------------------------------------------------------------------------------------------------------

    def _decide_by_batch(self, observation: Observation, rows: float) -> Decision:
        """Decide on a batch whose size is known."""
        if not rows:
            return Decision(1.0)
        waited_s = observation.waited_s if observation.waited_s is not None else observation.period_s
        if not observation.has_ages:
            return Decision(self._keep_without_ages(observation, rows, waited_s))
        waited_s = self._clock.waited_s(waited_s)
        batch_s = self.batch_time_s + _REUSE * max(0.0, self.batch_time_s - waited_s)
        is_behind = self._lag.is_behind and not self._lag.is_hopeless
        if is_behind:
            batch_s = min(batch_s, _CATCH_UP * self._lag.pace_s)
        limit = self._ramp.limit(self.model, batch_s, is_late=_is_late(observation, waited_s, self.batch_time_s))
        overdue_s = waited_s + self._clock.latency_s
        if rows <= limit and not is_behind and not _is_overdue(self.model, rows, overdue_s, self.wait_s):
            return Decision(1.0)
        if self.model.cost_s is None and not self._ramp.is_known and self._ramp.is_first(limit):
            self._is_trying = True
        if self.expired == "keep" or self._lag.is_hopeless:
            return Decision(min(1.0, limit / rows))
        rule = self._fresh_rule if self.prefer == "fresh" and not is_behind else self._even_rule
        return Decision(min(1.0, limit / rows), age=rule(observation, rows, waited_s, batch_s))

    def _even_rule(self, observation: Observation, rows: float, waited_s: float, batch_s: float) -> AgeRule:
        """Shed expired rows, and keep an even share of all others."""
        overhead_s, cost_s = self.model.overhead_s or 0.0, self.model.cost_s or 0.0
        latency_s, begin_s = self._clock.latency_s, self._clock.begin_s(observation)
        if latency_s + waited_s > self.wait_s - batch_s and not self._lag.is_capped:
            # Some have expired. If the others take less time than a batch has, more of them can be in time.
            load = cost_s * rows / waited_s if waited_s > SHORTEST_S else 0.0
            batch_s = min(batch_s, (overhead_s + load * (self.wait_s - latency_s)) / (1.0 + load)) if load > 0.0 else batch_s
        fresh_s = self.wait_s - batch_s - (_warm_up_s(self.model, self._cold_batch) if observation.upcoming_cold else 0.0)
        if fresh_s <= 0.0:
            return AgeRule(begin_s, self.floor, self.floor)  # by the time that it is warm, all will have expired
        is_known = waited_s > SHORTEST_S and not self._lag.is_capped
        fresh = rows * min(1.0, max(0.0, fresh_s - latency_s) / waited_s) if is_known else rows
        most = self._ramp.limit(self.model, batch_s, is_late=_is_late(observation, waited_s, self.batch_time_s))
        limit = max(1.0, most - self.floor * (rows - fresh))
        if limit < fresh:
            limit = max(1.0, limit - math.sqrt(limit * (1.0 - limit / fresh)))  # a sample may come out larger by as much
        keep = min(1.0, limit / max(fresh, 1.0))
        return AgeRule(begin_s - fresh_s, max(keep, self.floor), min(keep, self.floor))

    def _fresh_rule(self, observation: Observation, rows: float, waited_s: float, batch_s: float) -> AgeRule:
        """Keep the newest x seconds, with ``x + o + c r x = W``."""
        overhead_s, cost_s = self.model.overhead_s, self.model.cost_s
        is_unknown = self._rate is None or waited_s <= SHORTEST_S or _is_odd(rows, self._rate * waited_s)
        if overhead_s is None or cost_s is None or is_unknown or not self._ramp.has_worked:
            return self._even_rule(observation, rows, waited_s, batch_s)
        if self._lag.is_capped or observation.upcoming_cold:
            return self._even_rule(observation, rows, waited_s, batch_s)
        if self._unevenness > _CLUMPY:  # of rows that come in clumps, nobody knows how many are new; now and then, look again
            self._unevenness *= _FORGET
            return self._even_rule(observation, rows, waited_s, batch_s)
        # Rows are not even over time, and the newest seconds may have more than their share.
        rate, floor = rows / waited_s, self.floor
        load = (1.0 - floor) * cost_s * rate * (1.0 + _MARGIN * math.sqrt(self._unevenness))
        # Longer batches vary more: what an even sample may be late, with batches of W / 2, is allowed here too, and no more.
        spent_s = (1.0 + _NOISE) * (overhead_s + floor * cost_s * rows)
        latency_s = self._clock.latency_s
        left_s = self.wait_s - latency_s
        newest_s = ((1.0 + _NOISE / 2.0) * left_s - spent_s) / (1.0 + (1.0 + _NOISE) * load)
        newest_s = max(newest_s, _LEAST_SHARE * self.batch_time_s / (1.0 + load))
        newest_s = min(newest_s, self._ramp.limit(self.model, max(batch_s, left_s - newest_s)) / rate)
        self._newest = rate * min(newest_s, waited_s) * (1.0 - floor) + floor * rows
        return AgeRule(self._clock.begin_s(observation) - latency_s - newest_s, 1.0, floor)

    def _keep_without_ages(self, observation: Observation, rows: float, waited_s: float) -> float:
        """Return the keep where rows don't say when they arrived: their wait is what the last batch took."""
        spare_s = self.batch_time_s - waited_s
        batch_s = self.batch_time_s + (spare_s if spare_s < 0 else _REUSE * spare_s)
        # After a batch that was far too long the target is missed anyway. Some rows must pass, or nothing is ever learned.
        batch_s = max(batch_s, _LEAST_SHARE * self.batch_time_s)
        limit = max(self._ramp.limit(self.model, batch_s), _count_proven(observation, batch_s))
        keep = min(1.0, limit / rows)
        if self.expired == "keep" or self._lag.is_hopeless or not self._lag.is_capped:
            return keep
        # A cap leaves rows in the source, and the engine says how many: that is their age.
        if self._lag.oldest_age_s(observation) > self.wait_s - self.batch_time_s:
            return min(keep, self.floor)
        return keep

    # -- by arrival ------------------------------------------------------------------------------------------------------

    def _decide_by_arrival(self, observation: Observation) -> Decision:
        """Decide on a batch that gathers its rows while one of the right length runs: expect the rate to stay the same."""
        last_start_s, self._last_start_s = self._last_start_s, observation.start_s
        if observation.cold and observation.period_s >= SHORTEST_S:
            return Decision(None)  # its rows came in who knows how long a time, and its own time says little
        gathered_s = observation.start_s - last_start_s if last_start_s is not None else observation.period_s
        self._rate = smooth_rate(self._rate, observation.offered, gathered_s)
        is_first = observation.has_ages and observation.period_s < SHORTEST_S
        if is_first and self.expired == "shed":
            # By batch, but nobody knows how many rows wait: what can't be in time any more goes, whatever its number.
            return Decision(1.0, age=AgeRule(_now_s(observation) - self.batch_time_s, 1.0, self.floor))
        if self.model.cost_s is None or self._rate is None:
            return Decision(None)
        spare_s = self.batch_time_s - observation.period_s
        batch_s = max(self.batch_time_s + min(0.0, spare_s), _LEAST_SHARE * self.batch_time_s)
        expected = self._rate * self.batch_time_s
        if self._lag.is_behind and not self._lag.is_hopeless:
            batch_s, expected = min(batch_s, _CATCH_UP * self._lag.pace_s), float(self._lag.size)
        limit = max(self._ramp.limit(self.model, batch_s, may_try=False), _count_proven(observation, batch_s))
        # A burst after batches that say little about the cost is not yet an overload: one batch, held by the bound, shows it.
        is_unproven = not self._ramp.has_worked and observation.period_s < self.batch_time_s / 2.0
        is_unproven = is_unproven and self._ramp.is_beyond(expected) and observation.has_bound
        keep = min(1.0, limit / expected) if expected > 0 and not is_unproven else 1.0
        has_line = observation.has_ages and self.expired == "shed" and keep < 1.0
        rule = (
            AgeRule(_now_s(observation) - self.batch_time_s, max(keep, self.floor), min(keep, self.floor)) if has_line else None
        )
        return Decision(keep, full_rows=_EARLY * max(expected, limit), age=rule)

    # -- what the user should know ---------------------------------------------------------------------------------------

    def _judge_reach(self) -> None:
        """Decide whether the target can be reached: the shortest batches are all overhead. Both ways with some slack."""
        overhead_s = self.model.overhead_s
        if overhead_s is None or self.model.cost_s is None:
            return
        least_s = (2.0 if self.prefer == "even" else 1.0) * overhead_s + self._clock.latency_s
        slack = _LEAVE if self._is_out_of_reach else _ENTER
        self._is_out_of_reach = least_s > slack * self.worst * self.delay_target_s

    def _note(self) -> str | None:
        """Return what the user should know and has not been told."""
        if self._is_out_of_reach and "reach" not in self._said:
            self._said.append("reach")
            latency_s = self._clock.latency_s
            old = f", and rows are {latency_s:.2g} s old when they can be read" if latency_s > 0.0 else ""
            return (
                f"the delay target of {self.delay_target_s:g} s can't be reached, whatever is shed: a batch takes "
                f"{self.model.overhead_s:.2g} s without any rows{old}; holding {self.wait_s / self.worst:.2g} s instead"
            )
        units = self._lag.row_units
        rate = (self._lag.rate or 0.0) / units
        if self._lag.is_hopeless and rate and "cap" not in self._said:
            self._said.append("cap")
            return (
                f"the source is capped at about {self._lag.size / units:,.0f} rows per batch, and about {rate:,.0f} rows/s "
                f"arrive: no shedding holds the target; a cap of {math.ceil(rate * self.batch_time_s):,} rows would do"
            )
        if self._is_trying and "start" not in self._said:
            self._said.append("start")
            return (
                f"nothing is known of the cost of a row yet, so at most {self._ramp.first_rows:,.0f} {self.unit} per batch are "
                "kept until batches prove short; give a first cost to keep more from the start"
            )
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        parts = {"model": self.model.snapshot(), "ramp": self._ramp.snapshot(), "lag": self._lag.snapshot()}
        parts |= {"clock": self._clock.snapshot()}
        cold_batch = None if self._cold_batch is None else list(self._cold_batch)
        values = {name: getattr(self, f"_{name}") for name in self._STATE}
        return parts | values | {"cold_batch": cold_batch, "said": list(self._said)}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Continue from a snapshot, and return the controller. One of an older version knows less, and what it knows counts."""
        older = {"ramp": {name: state[name] for name in ("largest", "has_worked") if name in state}}
        state = self.snapshot() | older | dict(state)
        self.model.restore(state["model"])
        self._ramp.restore(state["ramp"])
        self._lag.restore(state["lag"])
        self._clock.restore(state["clock"])
        for name in self._STATE:
            setattr(self, f"_{name}", state[name])
        self._cold_batch = None if state["cold_batch"] is None else tuple(state["cold_batch"])
        self._said = list(state["said"])
        return self

    _STATE = ("last_start_s", "rate", "is_out_of_reach", "is_started", "is_trying", "newest", "newest_seen", "unevenness")


def _count_proven(observation: Observation, batch_s: float) -> float:
    """Return the rows that fit for sure: r times the rows of a batch take at most r times as long, for any r above 1."""
    period_s = observation.period_s
    return observation.kept * batch_s / period_s if SHORTEST_S <= period_s <= batch_s else 0.0


def _is_late(observation: Observation, waited_s: float, batch_time_s: float) -> bool:
    """Whether rows have waited for longer than a batch takes, as far as anyone knows."""
    return observation.waited_s is None or waited_s > batch_time_s


def _is_overdue(model: BatchFilter, rows: float, waited_s: float, wait_s: float) -> bool:
    """Whether rows have waited for an engine that stood still, and take a time that makes the next ones wait too."""
    batch_s = (model.overhead_s or 0.0) + (model.cost_s or 0.0) * rows
    return waited_s + batch_s > _PATIENCE * wait_s and batch_s > wait_s / 4.0


def _is_odd(rows: float, expected: float) -> bool:
    """Whether rows are far more or far fewer than expected: a flood, a lull or a clock that was set. Many may be new."""
    return expected > 0.0 and not expected / _ODD <= rows <= _ODD * expected


def _warm_up_s(model: BatchFilter, cold_batch: tuple[int, float] | None) -> float:
    """Return how much longer the first batch of a run takes, judging by the rows and the time of one before."""
    if cold_batch is None or model.overhead_s is None or model.cost_s is None:
        return 0.0
    rows, period_s = cold_batch
    return max(0.0, period_s - model.overhead_s - model.cost_s * rows)


def _now_s(observation: Observation) -> float:
    return observation.taken_s if observation.taken_s is not None else observation.end_s


def _check_options(worst: float, prefer: str, expired: str, floor: float, first_cost_s: float | None) -> None:
    if not 0.1 <= worst <= 2.0:
        raise PenstockError(f"worst must lie in [0.1, 2], got {worst}")
    if prefer not in ("even", "fresh"):
        raise PenstockError(f"prefer must be 'even' or 'fresh', got {prefer!r}")
    if expired not in ("shed", "keep"):
        raise PenstockError(f"expired must be 'shed' or 'keep', got {expired!r}")
    if not (math.isfinite(floor) and 0.0 <= floor < 1.0):
        raise PenstockError(f"floor must lie in [0, 1), got {floor}")
    if first_cost_s is not None and not (math.isfinite(first_cost_s) and first_cost_s > 0):
        raise PenstockError(f"first_cost_s must be positive, got {first_cost_s}")


_FIRST_ROWS_PER_S, _LEAST_ROWS = 1000.0, 100.0
_LEAST_SHARE, _REUSE = 0.1, 0.5
# The share of the expected rows from which on a bounded gate keeps fewer: a batch of the expected size loses little by it.
_EARLY = 0.8
_ROOMY, _CATCH_UP, _PATIENCE = 5.0, 0.9, 1.15
_CLUMPY, _FORGET = 0.25, 0.97
_FIRST_UNEVENNESS, _SLOWLY, _MARGIN = 0.01, 0.2, 2.0
_NOISE, _MOST_UNEVEN, _ODD = 0.1, 1.0, 3.0
_ENTER, _LEAVE = 0.95, 0.85
