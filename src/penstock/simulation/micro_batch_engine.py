"""A micro-batch engine: batch k takes ``overhead + cost * kept(k)``, and its rows are those that came while batch k-1 ran.

It drives the same decision core as Spark. The ways in which a controller can act on it are Spark's: by batch, with the size of
the batch known before it runs; by arrival, where a decision holds for rows that arrive after it; and not at all, with rows left
in the source instead (``limit``). So are the ways in which a job gets into trouble: it starts behind, cold, on a capped source;
it stalls; it is down for a while and starts again from its journal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.control.base import Controller, GateCount, Observation
from penstock.decision import (
    BatchEnded,
    BatchPlanned,
    BatchTimes,
    ByArrival,
    ByBatch,
    Instruction,
    MeterReading,
    QueryCore,
    SlotGate,
    carry_out,
)
from penstock.drop.shares import EqualShare
from penstock.drop.tables import BatchTable, KeepTable
from penstock.errors import PenstockError
from penstock.journal.records import Record
from penstock.journal.state import JournalState
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.queue import arrival_times

__all__ = ["Conditions", "simulate_micro_batches"]

Times = NDArray[np.float64]
How = Literal["by batch", "by arrival"]

_GATE = "in"
_SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a job meets in the wild.

    >>> Conditions(cap=1_500, stall_every_s=15.0, stall_s=3.0).cap
    1500
    """

    start_s: float = 0.0
    """When the job starts; the rows that arrived before wait for it."""
    cap: int | None = None
    """The most rows that the source gives to a batch, as ``maxOffsetsPerTrigger`` does."""
    cold_s: float | None = None
    """How much longer the first batch takes, if the engine is cold."""
    stall_every_s: float = math.inf
    stall_s: float = 0.0
    """Every so often the engine stops for so long; a batch that runs then takes as much longer."""
    down_at_s: float = math.inf
    down_s: float = 0.0
    """The job ends at a time, and starts again from its journal so much later."""
    scan_s: float = 0.0
    """Seconds per row offered, kept or not."""
    latency_s: float = 0.0
    """How long after their arrival rows can be read."""
    has_ages: bool = True
    """Whether rows say when they arrived."""
    step_at_s: float = math.inf
    step_s: float = 0.0
    """At a time, all clocks are set forward by so much; back, if it is negative."""

    def __post_init__(self) -> None:
        if self.cap is not None and self.cap < 1:
            raise PenstockError(f"the cap of a source must be at least 1 row per batch, got {self.cap}")
        if not math.isfinite(self.step_s):
            raise PenstockError(f"a clock can't be set forward by {self.step_s} s")
        for name in ("start_s", "stall_s", "down_s", "scan_s", "latency_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PenstockError(f"{name} must not be negative, got {value}")
        if not self.stall_every_s > 0 or self.stall_s >= self.stall_every_s:
            raise PenstockError(f"stalls of {self.stall_s} s every {self.stall_every_s} s leave no time to work")

    def read_clock(self, times_s: ArrayLike) -> Times:
        """Return what clocks show at these times."""
        times = np.asarray(times_s, dtype=np.float64)
        return times + np.where(times >= self.step_at_s, self.step_s, 0.0)

    def stalled_s(self, start_s: float, end_s: float) -> float:
        """Return how much longer a batch takes for the stalls that begin while it runs."""
        if not math.isfinite(self.stall_every_s):
            return 0.0
        stalls, at = 0, math.floor(start_s / self.stall_every_s) + 1
        while at * self.stall_every_s < end_s + stalls * self.stall_s:
            stalls, at = stalls + 1, at + 1
        return stalls * self.stall_s


def simulate_micro_batches(
    arrivals: ArrayLike,
    controller: Controller,
    *,
    cost_s: float | Profile,
    overhead_s: float | Profile = 0.2,
    headroom: float | Profile = 1.0,
    how: How = "by batch",
    bounded: bool = False,
    limit: Callable[[Observation | None], int | None] | None = None,
    conditions: Conditions | None = None,
    max_loss: float = 1.0,
    noise: float = 0.0,
    lag_s: float = 0.15,
    stop_s: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Run arrivals through a controlled micro-batch engine.

    Parameters
    ----------
    arrivals
        Arrival times in seconds, sorted.
    controller
        Decides what to keep.
    cost_s, overhead_s, headroom
        Seconds per row, seconds per batch, and the share of the machine that the job gets; numbers or functions of time.
    how
        Whether decisions take effect by batch or by arrival.
    bounded
        By arrival: of the rows beyond those expected, fewer and fewer are kept, as at a bounded gate.
    limit
        Says, from what was observed of the last batch, how many rows the next one may take; the others wait in the source.
    conditions
        Backlogs, caps, cold starts, stalls and restarts.
    max_loss
        The largest share of the rows that may be shed over a minute.
    noise
        The relative standard deviation of a batch's time.
    lag_s
        By arrival: a decision takes effect in the first slot that begins this long after the batch it was made on.
    stop_s
        When to stop; by default when all rows are through.
    seed
        Of the draws that decide which rows are kept, and of the noise.

    Examples
    --------
    >>> from penstock.control import KeepAll
    >>> steady = simulate_micro_batches(np.arange(0.0, 60.0, 0.01), KeepAll(2.0), cost_s=0.005, overhead_s=0.2)
    >>> round(float(np.median(np.diff(steady.series["t_s"]))), 2)     # o / (1 - c * rate) = 0.2 / (1 - 0.5)
    0.4

    """
    _check_options(how, noise)
    conditions = Conditions() if conditions is None else conditions
    plant = _Plant(Profile.of(cost_s), Profile.of(overhead_s), Profile.of(headroom), conditions, noise)

    def new_core(law: Controller) -> QueryCore:
        return _build_core(law, how, conditions, bounded=bounded, lag_s=lag_s, max_loss=max_loss)

    gate = _SimulatedGate(new_core, controller)
    run = _Run(arrival_times(arrivals), gate, plant, limit, np.random.default_rng(seed))
    until_s = math.inf if stop_s is None else stop_s
    while run.at < run.times.size and run.now_s < until_s:
        run.run_batch(until_s)
    arrived = run.at if stop_s is None else int(np.searchsorted(run.times, stop_s, side="right"))
    return run.outcome(controller.delay_target_s, max(run.at, arrived))


def _check_options(how: str, noise: float) -> None:
    if how not in ("by batch", "by arrival"):
        raise PenstockError(f"how must be 'by batch' or 'by arrival', got {how!r}")
    if not (math.isfinite(noise) and 0 <= noise < 1):
        raise PenstockError(f"noise must lie in [0, 1), got {noise}")


def _build_core(
    controller: Controller, how: How, conditions: Conditions, *, bounded: bool, lag_s: float, max_loss: float
) -> QueryCore:
    slot_gate = SlotGate(_GATE, EqualShare(), is_bounded=bounded and how == "by arrival")
    slot_gate.update_tasks(1)
    is_warm = conditions.cold_s is None
    if how == "by batch":
        slot_gate.arrival_column = "t" if conditions.has_ages else None
        return ByBatch([slot_gate], controller, is_warm=is_warm, max_loss=max_loss)
    return ByArrival([slot_gate], controller, is_warm=is_warm, margin_s=lag_s, max_loss=max_loss)


class _SimulatedGate:
    """Drives the core in simulated time: the journal is a list in memory, and the gate is the numpy twin of Spark's."""

    def __init__(self, new_core: Callable[[Controller], QueryCore], controller: Controller) -> None:
        self._new_core, self._fresh_controller = new_core, copy.deepcopy(controller)
        self.clock_s = 0.0
        self.observed: Observation | None = None
        self.notes: list[str] = []
        self._journal = JournalState()
        self._open(controller)

    def _open(self, controller: Controller) -> None:
        self._table: KeepTable = KeepTable.everywhere((1.0,))
        self.core = self._new_core(controller)
        self.carry_out(self.core.restore(self._journal))

    def restart(self) -> None:
        """Lose everything but the journal."""
        self._open(copy.deepcopy(self._fresh_controller))

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        carry_out(self.core, instructions, self)

    def judge(self, arrivals_s: Times, draws: Times) -> tuple[NDArray[np.bool_], MeterReading]:
        """Return which rows of a batch are kept, and what a gate's counters say of them."""
        micros = (arrivals_s * 1e6).astype(np.int64)
        is_bounded = self._table.keeps.shape[1] > 1
        keeps = self._table.lookup_arrivals(micros, ranks=np.arange(micros.size) if is_bounded else None)
        passed: NDArray[np.bool_] = draws < keeps
        has_line = isinstance(self._table, BatchTable)
        expired = arrivals_s[~passed & (micros < self._table.oldest)] if has_line else arrivals_s[:0]
        kept = arrivals_s[passed]
        reading = MeterReading(
            kept.size,
            mean_arrival_s=float(kept.mean()) if kept.size else None,
            expired=expired.size,
            mean_expired_arrival_s=float(expired.mean()) if expired.size else None,
        )
        return passed, reading

    def now_s(self) -> float:
        return self.clock_s

    def append(self, records: Sequence[Record], query: str | None) -> None:  # noqa: ARG002 - one query
        for record in records:
            self._journal.add(record)
        self._journal.fold(_RETAIN)

    def append_later(self, records: Sequence[Record]) -> None:
        """Nothing fails here, so nothing is written later."""

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:  # noqa: ARG002 - one gate
        (self._table,) = tables

    def warn(self, message: str, error: Exception | None = None) -> None:
        """A controller that fails ends the simulation: its outcome would mean nothing."""
        if error is not None:
            raise error
        if message not in self.notes:
            self.notes.append(message)


_RETAIN = 8


@dataclass(frozen=True, slots=True)
class _Plant:
    """How long a batch takes."""

    cost: Profile
    overhead: Profile
    headroom: Profile
    conditions: Conditions
    noise: float

    def run(self, start_s: float, offered: int, kept: int, rng: np.random.Generator, *, is_cold: bool) -> BatchTimes:
        factor = max(0.1, 1.0 + self.noise * rng.standard_normal()) if self.noise else 1.0
        busy_s = self.cost.at(start_s) * kept + self.conditions.scan_s * offered
        length_s = (self.overhead.at(start_s) + busy_s) * factor / self.headroom.at(start_s)
        length_s += (self.conditions.cold_s or 0.0) if is_cold else 0.0
        length_s += self.conditions.stalled_s(start_s, start_s + length_s)
        return BatchTimes(start_s, start_s + length_s, busy_s)


# long because it is the whole run
class _Run:
    """Runs batches, and gathers what came out so far."""

    def __init__(
        self,
        times: Times,
        gate: _SimulatedGate,
        plant: _Plant,
        limit: Callable[[Observation | None], int | None] | None,
        rng: np.random.Generator,
    ) -> None:
        self.times, self._gate, self._plant, self._limit, self._rng = times, gate, plant, limit, rng
        self._draws = rng.random(times.size)
        self.at = 0  # the next row
        self.now_s = plant.conditions.start_s
        self.number = self.kept = self.expired = 0
        self._ended: BatchTimes | None = None
        self._left = 0  # what the cap left in the source when the last batch was planned
        self._is_cold, self._was_down = True, False
        self._delays: list[Times] = []
        names = ("t_s", "delay_s", "worst_s", "keep", "rate", "queue", "batch_s", "expired", "kept")
        self._series: dict[str, list[float]] = {name: [] for name in names}

    def run_batch(self, until_s: float) -> None:
        """Run one batch."""
        gate, conditions = self._gate, self._plant.conditions
        self._restart_if_due(conditions)
        first_s = float(self.times[self.at]) + conditions.latency_s
        now_s = self.now_s = max(self.now_s, first_s)  # nothing to do before the next row comes
        gate.clock_s = float(conditions.read_clock(now_s))
        arrived = max(self.at + 1, int(np.searchsorted(self.times, now_s - conditions.latency_s, side="right")))
        caps = [conditions.cap, self._limit(gate.observed) if self._limit is not None else None]
        upto = min([arrived, *(self.at + max(1, cap) for cap in caps if cap is not None)])
        left = {} if conditions.has_ages or conditions.cap is None else {_SOURCE: self._left}
        self._left = arrived - upto
        planned = BatchPlanned(self.number, gate.clock_s, {_SOURCE: upto - self.at}, previous=self._ended, left_rows=left)
        gate.carry_out(gate.core.plan_batch(planned))
        rows = self.times[self.at : upto]
        passed, reading = gate.judge(conditions.read_clock(rows), self._draws[self.at : upto])
        times = self._plant.run(now_s, rows.size, reading.kept, self._rng, is_cold=self._is_cold)
        self._is_cold = False
        start_s, end_s = conditions.read_clock((times.start_s, times.end_s)).tolist()
        shown = BatchTimes(start_s, end_s, times.busy_s)
        gate.clock_s = shown.end_s
        counts = {_GATE: GateCount(rows.size, reading.kept)}
        backlog = {_SOURCE: int(np.searchsorted(self.times, times.end_s, side="right")) - upto}
        gate.observed = Observation(
            self.number,
            shown.start_s,
            shown.end_s,
            counts,
            keep=gate.core.keep_of(counts),
            busy_s=times.busy_s,
            mean_arrival_s=reading.mean_arrival_s,
            backlog_rows=backlog,
        )
        ended = BatchEnded(self.number, shown.end_s, counts, {_GATE: reading}, times=shown, backlog_rows=backlog)
        gate.carry_out(gate.core.end_batch(ended))
        self._ended = shown
        self._add(times.end_s - rows[passed], reading, counts[_GATE], times, left=arrived - upto, finished=times.end_s <= until_s)
        self.at, self.now_s, self.number = upto, times.end_s, self.number + 1

    def _restart_if_due(self, conditions: Conditions) -> None:
        if self._was_down or self.now_s < conditions.down_at_s:
            return
        self._was_down = self._is_cold = True
        self.now_s += conditions.down_s
        self._gate.clock_s = float(conditions.read_clock(self.now_s))
        self._ended, self._left = None, 0
        self._gate.restart()

    def _add(
        self, delays: Times, reading: MeterReading, count: GateCount, times: BatchTimes, *, left: int, finished: bool
    ) -> None:
        before_s = self._series["t_s"][-1] if self._series["t_s"] else 0.0
        values = {
            "t_s": times.start_s,
            "delay_s": float(delays.mean()) if delays.size else np.nan,
            "worst_s": float(delays.max()) if delays.size else np.nan,
            "keep": self._gate.core.keep_of({_GATE: count}),
            "rate": count.offered / max(times.start_s - before_s, 1e-9),
            "queue": left,
            "batch_s": times.end_s - times.start_s,
            "expired": reading.expired,
            "kept": count.kept,
        }
        for name, value in values.items():
            self._series[name].append(value)
        self._delays.append(delays if finished else delays[:0])
        self.kept, self.expired = self.kept + count.kept, self.expired + reading.expired

    def outcome(self, delay_target_s: float, offered: int) -> Outcome:
        """Return the whole."""
        series = {name: np.array(values) for name, values in self._series.items()}
        outcome = Outcome.of(np.concatenate(self._delays), delay_target_s, offered, self.kept, series)
        return replace(outcome, expired=self.expired, notes=tuple(self._gate.notes))
