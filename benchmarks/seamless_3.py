"""SEaMLeSS (Pham et al.), figure 3: a background job at 100 s.

QN-flat: ten operators in a row on one CPU, 1/207 s per row for all of them. Arrivals S_c: 200 rows/s for 10 s, then 350
rows/s up to 400 s. Target 2 s, control period 0.5 s. At 100 s a background job takes half of the CPU: the headroom
falls from 0.99 to 0.5. CTRL has the headroom that was right before; SEaMLeSS starts with 0.8 and adjusts it every 30
periods with shedding. Means of five runs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.support.averages import average_row, mean_between, run_seeds
from benchmarks.support.protocol import Say
from benchmarks.support.qn_flat import CAPACITY, JOB_START_S, LENGTH_S, TARGET_S, coefficients, run_with_background_job
from benchmarks.support.results import Claim, Result, Row
from penstock.control import Controller, Ctrl, Seamless
from penstock.simulation.outcome import Outcome
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run both controllers."""
    seeds = 2 if quick else 5
    arms: dict[str, Callable[[], Controller]] = {
        "CTRL, H = 0.99": lambda: Ctrl(TARGET_S, cost_s=1 / CAPACITY, headroom=0.99),
        "SEaMLeSS": lambda: Seamless(TARGET_S, cost_s=1 / CAPACITY, coefficients=coefficients()),
    }
    rows: list[Row] = []
    runs: dict[str, list[Outcome]] = {}
    for arm, build in arms.items():
        say(arm)
        runs[arm] = run_seeds(lambda seed, build=build: run_with_background_job(build(), seed), seeds)  # type: ignore[misc]
        settled = {
            "delay 60-100 s": float(np.mean([mean_between(run, 60, 100) for run in runs[arm]])),
            "delay 300-400 s": float(np.mean([mean_between(run, 300, 400) for run in runs[arm]])),
            "H at the end": float(np.mean([run.series["headroom"][-1] for run in runs[arm]])),
        }
        rows.append(average_row(arm, runs[arm], **settled))
    ctrl, ours = rows
    recovery_s = _recovery_time_s(runs["SEaMLeSS"][0])
    claims = [
        Claim(
            "CTRL settles at about twice the target after the background job",
            "twice (4 s)",
            f"{ctrl['delay 300-400 s']:.2f} s",
            bool(abs(float(ctrl["delay 300-400 s"] or 0) - 2 * TARGET_S) < 0.1 * TARGET_S),
        ),
        Claim(
            "SEaMLeSS returns to the target",
            "yes",
            f"{ours['delay 300-400 s']:.2f} s",
            bool(abs(float(ours["delay 300-400 s"] or 0) - TARGET_S) < 0.1 * TARGET_S),
        ),
        # The paper gives no number, so there is nothing to decide.
        Claim("time to return", "within a few adjustments", f"{recovery_s:.0f} s, {recovery_s / 15:.1f} adjustments", None),
        Claim("data loss, SEaMLeSS", "62.98 %", f"{ours['loss %']:.2f} %", None),
        Claim("data loss, CTRL", "62.69 %", f"{ctrl['loss %']:.2f} %", None),
    ]
    curves = {f"{arm}|{what}": _curve(outcomes[0], what) for arm, outcomes in runs.items() for what in ("delay_s", "headroom")}
    return Result("seamless-3", rows, claims=claims, lines=curves)


def _recovery_time_s(run: Outcome) -> float:
    """Return the seconds from the job's start until the delay, in steps of 5 s, stays at most a tenth above the target."""
    starts = np.arange(JOB_START_S, LENGTH_S - 5, 5)
    late = [start for start in starts if mean_between(run, start, start + 5) > 1.1 * TARGET_S]
    return float(max(late) + 5 - JOB_START_S) if late else 0.0


def _curve(run: Outcome, what: str) -> tuple[list[float], list[float]]:
    return run.series["t_s"].tolist(), run.series[what].tolist()


def plot(result: Result, path: Path) -> None:
    """Draw delay and headroom over time."""
    panels = {
        label: {name.split("|")[0]: line for name, line in result.lines.items() if name.endswith(what)}
        for label, what in (("response time, s", "delay_s"), ("headroom", "headroom"))
    }
    lines(panels, path, title="A background job at 100 s", target=TARGET_S)
