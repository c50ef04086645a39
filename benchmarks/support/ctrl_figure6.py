"""CTRL (Tu and Prabhakar), figure 6: open loop against feedback, Pareto arrivals, with a constant and with a sinusoidal cost.

A single server with a headroom of 0.97. Every second the arrival rate is drawn from a Pareto distribution, 1.25 times
the capacity on average. Control period 0.5 s, target 2 s, 400 s. OL-CTRL is the algorithm of the paper's figure 1
(``Aurora`` with the right cost and headroom); FB-CTRL is the law of its equation 3 (``Ctrl``) with the mean cost.
``cost learnt`` is the paper's future work: the same law with the cost estimated at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.support.averages import average_row, mean_between, run_seeds
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.control import Aurora, Controller, Ctrl
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import lines
from penstock.simulation.profile import Profile
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import pareto

__all__ = ["draw", "run_figure"]

_TARGET_S, _PERIOD_S, _LENGTH_S = 2.0, 0.5, 400.0
_COST_S, _HEADROOM = 0.005, 0.97
_LOAD, _SHAPE = 1.25, 2.5


def run_figure(name: str, cost: float | Profile, *, quick: bool, say: Say) -> Result:
    """Run every arm for one half of the figure."""
    seeds = 2 if quick else 5
    arms: dict[str, Callable[[], Controller]] = {
        "OL-CTRL": lambda: Aurora(_TARGET_S, cost_s=_COST_S, headroom=_HEADROOM),
        "FB-CTRL": lambda: Ctrl(_TARGET_S, cost_s=_COST_S, headroom=_HEADROOM),
        "FB-CTRL, cost learnt": lambda: Ctrl(_TARGET_S, headroom=_HEADROOM),
    }
    runs: dict[str, list[Outcome]] = {}
    rows: list[Row] = []
    for arm, make in arms.items():
        say(f"{arm}, {seeds} seeds")
        runs[arm] = run_seeds(lambda seed, make=make: _run(make(), cost, seed), seeds)  # type: ignore[misc]
        late = np.mean([_share_above(run, 1.1 * _TARGET_S) for run in runs[arm]])
        rows.append(average_row(arm, runs[arm], **{"periods over 1.1 D %": float(100 * late)}))
    curves = {arm: (run[0].series["t_s"].tolist(), run[0].series["delay_s"].tolist()) for arm, run in runs.items()}
    return Result(name, rows, claims=_claims(name, runs, rows), lines=curves)


def _run(controller: Controller, cost: float | Profile, seed: int) -> Outcome:
    arrivals = pareto(_LOAD * _HEADROOM / _COST_S, _LENGTH_S, _SHAPE, 1.0, seed)
    return simulate_queue(arrivals, controller, cost_s=cost, period_s=_PERIOD_S, headroom=_HEADROOM, stop_s=_LENGTH_S, seed=seed)


def _share_above(run: Outcome, limit_s: float) -> float:
    delays = run.series["delay_s"]
    return float(np.mean(delays[np.isfinite(delays)] > limit_s))


def _claims(name: str, runs: dict[str, list[Outcome]], rows: list[Row]) -> list[Claim]:
    by_arm = {str(row["arm"]): row for row in rows}
    open_loop, feedback = by_arm["OL-CTRL"], by_arm["FB-CTRL"]
    ratio = (1 - float(feedback["loss %"] or 0) / 100) / (1 - float(open_loop["loss %"] or 0) / 100)
    late = np.mean([mean_between(run, 200, _LENGTH_S) for run in runs["OL-CTRL"]])
    late_feedback = np.mean([mean_between(run, 200, _LENGTH_S) for run in runs["FB-CTRL"]])
    claims = [
        Claim(
            "mean delay violation, OL-CTRL over FB-CTRL",
            "much larger",
            f"{float(open_loop['mean violation s'] or 0) / float(feedback['mean violation s'] or 1):.1f} times",
            bool(float(open_loop["mean violation s"] or 0) > 3 * float(feedback["mean violation s"] or 0)),
        ),
        Claim("data kept, FB-CTRL over OL-CTRL", "0.985 (loss about the same)", f"{ratio:.3f}", None),
    ]
    if name == "ctrl-6a":
        claims.append(
            Claim(
                "after 200 s OL-CTRL is unstable, FB-CTRL is not",
                "unbounded; near 2 s",
                f"mean delay {late:.1f} s; {late_feedback:.1f} s",
                bool(late > 2 * _TARGET_S > late_feedback),
            )
        )
    else:
        learnt = by_arm["FB-CTRL, cost learnt"]
        claims.append(
            Claim(
                "learning the cost at run time violates less than the mean cost (future work)",
                "expected",
                f"{float(learnt['mean violation s'] or 0):.3f} s against {float(feedback['mean violation s'] or 0):.3f} s",
                bool(float(learnt["mean violation s"] or 0) < float(feedback["mean violation s"] or 0)),
            )
        )
    return claims


def draw(result: Result, path: Path, title: str) -> None:
    """Draw the delays of one seed."""
    lines(
        {"mean delay in the period, s": result.lines}, path, title=title, target=_TARGET_S, log=("mean delay in the period, s",)
    )
