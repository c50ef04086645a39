"""LAS (Rivetti et al.), figure 5: load-aware shedding over the threshold.

Queuing latency and dropped share over the threshold tau, 25% under-provisioned, Zipf-1.0, 54 columns. Small thresholds
are the hard ones: below the maximum cost of 6.4 ms, a single tuple can use up the whole threshold.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, build_curves, build_rows, draw, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]

_TAUS_MS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)


def run(*, quick: bool, say: Say) -> Result:
    """Run all thresholds."""
    settings = [Setting(max(tau, 0.05), f"{tau:g} ms", tau_s=tau / 1e3) for tau in _TAUS_MS]
    metrics = run_settings(settings, quick=quick, say=say, every=5)
    full = [abs(float(metrics[s.label, "full-knowledge"].wait_ms.mean()) - s.tau_s * 1e3) for s in settings[:-1]]
    straw = {s.label: metrics[s.label, "straw-man"] for s in settings}
    base = float(metrics["6.4 ms", "base-line"].dropped.mean())
    more = [float(metrics[s.label, "las"].dropped.mean() - metrics[s.label, "full-knowledge"].dropped.mean()) for s in settings]
    ours = [
        float(metrics[s.label, "cost-aware"].dropped.mean() / metrics[s.label, "full-knowledge"].dropped.mean()) for s in settings
    ]
    claims = [
        Claim(
            "Full Knowledge approaches every threshold", "perfectly, below 12.8", f"within {max(full):.3f} ms", max(full) < 0.05
        ),
        Claim(
            "Straw-Man is reasonable only at small thresholds, because there it drops many more",
            "yes",
            f"{straw['0.1 ms'].dropped.mean():.0f}% dropped at 0.1 ms, {straw['6.4 ms'].dropped.mean():.1f}% at 6.4 ms "
            f"(Base Line {base:.1f}%)",
            bool(straw["0.1 ms"].dropped.mean() > straw["6.4 ms"].dropped.mean() + 5),
        ),
        Claim("LAS drops slightly more than Full Knowledge", "yes", f"{min(more):.1f} to {max(more):.1f} points", min(more) > 0),
        Claim("ours drops fewer than Full Knowledge", "-", f"{min(ours):.2f} to {max(ours):.2f} times", max(ours) < 1),
    ]
    return Result("las-5", build_rows(settings, metrics, "tau"), claims=claims, lines=build_curves(settings, metrics))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 5: the threshold", "tau, ms")
