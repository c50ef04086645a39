"""Paper 004, figure 7: queuing latency and dropped share over the distribution of keys: uniform, and Zipf from 0.5 to 3.0.

25% under-provisioned, AVG(6.4 ms), 54 columns. Sketches know skewed keys better; ours needs that more than LAS does.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, draw, lines_of, rows_of, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Run all distributions."""
    settings = [Setting(0.0, "uniform", alpha=None)]
    settings += [Setting(alpha, f"Zipf-{alpha:.1f}", alpha=alpha) for alpha in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)]
    found = run_settings("las-7", settings, quick=quick, say=say, every=5)
    las = {s.label: found[s.label, "las"] for s in settings}
    ours = {
        s.label: float(found[s.label, "cost-aware"].dropped.mean() / found[s.label, "full-knowledge"].dropped.mean())
        for s in settings
    }
    bad = min(float(found[s.label, name].wait_ms.mean()) for s in settings for name in ("straw-man", "base-line"))
    claims = [
        Claim("Straw-Man and Base Line are invariably bad", "yes", f"{bad:.0f} ms and more on average", bad > 6.4 * 2),
        Claim(
            "LAS improves with skew",
            "yes, in latency and drops",
            f"Q {las['uniform'].wait_ms.mean():.1f} ms and {las['uniform'].dropped.mean():.1f}% uniform, "
            f"{las['Zipf-3.0'].wait_ms.mean():.1f} ms and {las['Zipf-3.0'].dropped.mean():.1f}% at Zipf-3.0",
            bool(las["Zipf-3.0"].wait_ms.mean() < las["uniform"].wait_ms.mean()),
        ),
        Claim(
            "drops of ours against Full Knowledge", "-", ", ".join(f"{label} {value:.2f}" for label, value in ours.items()), None
        ),
    ]
    return Result("las-7", rows_of(settings, found, "keys"), claims=claims, lines=lines_of(settings, found))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 7: the distribution of keys", "Zipf exponent, 0 for uniform")
