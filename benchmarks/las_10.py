"""LAS (Rivetti et al.), figure 10, on Spark: phases A to G as a real job.

As figure 9, with a target of 2 s for the whole delay and twelve seconds per phase, on micro-batches. Straw-Man is given
the mean cost of phase A and sheds at random. LAS knows the cost of each key and sheds at random as much as those costs
require. Ours sheds expensive keys first. Rows cost 0.2 to 12.8 ms of CPU in Python; capacity is measured first. Keys
are Zipf-1.0 of 4,096.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.las_spark import TARGET_S, Arm, Arrivals, LoadJob
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.las_queue import zipf_at
from penstock.simulation.plotting import by_panel, lines
from penstock.spark.fresh_session import fresh_session

__all__ = ["plot", "run"]

_KEYS, _CORES = 4_096, 2
_UNDER = {"A": 0.0, "B": 0.5, "C": 0.0, "D": 0.0, "E": -0.5, "F": 0.0, "G": 0.0}


def run(*, quick: bool, say: Say) -> Result:
    """Run the three arms on the same rows."""
    phase_s = 6.0 if quick else 12.0
    with fresh_session("las-10", _CORES) as (spark, scratch):
        job = LoadJob(spark, scratch)
        rng = np.random.default_rng(1)
        base = rng.permutation(np.repeat(np.linspace(0.2e-3, 12.8e-3, 64), _KEYS // 64))
        mean_s = float(base[zipf_at(rng.random(20_000), _KEYS)].mean())
        capacity = job.capacity(mean_s)
        say(f"capacity {capacity:,.0f} rows/s of {mean_s * 1e3:.1f} ms")
        arrivals = _arrivals(rng, base, capacity, phase_s)
        rows: list[Row] = []
        curves: dict[str, tuple[list[float], list[float]]] = {}
        totals: dict[str, tuple[float, float]] = {}
        for arm in (Arm("Straw-Man", known_cost_s=mean_s), Arm("LAS", how="uniform"), Arm("ours")):
            say(arm.name)
            arm_run, summary = job.run(arm, arrivals, phase_s * len(_UNDER), from_s=phase_s / 2, capacity=capacity)
            loss = 100.0 * summary.shed / max(1, summary.shed + summary.kept)
            totals[arm.name] = summary.mean_delay_s, loss
            curves[f"{arm.name}|delay, s"] = (
                [b.end_s for b in arm_run.batches if b.kept],
                [min(b.delay_s, 10.0) for b in arm_run.batches if b.kept],
            )
            curves[f"{arm.name}|dropped, %"] = (
                [b.end_s for b in arm_run.batches],
                [100.0 * (1 - b.kept / max(1, b.offered)) for b in arm_run.batches],
            )
            rows.append(
                {
                    "shedder": arm.name,
                    "mean delay s": summary.mean_delay_s,
                    "p99 s": summary.p99_delay_s,
                    "mean violation s": summary.mean_violation_s,
                    "dropped %": loss,
                    "rows kept": summary.kept,
                }
            )
    ours, las, straw = totals["ours"], totals["LAS"], totals["Straw-Man"]
    bars = [
        Bar.at_most("mean delay of ours relative to the better of LAS and Straw-Man", ours[0] / min(las[0], straw[0]), 1.0),
        Bar.at_most("drops of ours minus drops of LAS, percentage points", ours[1] - las[1], 0.0),
    ]
    claims = [
        Claim("LAS holds the target better than Straw-Man", "yes", f"{las[0]:.2f} s against {straw[0]:.2f} s", las[0] < straw[0])
    ]
    return Result("las-10", rows, bars=bars, claims=claims, lines=curves)


def _arrivals(rng: np.random.Generator, base: np.ndarray, capacity: float, phase_s: float) -> Arrivals:
    costly = int(np.flatnonzero(base == base.max())[-1])
    times, keys, costs = [], [], []
    for number, (name, under) in enumerate(_UNDER.items()):
        count = round(capacity / (1.0 - under) * phase_s)
        phase_keys = zipf_at(rng.random(count), _KEYS)
        if name == "D":
            phase_keys = np.where(phase_keys == 0, costly, np.where(phase_keys == costly, 0, phase_keys))
        times.append(phase_s * (number + np.arange(count) / count))
        keys.append(phase_keys)
        costs.append(base[phase_keys] * (2.0 if name == "F" else 1.0))
    return Arrivals(np.concatenate(times), np.concatenate(keys), np.concatenate(costs))


def plot(result: Result, path: Path) -> None:
    """Draw delay and drops over time."""
    lines(by_panel(result.lines), path, title="Figure 10 on Spark: phases A to G", target=TARGET_S)
