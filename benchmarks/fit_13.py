"""Staying FIT (Tatbul et al.), figure 13: Solver against C-FIT over operator fan-out.

Epsilon 1%. One input, one shared operator and 2^k branches on a single server, with different costs and selectivities.
A plan drops at the input or behind the shared operator. C-FIT decides where by its drop order, Solver by linear
programs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.support.cold_linprog import cold_scorer
from benchmarks.support.fit_networks import fan_out
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from benchmarks.support.timing import best_of
from penstock.planning import Fit, Solver
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_EPSILON = 0.01
_ARMS = ("Solver, cold LPs", "Solver", "C-FIT")


def run(*, quick: bool, say: Say) -> Result:
    """Plan every fan-out with each method."""
    rows: list[Row] = []
    for branches in (2, 8, 32) if quick else (2, 4, 8, 16, 32, 64, 128, 256, 512):
        say(f"{branches} branches")
        network = fan_out(branches)
        times = best_of(
            {
                "Solver, cold LPs": partial(Solver, network, _EPSILON, scorer=cold_scorer(network)),
                "Solver": partial(Solver, network, _EPSILON),
                "C-FIT": partial(Fit, network, _EPSILON),
            },
            rounds=1 if quick else 3,
            warm_up=0 if quick else 1,
        )
        rows.append({"fan-out": branches} | {f"{name} s": times[name] for name in _ARMS})
    claims = _compare(rows)
    xs = [float(row["fan-out"] or 0) for row in rows]
    curves = {name: (xs, [float(row[f"{name} s"] or 0) for row in rows]) for name in _ARMS}
    return Result("fit-13", rows, claims=claims, lines=curves)


def _compare(rows: list[Row]) -> list[Claim]:
    """Compare with section 8.2.3, whose Solver solved one cold program per point."""
    ratios = [_ratio(row) for row in rows]
    shown = ", ".join(f"{row['fan-out']}: {ratio:.2f}" for row, ratio in zip(rows, ratios, strict=True))
    times = {name: [float(row[f"{name} s"] or 0) for row in rows] for name in _ARMS}
    return [
        Claim(
            "both approaches spend more time with more branches",
            "yes",
            ", ".join(f"{name}: {values[0]:.3f} to {values[-1]:.3f} s" for name, values in times.items()),
            all(values[-1] > values[0] for name, values in times.items() if name != "Solver"),
        ),
        Claim(
            "Solver is slightly faster at a fan-out of 2",
            "yes",
            f"Solver takes {ratios[0]:.1f} times as long",
            ratios[0] < 1.0,
        ),
        Claim(
            "C-FIT outperforms Solver at every higher fan-out",
            "yes",
            f"Solver / C-FIT by fan-out: {shown}",
            all(ratio > 1.0 for ratio in ratios[1:]),
        ),
        Claim(
            "C-FIT scales better: its lead grows with the fan-out",
            "yes",
            f"from {ratios[0]:.1f} to {ratios[-1]:.2f} times",
            ratios[-1] > ratios[0],
        ),
    ]


def _ratio(row: Row) -> float:
    return float(row["Solver, cold LPs s"] or 0) / float(row["C-FIT s"] or 1)


def plot(result: Result, path: Path) -> None:
    """Draw the time over the fan-out."""
    lines(
        {"planning time, s": result.lines},
        path,
        title="Figure 13: operator fan-out, epsilon 1%",
        x="branches",
        log=["planning time, s"],
    )
