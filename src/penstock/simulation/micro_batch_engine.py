"""A micro-batch engine: batch k takes ``overhead + cost * kept(k)``, and its rows are those that came while batch k-1 ran.

It drives the same decision core as Spark. The ways in which a controller can act on it are Spark's: by batch, with the size of
the batch known before it runs; by arrival, where a decision holds for rows that arrive after it; and not at all, with rows left
in the source instead (``limit``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from penstock.drop.tables import SLOT_SHIFT, KeepTable
from penstock.errors import PenstockError
from penstock.journal.records import Record
from penstock.journal.state import JournalState
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.queue import arrival_times

__all__ = ["simulate_micro_batches"]

Times = NDArray[np.float64]
How = Literal["by batch", "by arrival"]

_GATE = "in"
_SOURCE = "source"


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
    times = arrival_times(arrivals)
    cost, overhead, share = Profile.of(cost_s), Profile.of(overhead_s), Profile.of(headroom)
    _check_options(how, noise)
    rng = np.random.default_rng(seed)
    draws = rng.random(times.size)
    gate = _SimulatedGate(_build_core(controller, how, bounded=bounded, lag_s=lag_s))
    until_s = math.inf if stop_s is None else stop_s
    run = _Run()
    ended: BatchTimes | None = None
    while run.at < times.size and run.now_s < until_s:
        run.now_s = gate.clock_s = max(run.now_s, float(times[run.at]))  # nothing to do before the next row comes
        arrived = int(np.searchsorted(times, run.now_s, side="right"))
        cap = limit(gate.observed) if limit is not None else None
        upto = arrived if cap is None else min(arrived, run.at + max(1, cap))
        planned = BatchPlanned(run.number, run.now_s, {_SOURCE: upto - run.at}, previous=ended)
        gate.carry_out(gate.core.plan_batch(planned))
        rows = times[run.at : upto]
        passed = draws[run.at : upto] < gate.keeps(rows)
        count = int(passed.sum())
        factor = max(0.1, 1.0 + noise * rng.standard_normal()) if noise else 1.0
        busy_s = cost.at(run.now_s) * count
        end_s = run.now_s + (overhead.at(run.now_s) + busy_s) * factor / share.at(run.now_s)
        ended = BatchTimes(run.now_s, end_s, busy_s)
        gate.clock_s = end_s
        reading = MeterReading(count, mean_arrival_s=float(rows[passed].mean()) if count else None)
        backlog = {_SOURCE: int(np.searchsorted(times, end_s, side="right")) - upto}
        event = BatchEnded(
            run.number, end_s, {_GATE: GateCount(rows.size, count)}, {_GATE: reading}, times=ended, backlog_rows=backlog
        )
        gate.observed = Observation(
            run.number,
            run.now_s,
            end_s,
            event.counts,
            keep=gate.core.keep_of(event.counts),
            busy_s=busy_s,
            mean_arrival_s=reading.mean_arrival_s,
            backlog_rows=backlog,
        )
        gate.carry_out(gate.core.end_batch(event))
        delays = end_s - rows[passed]
        run.add(delays, ended, keep=gate.core.keep_of(event.counts), left=arrived - upto, finished=end_s <= until_s, upto=upto)
    arrived = run.at if stop_s is None else int(np.searchsorted(times, stop_s, side="right"))
    return run.outcome(controller.delay_target_s, max(run.at, arrived))


def _check_options(how: str, noise: float) -> None:
    if how not in ("by batch", "by arrival"):
        raise PenstockError(f"how must be 'by batch' or 'by arrival', got {how!r}")
    if not (math.isfinite(noise) and 0 <= noise < 1):
        raise PenstockError(f"noise must lie in [0, 1), got {noise}")


def _build_core(controller: Controller, how: How, *, bounded: bool, lag_s: float) -> QueryCore:
    slot_gate = SlotGate(_GATE, EqualShare(), is_bounded=bounded and how == "by arrival")
    slot_gate.update_tasks(1)
    if how == "by batch":
        return ByBatch([slot_gate], controller, is_warm=True)
    return ByArrival([slot_gate], controller, is_warm=True, margin_s=lag_s)


class _SimulatedGate:
    """Drives the core in simulated time: the journal is a list in memory, and the gate is the numpy twin of Spark's."""

    def __init__(self, core: QueryCore) -> None:
        self.core = core
        self.clock_s = 0.0
        self.observed: Observation | None = None
        self._journal = JournalState()
        self._table = KeepTable.for_batch((1.0, math.inf))
        self.carry_out(core.restore(self._journal))

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        carry_out(self.core, instructions, self)

    def keeps(self, arrivals_s: Times) -> Times:
        """Return the keep of each row of a batch."""
        slots = (arrivals_s * 1e6).astype(np.int64) >> SLOT_SHIFT
        is_bounded = self._table.keeps.shape[1] > 1
        return self._table.lookup(slots, ranks=np.arange(slots.size) if is_bounded else None)

    def now_s(self) -> float:
        return self.clock_s

    def append(self, records: Sequence[Record], query: str | None) -> None:  # noqa: ARG002 - one query
        for record in records:
            self._journal.add(record)
        self._journal.fold(_RETAIN)

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:  # noqa: ARG002 - one gate
        (self._table,) = tables

    def warn(self, message: str, error: Exception | None = None) -> None:  # noqa: ARG002 - notes are for a running job
        """A controller that fails ends the simulation: its outcome would mean nothing."""
        if error is not None:
            raise error


_RETAIN = 8


@dataclass(slots=True)
class _Run:
    """What came out so far."""

    at: int = 0
    """The next row."""
    now_s: float = 0.0
    number: int = 0
    kept: int = 0
    delays: list[Times] = field(default_factory=list)
    series: dict[str, list[float]] = field(
        default_factory=lambda: {name: [] for name in ("t_s", "delay_s", "keep", "rate", "queue", "batch_s")}
    )

    def add(self, delays: Times, times: BatchTimes, *, keep: float, left: int, finished: bool, upto: int) -> None:
        """Take in one batch."""
        before_s = self.series["t_s"][-1] if self.series["t_s"] else 0.0
        values = {
            "t_s": times.start_s,
            "delay_s": float(delays.mean()) if delays.size else np.nan,
            "keep": keep,
            "rate": (upto - self.at) / max(times.start_s - before_s, 1e-9),
            "queue": left,
            "batch_s": times.end_s - times.start_s,
        }
        for name, value in values.items():
            self.series[name].append(value)
        self.delays.append(delays if finished else delays[:0])
        self.at, self.now_s, self.number, self.kept = upto, times.end_s, self.number + 1, self.kept + delays.size

    def outcome(self, delay_target_s: float, offered: int) -> Outcome:
        """Return the whole."""
        series = {name: np.array(values) for name, values in self.series.items()}
        return Outcome.of(np.concatenate(self.delays), delay_target_s, offered, self.kept, series)
