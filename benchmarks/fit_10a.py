"""Paper 000, figure 10(a): time to plan the whole space, Solver against C-FIT, over five load distributions, epsilon 5%.

Solver runs twice on the same regions: with our warm program, and with one cold ``scipy.optimize.linprog`` for each point, which
is what the paper did with GLPK.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.cold import cold_scorer
from benchmarks.fit_networks import FIGURE9, figure9
from benchmarks.results import Bar, Claim, Result, Row
from benchmarks.timing import best_of
from penstock.planning import Fit, Solver
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_EPSILON = 0.05


def run(*, quick: bool, say: Callable[[str], None]) -> Result:
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
    programs = [int(row["points planned"] or 0) for row in rows]
    ratio = min(float(row["cold / C-FIT"] or 0) for row in rows)
    warm = min(float(row["Solver s"] or 0) / float(row["C-FIT s"] or 1) for row in rows)
    claims = [
        Claim(
            "C-FIT plans much faster than a Solver with cold programs",
            "significantly (log axis)",
            f"{ratio:.0f} times and more",
            ratio > 5,
        ),
        Claim("and than our Solver with a warm one", "-", f"{warm:.2g} times and more", None),
        Claim(
            "Solver plans for more points the greater the imbalance",
            "yes",
            ", ".join(map(str, programs)),
            programs == sorted(programs),
        ),
    ]
    least = min(float(row["cold / warm"] or 0) for row in rows)
    bars = [Bar.at_least("Solver, cold linprog against warm, least of five", least, 10.0)]
    drawn = {
        name: ([costs[0] for costs in FIGURE9], [float(row[f"{name} s"] or 0) for row in rows])
        for name in ("Solver", "Solver, cold LPs", "C-FIT")
    }
    return Result("fit-10a", rows, bars=bars, claims=claims, lines=drawn)


def plot(result: Result, path: Path) -> None:
    """Draw times over networks, on a logarithmic axis as in the paper."""
    lines(
        {"planning time, s": result.lines},
        path,
        title="Figure 10(a): planning the whole space, epsilon 5%",
        x="cost of the first chain, ms of 96",
        log=["planning time, s"],
    )
