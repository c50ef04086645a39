"""Staying FIT (Tatbul et al.), figure 10(b): Solver against Solver-W.

Both plan at the same expected error under an exponential workload with lambda 5. Solver runs with a maximum error of
5%; the expected error that results under the workload is the threshold of Solver-W.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.support.fit_networks import FIGURE9, MAX_RATE, figure9
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from benchmarks.support.timing import best_of
from penstock.planning import Exponential, Solver, SolverW
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_EPSILON, _LAMBDA = 0.05, 5.0


def run(*, quick: bool, say: Say) -> Result:
    """Plan all five networks with both methods."""
    rows: list[Row] = []
    workload = Exponential([_LAMBDA, _LAMBDA], [MAX_RATE, MAX_RATE])
    for number, costs in enumerate(FIGURE9):
        say(f"costs {costs[0]:g} and {costs[1]:g} ms")
        network = figure9(number)
        solver = Solver(network, _EPSILON)
        expected = solver.expected_error(workload)
        weighted = SolverW(network, expected, workload=workload)
        times = best_of(
            {
                "Solver": partial(Solver, network, _EPSILON),
                "Solver-W": partial(SolverW, network, expected, workload=workload),
            },
            rounds=1 if quick else 5,
            warm_up=0 if quick else 1,
        )
        rows.append(
            {
                "network": f"({costs[0]:g}, {costs[1]:g})",
                "Solver s": times["Solver"],
                "Solver-W s": times["Solver-W"],
                "Solver programs": solver.programs,
                "Solver-W programs": weighted.programs,
                "expected error %": 100 * expected,
                "Solver-W's expected error %": 100 * weighted.error,
            }
        )
    curves = {
        name: ([costs[0] for costs in FIGURE9], [float(row[f"{name} s"] or 0) for row in rows]) for name in ("Solver", "Solver-W")
    }
    return Result("fit-10b", rows, claims=_claims(rows), lines=curves)


def _claims(rows: list[Row]) -> list[Claim]:
    mean = sum(float(row["expected error %"] or 0) for row in rows) / len(rows)
    ratios = [float(row["Solver s"] or 0) / float(row["Solver-W s"] or 1) for row in rows]
    fewer = min(float(row["Solver programs"] or 0) / float(row["Solver-W programs"] or 1) for row in rows)
    return [
        Claim("expected error of Solver at 5%", "1.44% on average", f"{mean:.2f}% on average", None),
        Claim(
            "Solver-W reaches it in a much shorter time",
            "yes",
            f"{', '.join(f'{ratio:.1f}' for ratio in ratios)} times; at least {fewer:.1f} times fewer points",
            min(ratios) > 2,
        ),
        Claim(
            "the larger the imbalance, the more programs both need",
            "similar sensitivity",
            ", ".join(f"{row['Solver programs']}/{row['Solver-W programs']}" for row in rows),
            float(rows[-1]["Solver-W programs"] or 0) > float(rows[0]["Solver-W programs"] or 0),
        ),
    ]


def plot(result: Result, path: Path) -> None:
    """Draw the time over the networks."""
    lines(
        {"planning time, s": result.lines},
        path,
        title="Figure 10(b): Solver and Solver-W",
        x="cost of the first chain, ms of 96",
        log=["planning time, s"],
    )
