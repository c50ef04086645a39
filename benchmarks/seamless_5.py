"""SEaMLeSS (Pham et al.), figure 5: how often to adjust the headroom.

The run of figure 3, in which a background job takes half of the CPU at 100 s, with an adjustment every P = 1 to 60
control periods. Measures violation, loss, and how much the delay still swings between 250 and 400 s; means of five
runs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.averages import average_row, mean_between, run_seeds
from benchmarks.support.protocol import Say
from benchmarks.support.qn_flat import CAPACITY, TARGET_S, coefficients, run_with_background_job
from benchmarks.support.results import Claim, Result, Row
from penstock.control import Seamless
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_PERIODS = (1, 10, 20, 30, 40, 60)
_SHOWN = (1, 30, 60)


def run(*, quick: bool, say: Say) -> Result:
    """Run with every P."""
    seeds = 2 if quick else 5
    rows: list[Row] = []
    runs: dict[int, list[Outcome]] = {}
    for periods in _PERIODS:
        say(f"P = {periods}")
        runs[periods] = run_seeds(lambda seed, periods=periods: _run(periods, seed), seeds)  # type: ignore[misc]
        swing = float(np.mean([_swing(run) for run in runs[periods]]))
        rows.append(average_row(f"P = {periods}", runs[periods], **{"deviation of delay 250-400 s": swing}))
    violation = {periods: float(row["mean violation s"] or 0) for periods, row in zip(_PERIODS, rows, strict=True)}
    loss = {periods: float(row["loss %"] or 0) for periods, row in zip(_PERIODS, rows, strict=True)}
    swings = {periods: float(row["deviation of delay 250-400 s"] or 0) for periods, row in zip(_PERIODS, rows, strict=True)}
    claims = [
        Claim(
            "P = 1 oscillates",
            "fluctuates more than the others",
            f"deviation {swings[1]:.2f} s against {swings[30]:.2f} s at P = 30",
            swings[1] > 3 * swings[30],
        ),
        Claim(
            "P in 20 to 40 is best in delay violation and data loss",
            "best",
            ", ".join(f"{p}: {violation[p]:.2f} s, {loss[p]:.1f} %" for p in _PERIODS),
            min(violation[p] for p in (20, 30, 40)) <= min(violation[1], violation[60])
            and min(loss[p] for p in (20, 30, 40)) <= min(loss[1], loss[60]) + 0.5,
        ),
    ]
    curves = {
        f"P = {p}|{what}": (runs[p][0].series["t_s"].tolist(), runs[p][0].series[what].tolist())
        for p in _SHOWN
        for what in ("delay_s", "headroom")
    }
    return Result("seamless-5", rows, claims=claims, lines=curves)


def _run(periods: int, seed: int) -> Outcome:
    controller = Seamless(TARGET_S, cost_s=1 / CAPACITY, coefficients=coefficients(), adjust_every=periods)
    return run_with_background_job(controller, seed)


def _swing(run: Outcome) -> float:
    times, delays = run.series["t_s"], run.series["delay_s"]
    inside = delays[(times >= 250) & (times < 400) & np.isfinite(delays)]
    return float(np.std(inside)) if inside.size else mean_between(run, 250, 400)


def plot(result: Result, path: Path) -> None:
    """Draw delay and headroom for three of them."""
    panels = {
        label: {name.split("|")[0]: line for name, line in result.lines.items() if name.endswith(what)}
        for label, what in (("response time, s", "delay_s"), ("headroom", "headroom"))
    }
    lines(panels, path, title="How often to adjust the headroom", target=TARGET_S)
