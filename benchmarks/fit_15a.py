"""Staying FIT (Tatbul et al.), figure 15(a): entries of a table over epsilon and load.

Two inputs. The load is the cost of the two chains relative to (64, 32) ms; rates go up to 100 tuples/s. Entries are
counted with the geometric spread, and with the equal steps of the forerunner (Tatbul and Zdonik, Dealing with Overload
in Distributed Stream Processing Systems), where the step is the same at every load.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.planning import EarlyFit, Fit
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_EPSILONS = (0.02, 0.05, 0.1, 0.15, 0.2)
_LOADS = (1.0, 0.75, 0.5, 0.25)


def run(*, quick: bool, say: Say) -> Result:
    """Count the entries of each table."""
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for load in _LOADS[::2] if quick else _LOADS:
        say(f"load {load:g}")
        network = chains((64.0 * load, 32.0 * load))
        xs: list[float] = []
        ys: list[float] = []
        for epsilon in _EPSILONS[1:] if quick else _EPSILONS:
            entries = Fit(network, epsilon).entries
            # The absolute step is the same at every load, so a lighter load has more feasible points, as in the paper.
            early = EarlyFit(network, error=epsilon * 1000.0 / 64.0).entries
            rows.append({"load": load, "epsilon %": 100 * epsilon, "entries": entries, "entries, equal steps": early})
            xs.append(100 * epsilon)
            ys.append(float(early))
        curves[f"load {load:g}"] = (xs, ys)
    counts = [int(row["entries"] or 0) for row in rows if row["load"] == 1.0]
    by_load = [float(row["entries, equal steps"] or 0) for row in rows if row["epsilon %"] == 5.0]
    claims = [
        Claim(
            "a larger epsilon needs dramatically fewer entries",
            "yes",
            ", ".join(map(str, counts)),
            counts == sorted(counts, reverse=True),
        ),
        Claim(
            "a lighter load has more entries",
            "yes",
            f"{by_load} with equal steps at 5%; with the geometric spread the number depends only on ratios",
            by_load == sorted(by_load),
        ),
    ]
    return Result("fit-15a", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the entries over epsilon."""
    lines({"entries": result.lines}, path, title="Figure 15(a): entries, equal steps", x="epsilon, %", log=["entries"])
