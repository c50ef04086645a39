"""LAS (Rivetti et al.), figure 11, on Spark: the simple application.

Tweets that mention politicians, media or others, at 25, 5 or 1 ms per mention. A row has one to three mentions,
Zipf-1.0 over 5,000 entities, a tenth of them expensive and three tenths medium; its cost is the sum. The key is the
first mention, so it predicts the cost only in part. 25% under-provisioned, target 2 s. Arms: random shedding by the
learnt cost, ours, and ours with keeps by the square root of the cost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.las_spark import TARGET_S, Arm, Arrivals, LoadJob
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.simulation.las_queue import zipf_at
from penstock.simulation.plotting import lines
from penstock.spark.fresh_session import fresh_session

__all__ = ["plot", "run"]

_ENTITIES, _CORES, _UNDER, _FROM_S = 5_000, 2, 0.25, 15.0


def run(*, quick: bool, say: Say) -> Result:
    """Run the arms on the same rows."""
    seconds = 35.0 if quick else 75.0
    rng = np.random.default_rng(2)
    by_entity = rng.permutation(np.repeat([25e-3, 5e-3, 1e-3], [_ENTITIES // 10, 3 * _ENTITIES // 10, 6 * _ENTITIES // 10]))
    with fresh_session("las-11", _CORES) as (spark, scratch):
        job = LoadJob(spark, scratch)
        sample = _draw_rows(rng, by_entity, 20_000, 1.0)
        capacity = job.capacity(float(sample.costs_s.mean()))
        say(f"capacity {capacity:,.0f} rows/s of {sample.costs_s.mean() * 1e3:.1f} ms")
        arrivals = _draw_rows(rng, by_entity, round(capacity / (1 - _UNDER) * seconds), seconds)
        rows: list[Row] = []
        curves: dict[str, tuple[list[float], list[float]]] = {}
        kept: dict[str, tuple[int, float]] = {}
        for arm in (Arm("random", how="uniform"), Arm("ours"), Arm("ours, by root", how="root")):
            say(arm.name)
            arm_run, summary = job.run(arm, arrivals, seconds, from_s=_FROM_S, capacity=capacity)
            kept[arm.name] = summary.kept, summary.mean_delay_s
            curves[arm.name] = ([b.end_s for b in arm_run.batches if b.kept], [b.delay_s for b in arm_run.batches if b.kept])
            rows.append(
                {
                    "shedder": arm.name,
                    "mean delay s": summary.mean_delay_s,
                    "p99 s": summary.p99_delay_s,
                    "mean violation s": summary.mean_violation_s,
                    "dropped %": 100.0 * summary.shed / max(1, summary.shed + summary.kept),
                    "rows kept": summary.kept,
                    "relative to random": summary.kept / max(1, kept["random"][0]),
                }
            )
    bars = [
        Bar.at_least("rows kept by ours relative to random shedding", kept["ours"][0] / max(1, kept["random"][0]), 1.15),
        Bar.at_most("its mean delay relative to random shedding", kept["ours"][1] / kept["random"][1], 1.1),
    ]
    return Result("las-11", rows, bars=bars, lines=curves)


def _draw_rows(rng: np.random.Generator, by_entity: np.ndarray, count: int, seconds: float) -> Arrivals:
    mentions = zipf_at(rng.random(3 * count), _ENTITIES).reshape(count, 3)
    mention_counts = rng.integers(1, 4, count)
    costs = np.where(np.arange(3) < mention_counts[:, None], by_entity[mentions], 0.0).sum(axis=1)
    return Arrivals(np.sort(rng.random(count)) * seconds, mentions[:, 0], costs)


def plot(result: Result, path: Path) -> None:
    """Draw the delay of the arms over time."""
    lines({"delay, s": result.lines}, path, title="Figure 11 on Spark: mentions of 25, 5 and 1 ms", target=TARGET_S)
