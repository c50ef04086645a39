"""Staying FIT (Tatbul et al.), figure 10(a): Solver against C-FIT over load distributions.

The time to plan the whole space for five load distributions, epsilon 5%. Solver runs twice on the same regions: with
our warm linear program, and with one cold ``scipy.optimize.linprog`` per point, which is what the paper did with GLPK.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.support.cold_linprog import cold_scorer
from benchmarks.support.fit_networks import FIGURE9, figure9
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.timing import best_of
from penstock.planning import Fit, Solver
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_EPSILON = 0.05


def run(*, quick: bool, say: Say) -> Result:
    """Plan all five networks with each method."""
    rows: list[Row] = []
    for number, costs in enumerate(FIGURE9):
        network = figure9(number)
        say(f"costs {costs[0]:g} and {costs[1]:g} ms")
        solver, fit = Solver(network, _EPSILON), Fit(network, _EPSILON)
        times = best_of(
            {
                "Solver": partial(Solver, network, _EPSILON),
                "cold": partial(Solver, network, _EPSILON, scorer=cold_scorer(network)),
                "C-FIT": partial(Fit, network, _EPSILON),
            },
            rounds=1 if quick else 3,
            warm_up=0 if quick else 1,
        )
        rows.append(
            {
                "network": f"({costs[0]:g}, {costs[1]:g})",
                "Solver s": times["Solver"],
                "Solver, cold LPs s": times["cold"],
                "C-FIT s": times["C-FIT"],
                "points planned": solver.programs,
                "programs solved": solver.programs_solved,
                "regions": solver.regions,
                "FIT entries": fit.entries,
                "cold / warm": times["cold"] / times["Solver"],
                "cold / C-FIT": times["cold"] / times["C-FIT"],
            }
        )
    smallest = min(float(row["cold / warm"] or 0) for row in rows)
    bars = [Bar.at_least("Solver, cold linprog against warm program, smallest ratio of five", smallest, 10.0)]
    curves = {
        name: ([costs[0] for costs in FIGURE9], [float(row[f"{name} s"] or 0) for row in rows])
        for name in ("Solver", "Solver, cold LPs", "C-FIT")
    }
    return Result("fit-10a", rows, bars=bars, claims=_claims(rows), lines=curves)


def _claims(rows: list[Row]) -> list[Claim]:
    programs = [int(row["points planned"] or 0) for row in rows]
    ratio = min(float(row["cold / C-FIT"] or 0) for row in rows)
    warm = min(float(row["Solver s"] or 0) / float(row["C-FIT s"] or 1) for row in rows)
    return [
        Claim(
            "C-FIT plans much faster than Solver with cold programs",
            "significantly (log axis)",
            f"at least {ratio:.0f} times",
            ratio > 5,
        ),
        Claim("C-FIT against our Solver with a warm program", "-", f"at least {warm:.2g} times as fast", None),
        Claim(
            "the larger the imbalance, the more points Solver plans for",
            "yes",
            ", ".join(map(str, programs)),
            programs == sorted(programs),
        ),
    ]


def plot(result: Result, path: Path) -> None:
    """Draw the time over the networks, on a logarithmic axis as in the paper."""
    lines(
        {"planning time, s": result.lines},
        path,
        title="Figure 10(a): planning the whole space, epsilon 5%",
        x="cost of the first chain, ms of 96",
        log=["planning time, s"],
    )
