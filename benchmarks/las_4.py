"""LAS (Rivetti et al.), figure 4: load-aware shedding over under-provisioning.

Queuing latency and dropped share with AVG(6.4 ms), Zipf-1.0 and 54 columns. Base Line drops the share by which the
operator is too slow, Straw-Man knows the mean cost, Full Knowledge every cost, and LAS its sketches; ours is
``cost-aware``. 5,000 runs per point, as in the paper. At 25%, also ours with 544 columns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.las_runs import Metrics, MetricsByPoint, Setting, build_curves, build_rows, draw, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result

__all__ = ["plot", "run"]

_UNDER = (-0.1, 0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
_WIDE = Setting(25.0, "25%, 544 columns", epsilon=0.005)
_TAU_MS = 6.4 * (1 + 1e-9)


def run(*, quick: bool, say: Say) -> Result:
    """Run all points."""
    settings = [Setting(100 * under, f"{100 * under:.0f}%", under=under) for under in _UNDER]
    metrics = run_settings([*settings, _WIDE], quick=quick, say=say)
    return Result(
        "las-4",
        build_rows([*settings, _WIDE], metrics, "under-provisioning"),
        bars=_bars(metrics),
        claims=_claims(settings, metrics),
        lines=build_curves(settings, metrics),
    )


def _bars(metrics: MetricsByPoint) -> list[Bar]:
    ratio = {
        label: float(metrics[label, "cost-aware"].dropped.mean() / metrics[label, "full-knowledge"].dropped.mean())
        for label in ("25%", "50%", _WIDE.label)
    }
    return [
        Bar.at_most("ours relative to Full Knowledge, dropped, 25%, 54 columns", ratio["25%"], 0.80),
        Bar.at_most("ours relative to Full Knowledge, dropped, 25%, 544 columns", ratio[_WIDE.label], 0.68),
        Bar.at_most("ours relative to Full Knowledge, dropped, 50%", ratio["50%"], 1.0),
        Bar.at_least("ours, runs with Q within tau, 25%", _share_within(metrics["25%", "cost-aware"]), 0.98),
        Bar.at_least("ours, runs with Q within tau, 50%", _share_within(metrics["50%", "cost-aware"]), 0.98),
    ]


def _claims(settings: list[Setting], metrics: MetricsByPoint) -> list[Claim]:
    las, full = metrics["25%", "las"], metrics["25%", "full-knowledge"]
    shortest_ms = min(metrics["25%", "base-line"].wait_ms.min(), metrics["25%", "straw-man"].wait_ms.min())
    longest_ms = max(float(metrics[setting.label, "full-knowledge"].wait_ms.max()) for setting in settings)
    within = [_share_within(metrics[label, "cost-aware"]) for label in ("25%", "50%")]
    return [
        Claim("Full Knowledge never violates AVG(6.4)", "always abides", f"at most {longest_ms:.4f} ms", longest_ms <= _TAU_MS),
        Claim(
            "LAS at 25% is close to tau, and violates it in some runs",
            "yes",
            f"{las.wait_ms.mean():.2f} ms on average",
            bool(5 < las.wait_ms.mean() < 8),
        ),
        Claim(
            "Base Line and Straw-Man induce a huge latency",
            "yes",
            f"at least {shortest_ms:.0f} ms in every run at 25%",
            bool(shortest_ms > 40),
        ),
        Claim(
            "LAS drops slightly more than Full Knowledge",
            "yes",
            f"{las.dropped.mean():.1f}% against {full.dropped.mean():.1f}%",
            bool(las.dropped.mean() > full.dropped.mean()),
        ),
        Claim(
            "ours keeps Q at or below tau in 98% of the runs, 25% and 50%",
            "-",
            f"{100 * within[0]:.1f}% and {100 * within[1]:.1f}%",
            min(within) >= 0.98,
        ),
    ]


def _share_within(metrics: Metrics) -> float:
    return float(np.mean(metrics.wait_ms <= _TAU_MS))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 4: under-provisioning, AVG(6.4 ms)", "under-provisioning, %")
