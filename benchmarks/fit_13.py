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
    for branches in (2, 8, 32) if quick else (2, 4, 8, 16, 32, 64):
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
    first, last = rows[0], rows[-1]
    claims = [
        Claim(
            "both take longer with more branches",
            "yes",
            ", ".join(f"{name}: {float(first[f'{name} s'] or 0):.3f} to {float(last[f'{name} s'] or 0):.3f} s" for name in _ARMS),
            all(float(last[f"{name} s"] or 0) > float(first[f"{name} s"] or 0) for name in _ARMS),
        ),
        Claim(
            "C-FIT scales better: it is faster at a high fan-out",
            "Solver slightly faster at 2, C-FIT beyond",
            f"cold Solver / C-FIT: {_ratio(first):.1f} at {first['fan-out']}, {_ratio(last):.1f} at {last['fan-out']}",
            _ratio(last) > 1.0,
        ),
    ]
    xs = [float(row["fan-out"] or 0) for row in rows]
    curves = {name: (xs, [float(row[f"{name} s"] or 0) for row in rows]) for name in _ARMS}
    return Result("fit-13", rows, claims=claims, lines=curves)


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
