"""A single server with one queue, first come first served: the engine of papers 001 and 002 with a flat query.

Discrete events in simulated time. A controller is asked every ``period_s`` seconds, and its answer holds for the arrivals of the
next period. The cost of a row, and the share of the CPU that the engine has, may change while it runs.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.control.base import Controller, GateCount, Observation
from penstock.errors import PenstockError
from penstock.simulation.compiled import compiled
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile

__all__ = ["arrival_times", "simulate_queue"]

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

    ``cost_s`` is the CPU time of a row and ``headroom`` the share of the CPU there is for it; ``work`` scales the cost of single
    rows. The run ends when the last row is out, or at ``stop_s``; rows still inside then have no delay.

    >>> from penstock.control import KeepAll
    >>> run = simulate_queue([0.0, 0.0, 5.0], KeepAll(2.0), cost_s=1.0)
    >>> round(run.mean_delay_s, 3), round(run.max_delay_s, 3), run.loss          # 1 s, then 2 s, then 1 s again
    (1.333, 2.0, 0.0)
    """
    times = arrival_times(arrivals)
    factor = np.ones(times.size) if work is None else np.ascontiguousarray(work, dtype=np.float64)
    if factor.shape != times.shape:
        raise PenstockError(f"work must have one entry a row, got {factor.size} for {times.size} rows")
    if not (math.isfinite(period_s) and period_s > 0):
        raise PenstockError(f"the control period must be positive, got {period_s} s")
    draws = np.random.default_rng(seed).random(times.size)
    cost, share = Profile.of(cost_s), Profile.of(headroom)
    if cost.cell_s != share.cell_s:
        raise PenstockError(f"cost and headroom must change on one grid, got cells of {cost.cell_s} and {share.cell_s} s")
    last_s = float(times[-1])
    # Costs and headroom beyond the last arrival matter only while the queue empties.
    horizon_s = stop_s if stop_s is not None else 2.0 * last_s + 60.0
    costs, shares = cost.grid(horizon_s), share.grid(horizon_s)
    finishes, works = np.empty(times.size), np.empty(times.size)
    entered = np.empty(times.size)  # arrival times of the rows kept
    periods = math.ceil((last_s + 1e-9) / period_s) + 1
    series = {name: np.full(periods, np.nan) for name in ("t_s", "delay_s", "keep", "rate", "queue", "headroom")}
    keep, kept, done, free_s, at = 1.0, 0, 0, 0.0, 0
    for number in range(periods):
        start_s, end_s = number * period_s, (number + 1) * period_s
        upto = int(np.searchsorted(times, end_s, side="left"))
        before = kept
        kept, free_s = _serve(
            times, draws, factor, at, upto, keep, free_s, costs, shares, cost.cell_s, kept, entered, finishes, works
        )
        out = done + int(np.searchsorted(finishes[done:kept], end_s, side="right"))
        delay_s = float(np.mean(finishes[done:out] - entered[done:out])) if out > done else None
        observation = Observation(
            batch_id=number,
            start_s=start_s,
            end_s=end_s,
            gates={"in": GateCount(upto - at, kept - before)},
            keep=keep,
            busy_s=float(works[done:out].sum()),
            mean_arrival_s=None if delay_s is None else end_s - delay_s,
            backlog_rows={"queue": kept - out},
            completed=out - done,
        )
        for name, value in (
            ("t_s", start_s),
            ("delay_s", delay_s),
            ("keep", keep),
            ("rate", (upto - at) / period_s),
            ("queue", kept - out),
            ("headroom", getattr(controller, "headroom", None)),
        ):
            series[name][number] = np.nan if value is None else value
        decision = controller.update(observation)
        keep = keep if decision.keep is None else decision.keep
        at, done = upto, out
    finished = finishes[:kept] if stop_s is None else finishes[:kept][finishes[:kept] <= stop_s]
    return Outcome.of(finished - entered[: finished.size], controller.delay_target_s, times.size, kept, series)


def arrival_times(arrivals: ArrayLike) -> Times:
    """Check arrival times: some, sorted, finite, not before zero."""
    times = np.ascontiguousarray(arrivals, dtype=np.float64)
    if times.ndim != 1 or times.size == 0:
        raise PenstockError("there are no arrivals to simulate: the trace has no rows")
    if not np.isfinite(times).all() or times[0] < 0 or (np.diff(times) < 0).any():
        raise PenstockError("arrival times must be sorted, finite and not negative")
    return times


@compiled
def _serve(  # noqa: PLR0917 - compiled code takes arrays
    times: Times,
    draws: Times,
    factor: Times,
    first: int,
    upto: int,
    keep: float,
    free_s: float,
    costs: Times,
    shares: Times,
    cell_s: float,
    kept: int,
    entered: Times,
    finishes: Times,
    works: Times,
) -> tuple[int, float]:
    """Admit the rows of a period and say when each of them will be out."""
    last_cell = costs.size - 1
    for i in range(first, upto):
        if draws[i] >= keep:
            continue
        now_s = max(times[i], free_s)
        cell = min(int(now_s / cell_s), last_cell)
        left = costs[cell] * factor[i]
        works[kept] = left
        while True:  # through the cells, each with its own share of the CPU
            share = shares[cell]
            room = ((cell + 1) * cell_s - now_s) * share
            if left <= room or cell == last_cell:
                now_s += left / share
                break
            left -= max(room, 0.0)
            now_s = (cell + 1) * cell_s
            cell += 1
        free_s = now_s
        entered[kept] = times[i]
        finishes[kept] = now_s
        kept += 1
    return kept, free_s
