"""Hard starts in the simulator: the cases of ``hard-starts``, and those that take too long on Spark, for every controller.

1 ms per row, 0.2 s of overhead, batch times that vary by 5 %, target 2 s, by batch. The default controller must clear
the bars of the real job, with an even sample and with the freshest rows; the papers' controllers are shown beside it. The
last cases are traces whose clock has whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.control import Aurora, Controller, Ctrl, KeepAll, MicroBatch, Seamless
from penstock.simulation.micro_batch_engine import Conditions, simulate_micro_batches
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import bars as draw_bars
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import on_off

__all__ = ["plot", "run"]

_COST_S, _OVERHEAD_S, _NOISE = 0.001, 0.2, 0.05
_OURS = "MicroBatch"
_ARMS: dict[str, Callable[[float], Controller]] = {
    _OURS: MicroBatch,
    "MicroBatch, fresh": lambda target_s: MicroBatch(target_s, prefer="fresh"),
    "SEaMLeSS": Seamless,
    "CTRL": Ctrl,
    "Aurora": Aurora,
    "nothing": KeepAll,
}


@dataclass(frozen=True, slots=True)
class _Case:
    arrivals: NDArray[np.float64]
    conditions: Conditions = field(default_factory=Conditions)
    target_s: float = 2.0
    counts_from_s: float = 0.0


def _constant(rate: float, seconds: float, start_s: float = 0.0) -> NDArray[np.float64]:
    return np.arange(start_s, start_s + seconds, 1.0 / rate)


def _cases(*, quick: bool) -> dict[str, _Case]:
    hour_s = 600.0 if quick else 3600.0
    light = _constant(20, 60)
    cases = {"capped source": _Case(_constant(4_000, 60), Conditions(cap=1_500), counts_from_s=20.0)}
    for load in (1.5, 3.0):
        arrivals = _constant(1_000 * load, hour_s + 60)
        conditions = Conditions(start_s=hour_s, cold_s=2.0)
        cases[f"backlog, {load:g} times"] = _Case(arrivals, conditions, counts_from_s=hour_s + 10.0)
    for down_s in (60.0, hour_s):
        for load in (0.5, 1.5, 3.0):
            conditions = Conditions(down_at_s=60.0, down_s=down_s, cold_s=2.0)
            cases[f"restart after {down_s:g} s, {load:g} times"] = _Case(_constant(1_000 * load, down_s + 120.0), conditions)
    cases["flood"] = _Case(np.sort(np.r_[light, np.linspace(30.0, 31.0, 600_000)]))
    for target_s in (2.0, 5.0):
        conditions = Conditions(stall_every_s=15.0, stall_s=3.0)
        cases[f"pauses, target {target_s:g} s"] = _Case(_constant(500, 150), conditions, target_s)
    cases["target 1.2 o, half load"] = _Case(_constant(500, 60), target_s=1.2 * _OVERHEAD_S)
    return cases


def run(*, quick: bool, say: Say) -> Result:
    """Run every arm in every case."""
    rows: list[Row] = []
    for name, case in _cases(quick=quick).items():
        for arm, new in _ARMS.items():
            if arm == "nothing" and "target 1.2" not in name:
                continue
            say(f"{name}: {arm}")
            outcome = simulate_micro_batches(
                case.arrivals,
                new(case.target_s),
                cost_s=_COST_S,
                overhead_s=_OVERHEAD_S,
                conditions=case.conditions,
                noise=_NOISE,
                stop_s=float(case.arrivals[-1]),
            )
            rows.append(_row(name, arm, outcome, case.counts_from_s))
    rows += _clumps(say, quick=quick)
    return Result("hard-starts-simulated", rows, bars=_bars(rows))


def _row(name: str, arm: str, outcome: Outcome, from_s: float = 0.0) -> Row:
    series = outcome.series
    late = np.maximum(0.0, series.get("worst_s", series["delay_s"]) - outcome.delay_target_s)
    late = np.nan_to_num(late[series["t_s"] >= from_s])
    return {
        "case": name,
        "arm": arm,
        "loss %": 100 * outcome.loss,
        "expired %": 100 * outcome.expired / max(1, outcome.offered),
        "mean delay s": outcome.mean_delay_s,
        "mean violation s": outcome.mean_violation_s,
        "max violation s": outcome.max_violation_s,
        "max of those that count": float(late.max()) if late.size else 0.0,
        "longest batch s": float(series["batch_s"].max()) if "batch_s" in series else None,
    }


def _clumps(say: Say, *, quick: bool) -> list[Row]:
    """Arrivals by a clock of whole seconds, at 1.5 times the capacity, on both kinds of engine."""
    rows = []
    for seed in range(1 if quick else 3):
        times = np.floor(on_off(1_500, 120.0, seed=seed))
        for arm, new in _ARMS.items():
            if arm == "nothing":
                continue
            say(f"whole seconds: {arm}")
            options: dict[str, Any] = {"cost_s": _COST_S, "seed": seed}
            outcome = simulate_micro_batches(times, new(2.0), overhead_s=_OVERHEAD_S, noise=_NOISE, **options)
            rows.append(_row("whole seconds, micro-batches", arm, outcome))
            if not arm.startswith(_OURS):
                outcome = simulate_queue(times, new(2.0), period_s=0.5, **options)
                rows.append(_row("whole seconds, queue", arm, outcome))
    return rows


def _values(rows: list[Row], case: str, arm: str, column: str) -> list[float]:
    return [float(row[column] or 0.0) for row in rows if str(row["case"]).startswith(case) and row["arm"] == arm]


def _bars(rows: list[Row]) -> list[Bar]:
    bars = []
    for arm in (_OURS, "MicroBatch, fresh"):

        def worst(case: str, column: str, arm: str = arm) -> float:
            return max(_values(rows, case, arm, column))

        bars += [
            Bar.at_most(f"{arm}, capped: mean violation, s", worst("capped", "mean violation s"), 0.1),
            Bar.at_most(f"{arm}, backlog: longest batch, s", worst("backlog", "longest batch s"), 3.0),
            Bar.at_most(f"{arm}, backlog: worst violation after 10 s, s", worst("backlog", "max of those that count"), 0.7),
            Bar.at_most(f"{arm}, restart: worst violation, s", worst("restart", "max violation s"), 0.7),
            Bar.at_most(f"{arm}, flood: worst violation, s", worst("flood", "max violation s"), 2.0),
            Bar.at_most(f"{arm}, pauses, target 5 s: loss %", worst("pauses, target 5", "loss %"), 3.0),
            Bar.at_most(
                f"{arm}, pauses, target 2 s: loss beyond the expired rows %",
                worst("pauses, target 2", "loss %") - worst("pauses, target 2", "expired %"),
                3.0,
            ),
        ]
    everything = _values(rows, "target 1.2", "nothing", "mean delay s")[0]
    ratio = _values(rows, "target 1.2", _OURS, "mean delay s")[0] / everything
    bars.append(Bar.at_most("target 1.2 o at half load: loss %", _values(rows, "target 1.2", _OURS, "loss %")[0], 5.0))
    bars.append(Bar.at_most("target 1.2 o at half load: mean delay relative to keeping all", ratio, 1.2))
    for arm in _ARMS:
        late = _values(rows, "whole seconds", arm, "mean violation s")
        if late:
            limit = 16.0 if arm == "Aurora" else 4.0
            bars.append(Bar.at_most(f"whole seconds, load 1.5, {arm}: mean violation, s", max(late), limit))
    return bars


def plot(result: Result, path: Path) -> None:
    """Draw the worst violation of the default controller in every case."""
    values = [(str(row["case"]), float(row["max violation s"] or 0.0)) for row in result.rows if row["arm"] == _OURS]
    draw_bars(values, path, title="Hard starts, default controller", label="worst violation of a row, s")
