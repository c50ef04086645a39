"""LAS (Rivetti et al.), figure 7: load-aware shedding over the distribution of keys.

Queuing latency and dropped share for uniform keys and for Zipf from 0.5 to 3.0. 25% under-provisioned, AVG(6.4 ms), 54
columns. Sketches estimate skewed keys better, and ours depends on that more than LAS does.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, build_curves, build_rows, draw, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run all distributions."""
    settings = [Setting(0.0, "uniform", alpha=None)]
    settings += [Setting(alpha, f"Zipf-{alpha:.1f}", alpha=alpha) for alpha in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)]
    metrics = run_settings(settings, quick=quick, say=say, every=5)
    las = {s.label: metrics[s.label, "las"] for s in settings}
    ours = {
        s.label: float(metrics[s.label, "cost-aware"].dropped.mean() / metrics[s.label, "full-knowledge"].dropped.mean())
        for s in settings
    }
    bad = min(float(metrics[s.label, name].wait_ms.mean()) for s in settings for name in ("straw-man", "base-line"))
    claims = [
        Claim("Straw-Man and Base Line are invariably bad", "yes", f"at least {bad:.0f} ms on average", bad > 6.4 * 2),
        Claim(
            "LAS improves with skew",
            "yes, in latency and drops",
            f"Q {las['uniform'].wait_ms.mean():.1f} ms and {las['uniform'].dropped.mean():.1f}% uniform, "
            f"{las['Zipf-3.0'].wait_ms.mean():.1f} ms and {las['Zipf-3.0'].dropped.mean():.1f}% at Zipf-3.0",
            bool(
                las["Zipf-3.0"].wait_ms.mean() < las["uniform"].wait_ms.mean()
                and las["Zipf-3.0"].dropped.mean() < las["uniform"].dropped.mean()
            ),
        ),
        Claim(
            "ours drops at most 1.05 times what Full Knowledge drops",
            "-",
            ", ".join(f"{label} {value:.2f}" for label, value in ours.items()),
            max(ours.values()) <= 1.05,
        ),
    ]
    return Result("las-7", build_rows(settings, metrics, "keys"), claims=claims, lines=build_curves(settings, metrics))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 7: the distribution of keys", "Zipf exponent, 0 for uniform")
