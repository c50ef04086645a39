"""Paper 004, figure 6: queuing latency and dropped share over the greatest cost w_max, with tau equal to it.

64 costs at equal distance up to w_max; 25% under-provisioned, Zipf-1.0, 54 columns. All times scale, so all shares should stay.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, draw, lines_of, rows_of, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]

_GREATEST_MS = (0.1, 0.4, 1.6, 6.4, 25.6, 51.2)


def run(*, quick: bool, say: Say) -> Result:
    """Run all costs."""
    settings = [Setting(w, f"{w:g} ms", w_max_s=w / 1e3, tau_s=w / 1e3) for w in _GREATEST_MS]
    found = run_settings("las-6", settings, quick=quick, say=say, every=5)
    las = [float(found[s.label, "las"].dropped.mean()) for s in settings]
    waits = [float(found[s.label, "las"].wait_ms.mean()) / (s.tau_s * 1e3) for s in settings]
    claims = [
        Claim(
            "LAS behaves the same over w_max",
            "rather consistent",
            f"Q of {min(waits):.2f} to {max(waits):.2f} tau",
            max(waits) - min(waits) < 0.1,
        ),
        Claim("its shedding ratio is always positive", "yes", f"{min(las):.1f}% and more dropped", min(las) > 25.0),
    ]
    return Result("las-6", rows_of(settings, found, "w_max"), claims=claims, lines=lines_of(settings, found))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 6: the greatest cost, tau equal to it", "w_max, ms")
