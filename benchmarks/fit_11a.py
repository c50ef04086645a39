"""Staying FIT (Tatbul et al.), figure 11(a): Solver-W over the mean rate.

The time of Solver-W over lambda, for the five networks of figure 9, with a threshold of 1.44%. We read lambda as the
mean rate in tuples per second, because the paper says that fewer rates are feasible with a larger lambda.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.support.fit_networks import FIGURE9, MAX_RATE, figure9
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from benchmarks.support.timing import time_call
from penstock.planning import Exponential, SolverW
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_LAMBDAS = (1.0, 2.0, 3.0, 5.0, 7.0, 10.0)
_EXPECTED = 0.0144


def run(*, quick: bool, say: Say) -> Result:
    """Plan every network at every lambda."""
    rows: list[Row] = []
    programs: dict[str, list[int]] = {}
    seconds: dict[str, tuple[list[float], list[float]]] = {}
    means = _LAMBDAS[::2] if quick else _LAMBDAS
    for number, costs in enumerate(FIGURE9):
        name = f"({costs[0]:g}, {costs[1]:g})"
        say(name)
        for mean in means:
            workload = Exponential([mean, mean], [MAX_RATE, MAX_RATE])
            solver, planning_s = time_call(partial(SolverW, figure9(number), _EXPECTED, workload=workload))
            rows.append(
                {
                    "network": name,
                    "lambda": mean,
                    "planning s": planning_s,
                    "programs": solver.programs,
                    "error %": 100 * solver.error,
                }
            )
            programs.setdefault(name, []).append(solver.programs)
            xs, ys = seconds.setdefault(name, ([], []))
            xs.append(mean)
            ys.append(planning_s)
    is_rising = all(counts == sorted(counts) for counts in programs.values())
    last = [counts[-1] for counts in programs.values()]
    claims = [
        Claim(
            "planning takes longer as lambda grows",
            "yes",
            "the programs never decrease" if is_rising else str(programs),
            is_rising,
        ),
        Claim("and longer with a larger imbalance", "yes", f"{last} programs at lambda {means[-1]:g}", last == sorted(last)),
    ]
    return Result("fit-11a", rows, claims=claims, lines=seconds)


def plot(result: Result, path: Path) -> None:
    """Draw time over lambda."""
    lines({"planning time, s": result.lines}, path, title="Figure 11(a): Solver-W over lambda", x="lambda: mean rate, tuples/s")
