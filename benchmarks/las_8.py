"""LAS (Rivetti et al.), figure 8: load-aware shedding over the precision of the sketches.

Queuing latency and dropped share over the precision epsilon, which sets the number of columns. 25% under-provisioned,
AVG(6.4 ms), Zipf-1.0. The margin 1 + epsilon of LAS shrinks with epsilon, and that explains the shape of the figure.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.las_runs import Setting, build_curves, build_rows, draw, run_settings
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result

__all__ = ["plot", "run"]

_EPSILONS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)


def run(*, quick: bool, say: Say) -> Result:
    """Run all precisions."""
    settings = [Setting(epsilon, f"{epsilon:g}", epsilon=epsilon) for epsilon in _EPSILONS]
    metrics = run_settings(settings, quick=quick, say=say, every=5)
    las = {s.label: metrics[s.label, "las"] for s in settings}
    worst = max(float(las[f"{e:g}"].wait_ms.mean()) for e in _EPSILONS if e <= 0.1)
    claims = [
        Claim(
            "with a large epsilon LAS drops many tuples and hardly queues",
            "close to 0 ms",
            f"{las['1'].wait_ms.mean():.2f} ms at {las['1'].dropped.mean():.0f}%",
            bool(las["1"].wait_ms.mean() < 3.2),
        ),
        Claim("from epsilon 0.1 down LAS is always at or below tau", "yes", f"mean Q up to {worst:.1f} ms", worst <= 6.4),
        Claim(
            "ours drops fewer with more columns",
            "-",
            ", ".join(f"{e:g}: {metrics[f'{e:g}', 'cost-aware'].dropped.mean():.1f}%" for e in _EPSILONS),
            bool(metrics["0.005", "cost-aware"].dropped.mean() < metrics["0.1", "cost-aware"].dropped.mean()),
        ),
    ]
    return Result("las-8", build_rows(settings, metrics, "epsilon"), claims=claims, lines=build_curves(settings, metrics))


def plot(result: Result, path: Path) -> None:
    """Draw both panels of the figure."""
    draw(result, path, "Figure 8: the precision", "epsilon")
