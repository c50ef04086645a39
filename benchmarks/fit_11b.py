"""Staying FIT (Tatbul et al.), figure 11(b): the distribution of a trace's rates.

The paper says that the rates of its TCP trace look a lot like an exponential distribution. Ours are those of
BC-pAug89 where ``PENSTOCK_DATA`` has it, otherwise of on-off sources as bursty, counted over bins of several lengths and
scaled to a mean of 1. An exponential distribution has a coefficient of variation of 1, and its density falls
throughout.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from benchmarks.support.trace_rates import trace_name, trace_rates
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_MEAN, _LENGTH_S = 300.0, 1500.0
_WIDTH, _EDGE = 0.25, 5.0


def run(*, quick: bool, say: Say) -> Result:
    """Count the rates over bins of three lengths."""
    edges = np.arange(0.0, _EDGE + _WIDTH / 2, _WIDTH)
    middles = (edges[:-1] + edges[1:]) / 2
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for bin_s in (0.01, 0.1, 1.0):
        say(f"bins of {bin_s:g} s")
        rates = trace_rates(_MEAN, _LENGTH_S / (4 if quick else 1), bin_s=bin_s).ravel()
        relative = np.sort(rates / rates.mean())
        density = np.histogram(relative, edges)[0] / relative.size / _WIDTH
        ranks = np.arange(1, relative.size + 1) / relative.size
        rows.append(
            {
                "trace": trace_name(),
                "bin s": bin_s,
                "coefficient of variation": float(relative.std()),
                "distance to exponential": float(np.max(np.abs(ranks - (1.0 - np.exp(-relative))))),
                "densest at, of the mean": float(middles[np.argmax(density)]),
            }
        )
        curves[f"{bin_s:g} s"] = (middles.tolist(), density.tolist())
    curves["exponential"] = (middles.tolist(), np.exp(-middles).tolist())
    claims = [
        Claim(
            f"rates over {row['bin s']:g} s look a lot like an exponential distribution",
            "yes",
            f"variation {float(row['coefficient of variation'] or 0):.2f} instead of 1, "
            f"densest at {float(row['densest at, of the mean'] or 0):.2f} of the mean instead of 0, "
            f"greatest distance {float(row['distance to exponential'] or 0):.2f}",
            float(row["distance to exponential"] or 0) <= 0.1,
        )
        for row in rows
    ]
    return Result("fit-11b", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the densities."""
    lines({"density": result.lines}, path, title="Figure 11(b): rates of a trace", x="rate, relative to its mean")
