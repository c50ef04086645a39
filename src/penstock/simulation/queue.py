"""A single server with one queue, first come first served: the engine of CTRL and SEaMLeSS with a flat query.

The simulation processes discrete events in simulated time. A controller decides every ``period_s`` seconds, and its decision
holds for the arrivals of the next period. The cost of a row, and the share of the CPU that the engine has, may change meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.control.base import Controller, GateCount, Observation
from penstock.errors import PenstockError
from penstock.simulation.compiled import compiled
from penstock.simulation.outcome import Outcome, PeriodSeries
from penstock.simulation.profile import Profile

__all__ = ["arrival_times", "check_period", "simulate_queue"]

Times = NDArray[np.float64]


def simulate_queue(
    arrivals: ArrayLike,
    controller: Controller,
    *,
    cost_s: float | Profile,
    period_s: float = 0.5,
    headroom: float | Profile = 1.0,
    work: ArrayLike | None = None,
    stop_s: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Run arrivals through a controlled server.

    Parameters
    ----------
    arrivals
        Arrival times in seconds, sorted.
    controller
        What decides.
    cost_s
        CPU seconds per row.
    period_s
        The control period.
    headroom
        The share of the CPU that is there for rows.
    work
        A factor on the cost of each single row.
    stop_s
        When the run ends; rows still inside then have no delay. By default it ends when the last row has left.
    seed
        Seed of the random drops.

    Examples
    --------
    >>> from penstock.control import KeepAll
    >>> run = simulate_queue([0.0, 0.0, 5.0], KeepAll(2.0), cost_s=1.0)
    >>> round(run.mean_delay_s, 3), round(run.max_delay_s, 3), run.loss          # 1 s, then 2 s, then 1 s again
    (1.333, 2.0, 0.0)
    """
    times = arrival_times(arrivals)
    factors = np.ones(times.size) if work is None else np.ascontiguousarray(work, dtype=np.float64)
    if factors.shape != times.shape:
        raise PenstockError(f"work must have one entry per row, got {factors.size} for {times.size} rows")
    check_period(period_s)
    last_s = float(times[-1])
    # Costs and headroom beyond the last arrival matter only while the queue empties.
    horizon_s = stop_s if stop_s is not None else 2.0 * last_s + 60.0
    server = _Server(times, factors, cost=Profile.of(cost_s), share=Profile.of(headroom), horizon_s=horizon_s, seed=seed)
    periods = math.ceil((last_s + 1e-9) / period_s) + 1
    series = PeriodSeries(periods)
    keep = 1.0
    for number in range(periods):
        start_s, end_s = number * period_s, (number + 1) * period_s
        period = server.run(end_s, keep)
        series.record(
            number,
            t_s=start_s,
            delay_s=period.delay_s,
            keep=keep,
            rate=period.offered / period_s,
            queue=period.queued,
            headroom=getattr(controller, "headroom", None),
        )
        observation = Observation(
            batch_id=number,
            start_s=start_s,
            end_s=end_s,
            gates={"in": GateCount(period.offered, period.kept)},
            keep=keep,
            busy_s=period.work_s,
            mean_arrival_s=None if period.delay_s is None else end_s - period.delay_s,
            backlog_rows={"queue": period.queued},
            completed=period.completed,
        )
        decision = controller.update(observation)
        keep = keep if decision.keep is None else decision.keep
    delays_s = server.delays_s(stop_s)
    return Outcome.of(delays_s, controller.delay_target_s, times.size, server.kept, series.values)


@dataclass(frozen=True, slots=True)
class _Period:
    """What happened in one control period."""

    offered: int
    kept: int
    completed: int
    queued: int
    work_s: float
    delay_s: float | None


class _Server:
    """The state between two periods: the rows kept so far, and when each of them leaves."""

    def __init__(self, times: Times, factors: Times, *, cost: Profile, share: Profile, horizon_s: float, seed: int) -> None:
        if cost.cell_s != share.cell_s:
            raise PenstockError(f"cost and headroom must change on one grid, got cells of {cost.cell_s} and {share.cell_s} s")
        self._times, self._factors = times, factors
        self._draws = np.random.default_rng(seed).random(times.size)
        self._costs, self._shares, self._cell_s = cost.grid(horizon_s), share.grid(horizon_s), cost.cell_s
        self._arrivals, self._finishes, self._works = np.empty(times.size), np.empty(times.size), np.empty(times.size)
        self.kept = 0
        """Rows kept so far."""
        self._offered = self._completed = 0
        self._free_s = 0.0

    def run(self, end_s: float, keep: float) -> _Period:
        """Admit the rows that arrive until ``end_s``, and report on the period."""
        offered = int(np.searchsorted(self._times, end_s, side="left"))
        kept, self._free_s = _serve(
            self._times, self._draws, self._factors, self._offered, offered, keep, self._free_s, self._costs, self._shares,
            self._cell_s, self.kept, self._arrivals, self._finishes, self._works,
        )  # fmt: skip
        before = self._completed
        completed = before + int(np.searchsorted(self._finishes[before:kept], end_s, side="right"))
        left = slice(before, completed)
        period = _Period(
            offered=offered - self._offered,
            kept=kept - self.kept,
            completed=completed - before,
            queued=kept - completed,
            work_s=float(self._works[left].sum()),
            delay_s=float(np.mean(self._finishes[left] - self._arrivals[left])) if completed > before else None,
        )
        self._offered, self.kept, self._completed = offered, kept, completed
        return period

    def delays_s(self, stop_s: float | None) -> Times:
        """Return the delays of all rows that leave, by ``stop_s`` if there is one."""
        finishes = self._finishes[: self.kept]
        finishes = finishes if stop_s is None else finishes[finishes <= stop_s]
        return finishes - self._arrivals[: finishes.size]


def arrival_times(arrivals: ArrayLike) -> Times:
    """Return arrival times as an array, or raise unless they are sorted, finite and not negative, with at least one."""
    times = np.ascontiguousarray(arrivals, dtype=np.float64)
    if times.ndim != 1 or times.size == 0:
        raise PenstockError("there are no arrivals to simulate: the trace has no rows")
    if not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) < 0).any():
        raise PenstockError("arrival times must be sorted, finite and not negative")
    return times


def check_period(period_s: float) -> None:
    """Raise unless a control period is positive."""
    if not (math.isfinite(period_s) and period_s > 0):
        raise PenstockError(f"the control period must be positive, got {period_s} s")


@compiled
def _serve(  # noqa: PLR0917 - compiled code takes arrays
    times: Times,
    draws: Times,
    factors: Times,
    first: int,
    end: int,
    keep: float,
    free_s: float,
    costs: Times,
    shares: Times,
    cell_s: float,
    kept: int,
    arrivals: Times,
    finishes: Times,
    works: Times,
) -> tuple[int, float]:
    """Admit the rows of a period and compute when each of them leaves."""
    last_cell = costs.size - 1
    for i in range(first, end):
        if draws[i] >= keep:
            continue
        now_s = max(times[i], free_s)
        cell = min(int(now_s / cell_s), last_cell)
        left = costs[cell] * factors[i]
        works[kept] = left
        while True:  # cell by cell, because each has another share of the CPU
            share = shares[cell]
            room = ((cell + 1) * cell_s - now_s) * share
            if left <= room or cell == last_cell:
                now_s += left / share
                break
            left -= max(room, 0.0)
            now_s = (cell + 1) * cell_s
            cell += 1
        free_s = now_s
        arrivals[kept] = times[i]
        finishes[kept] = now_s
        kept += 1
    return kept, free_s
