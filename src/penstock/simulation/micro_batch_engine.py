"""A micro-batch engine: batch k takes ``overhead + cost * kept(k)``, and its rows are those that came while batch k-1 ran.

The three ways in which a controller can act on it are Spark's: by batch, seeing the size of the batch before it runs; by arrival,
where a decision holds for rows that arrive after it; and not at all, with rows left in the source instead (``limit``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.drop.tables import UNBOUNDED, share_by_rank
from penstock.errors import PenstockError
from penstock.simulation.outcome import Outcome
from penstock.simulation.profile import Profile
from penstock.simulation.queue import arrival_times

__all__ = ["simulate_micro_batches"]

Times = NDArray[np.float64]


def simulate_micro_batches(
    arrivals: ArrayLike,
    controller: Controller,
    *,
    cost_s: float | Profile,
    overhead_s: float | Profile = 0.2,
    headroom: float | Profile = 1.0,
    how: Literal["by batch", "by arrival"] = "by batch",
    bounded: bool = False,
    limit: Callable[[Observation | None], int | None] | None = None,
    noise: float = 0.0,
    lag_s: float = 0.15,
    stop_s: float | None = None,
    seed: int = 0,
) -> Outcome:
    """Run arrivals through a controlled micro-batch engine.

    ``noise`` is the relative standard deviation of a batch's time. By arrival, a decision takes effect ``lag_s`` after the
    batch it was made on; with ``bounded``, of the rows beyond those expected fewer and fewer are kept, as at a bounded gate.
    ``limit`` says, from what was seen of the last batch, how many rows the next one may take from the source; the others
    wait.

    >>> from penstock.control import KeepAll
    >>> steady = simulate_micro_batches(np.arange(0.0, 60.0, 0.01), KeepAll(2.0), cost_s=0.005, overhead_s=0.2)
    >>> round(float(np.median(np.diff(steady.series["t_s"]))), 2)     # o / (1 - c * rate) = 0.2 / (1 - 0.5)
    0.4
    """
    times = arrival_times(arrivals)
    cost, overhead, share = Profile.of(cost_s), Profile.of(overhead_s), Profile.of(headroom)
    if how not in ("by batch", "by arrival"):
        raise PenstockError(f"how must be 'by batch' or 'by arrival', got {how!r}")
    if not (math.isfinite(noise) and 0 <= noise < 1):
        raise PenstockError(f"noise must lie in [0, 1), got {noise}")
    rng = np.random.default_rng(seed)
    draws = rng.random(times.size)
    schedule = _Schedule()
    until_s = math.inf if stop_s is None else stop_s
    seen: Observation | None = None
    at, now_s, number, keep, kept = 0, 0.0, 0, 1.0, 0
    delays: list[Times] = []
    rows: dict[str, list[float]] = {name: [] for name in ("t_s", "delay_s", "keep", "rate", "queue", "batch_s")}
    while at < times.size and now_s < until_s:
        now_s = max(now_s, float(times[at]))  # nothing to do before the next row comes
        arrived = int(np.searchsorted(times, now_s, side="right"))
        cap = limit(seen) if limit is not None else None
        upto = arrived if cap is None else min(arrived, at + max(1, cap))
        if how == "by batch":
            before = seen if seen is not None else Observation(-1, now_s, now_s, keep=keep)
            decision = controller.update(_with_size(before, upto - at, now_s))
            keep = keep if decision.keep is None else decision.keep
            passed = draws[at:upto] < keep
        else:
            passed = draws[at:upto] < schedule.keeps(times[at:upto], bounded=bounded)
            keep = float(passed.mean())
        count = int(passed.sum())
        factor = max(0.1, 1.0 + noise * rng.standard_normal()) if noise else 1.0
        busy_s = cost.at(now_s) * count
        end_s = now_s + (overhead.at(now_s) + busy_s) * factor / share.at(now_s)
        batch = end_s - times[at:upto][passed]
        delays.append(batch if end_s <= until_s else batch[:0])
        seen = Observation(
            batch_id=number,
            start_s=now_s,
            end_s=end_s,
            gates={"in": GateCount(upto - at, count)},
            keep=keep,
            busy_s=busy_s,
            mean_arrival_s=float(times[at:upto][passed].mean()) if count else None,
            backlog_rows={"source": int(np.searchsorted(times, end_s, side="right")) - upto},
        )
        if how == "by arrival":
            schedule.decide(end_s + lag_s, controller.update(seen))
        for name, value in (
            ("t_s", now_s),
            ("delay_s", float(batch.mean()) if count else np.nan),
            ("keep", keep),
            ("rate", (upto - at) / max(now_s - (rows["t_s"][-1] if rows["t_s"] else 0.0), 1e-9)),
            ("queue", arrived - upto),
            ("batch_s", end_s - now_s),
        ):
            rows[name].append(value)
        at, now_s, number, kept = upto, end_s, number + 1, kept + count
    offered = at if stop_s is None else int(np.searchsorted(times, stop_s, side="right"))
    series = {name: np.array(values) for name, values in rows.items()}
    return Outcome.of(np.concatenate(delays), controller.delay_target_s, max(at, offered), kept, series)


def _with_size(seen: Observation, rows: int, now_s: float) -> Observation:
    """What is known when the next batch starts: the last one, and the size of this one."""
    return Observation(
        batch_id=seen.batch_id,
        start_s=seen.start_s,
        end_s=seen.end_s,
        gates=seen.gates,
        keep=seen.keep,
        busy_s=seen.busy_s,
        mean_arrival_s=seen.mean_arrival_s,
        backlog_rows={"source": rows},
        upcoming_rows=rows,
        waited_s=now_s - seen.start_s if now_s <= seen.end_s else 0.0,
        taken_s=now_s,
    )


class _Schedule:
    """Keeps by arrival time."""

    def __init__(self) -> None:
        self._from_s: list[float] = [-math.inf]
        self._keeps: list[float] = [1.0]
        self._full: list[float] = [UNBOUNDED]

    def decide(self, from_s: float, decision: Decision) -> None:
        self._from_s.append(from_s)
        self._keeps.append(self._keeps[-1] if decision.keep is None else decision.keep)
        self._full.append(UNBOUNDED if decision.full_rows is None else decision.full_rows)

    def keeps(self, times: Times, *, bounded: bool) -> Times:
        places = np.searchsorted(self._from_s, times, side="right") - 1
        found: Times = np.asarray(self._keeps)[places]
        return found * share_by_rank(np.arange(times.size), np.asarray(self._full)[places]) if bounded else found
