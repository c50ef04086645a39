"""Which control period: CTRL with several, and the advice from the trace alone.

A single server, 5 ms per row on average with exponential costs; on-off arrivals at 1.5 times the capacity, 400 s,
target 2 s. Compares the violation at each period T with what ``control.design`` advises. CTRL (Tu and Prabhakar) asks
for a short period, to follow the arrivals, and for a long one, to know their mean; for a target of 2 s its authors
recommend 250 to 1000 ms.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.averages import average_row, run_seeds
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.control import Ctrl
from penstock.control.design import advise_period
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import lines
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import on_off

__all__ = ["plot", "run"]

_TARGET_S, _COST_S, _LENGTH_S, _LOAD = 2.0, 0.005, 400.0, 1.5
_PERIODS_S = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


def run(*, quick: bool, say: Say) -> Result:
    """Run with every period."""
    seeds = 2 if quick else 10
    traces = [on_off(_LOAD / _COST_S, _LENGTH_S, seed=seed) for seed in range(seeds)]
    advice = [advise_period(trace, _COST_S, _TARGET_S, periods_s=_PERIODS_S) for trace in traces]
    expected = np.mean([each.error_s for each in advice], axis=0)
    rows: list[Row] = []
    violations = []
    for number, period_s in enumerate(_PERIODS_S):
        say(f"T = {period_s:g} s")
        runs = run_seeds(lambda seed, period_s=period_s: _run(traces[seed], period_s, seed), seeds)  # type: ignore[misc]
        rows.append(average_row(f"T = {period_s:g} s", runs, **{"expected error s": float(expected[number])}))
        violations.append(float(np.mean([run.mean_violation_s for run in runs])))
    best_s = _PERIODS_S[int(np.argmin(violations))]
    advised_s = float(np.median([each.best_s for each in advice]))
    at_advice = violations[_PERIODS_S.index(min(_PERIODS_S, key=lambda period: abs(period - advised_s)))]
    by_period = dict(zip(_PERIODS_S, violations, strict=True))
    claims = [
        Claim("best period for a target of 2 s", "0.25 to 1 s", f"{best_s:g} s", 0.25 <= best_s <= 1.0),
        Claim(
            "periods above 1 s are clearly worse",
            "yes",
            f"{by_period[2.0]:.3f} s at 2 s, {by_period[0.5]:.3f} s at 0.5 s",
            by_period[2.0] > 2 * by_period[0.5],
        ),
        Claim(
            "the advice from the trace lies in the paper's range",
            "0.25 to 1 s",
            f"{advised_s:g} s ({at_advice:.3f} s violation, {min(violations):.3f} s at the best period)",
            0.25 <= advised_s <= 1.0,
        ),
    ]
    curves = {"mean violation": (_PERIODS_S, violations), "expected error (advice)": (_PERIODS_S, expected.tolist())}
    return Result("period", rows, claims=claims, lines=curves)


def _run(trace: np.ndarray, period_s: float, seed: int) -> Outcome:
    work = np.random.default_rng(1000 + seed).exponential(1.0, trace.size)
    controller = Ctrl(_TARGET_S, headroom=1.0)
    return simulate_queue(trace, controller, cost_s=_COST_S, period_s=period_s, work=work, stop_s=_LENGTH_S, seed=seed)


def plot(result: Result, path: Path) -> None:
    """Draw violation and advice over the period."""
    lines({"seconds of delay": result.lines}, path, title="Which control period", x="control period, s")
