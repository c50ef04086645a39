"""LAS (Rivetti et al.), figure 6: load-aware shedding over the maximum cost.

Queuing latency and dropped share over the maximum cost w_max, with tau equal to it. 64 evenly spaced costs from the
paper's w_min of 0.1 ms up to w_max; 25% under-provisioned, Zipf-1.0, 54 columns. At w_max = 0.1 ms all tuples cost the
same.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, build_curves, build_rows, draw, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]

_MAX_COSTS_MS = (0.1, 0.4, 1.6, 6.4, 25.6, 51.2)


def run(*, quick: bool, say: Say) -> Result:
    """Run all maximum costs."""
    settings = [Setting(w, f"{w:g} ms", w_max_s=w / 1e3, tau_s=w / 1e3) for w in _MAX_COSTS_MS]
    metrics = run_settings(settings, quick=quick, say=say, every=5)
    las = [float(metrics[s.label, "las"].dropped.mean()) for s in settings]
    waits = [float(metrics[s.label, "las"].wait_ms.mean()) / (s.tau_s * 1e3) for s in settings]
    ours = [
        float(metrics[s.label, "cost-aware"].dropped.mean() / metrics[s.label, "full-knowledge"].dropped.mean())
        for s in settings[1:]
    ]
    ours_waits = [float(metrics[s.label, "cost-aware"].wait_ms.mean()) / (s.tau_s * 1e3) for s in settings]
    claims = [
        Claim(
            "LAS behaves the same over w_max",
            "rather consistent",
            f"Q of {min(waits):.2f} to {max(waits):.2f} tau",
            max(waits) - min(waits) < 0.1,
        ),
        Claim(
            "ours drops no more than Full Knowledge where costs differ, and Q stays within tau",
            "-",
            f"{min(ours):.2f} to {max(ours):.2f} times from 0.4 ms on, Q up to {max(ours_waits):.2f} tau",
            max(ours) <= 1.0 and max(ours_waits) <= 1.0,
        ),
        Claim("its shedding ratio is always positive", "yes", f"at least {min(las):.1f}% dropped", min(las) > 25.0),
    ]
    return Result("las-6", build_rows(settings, metrics, "w_max"), claims=claims, lines=build_curves(settings, metrics))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 6: the maximum cost, with tau equal to it", "w_max, ms")
