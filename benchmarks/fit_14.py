"""Staying FIT (Tatbul et al.), figure 14 and table 3: 2, 4 and 8 inputs.

(a) The expected error of Solver-W as it divides the space, with exponential rates and lambda 3. (b) The time and the
entries of C-FIT, once on the grid behind table 3, with steps of 10% of the largest feasible rate, and once with the
geometric spread that guarantees epsilon. Costs (64, 32), (32, 16, 32, 16) and (16, 8, ...) ms.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.support.fit_networks import MAX_RATE, chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.timing import time_call
from penstock.errors import PenstockError
from penstock.planning import Exponential, Fit, Solver, SolverW
from penstock.planning.spread import Steps
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_COSTS = {2: (64.0, 32.0), 4: (32.0, 16.0) * 2, 8: (16.0, 8.0) * 4}
_PAPER = {2: 46, 4: 984, 8: 42472}
_LAMBDA = 3.0


def run(*, quick: bool, say: Say) -> Result:
    """Plan with each number of inputs."""
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    bars: list[Bar] = []
    for inputs, costs in _COSTS.items():
        if quick and inputs == 8:
            continue
        network = chains(costs)
        row: dict[str, str | float | None] = {"inputs": inputs}
        say(f"{inputs} inputs: Solver-W")
        workload = Exponential([_LAMBDA] * inputs, [MAX_RATE] * inputs)
        curve: tuple[list[float], list[float]] = ([], [])
        for programs in (10, 100, 1000, 10_000) if quick else (10, 30, 100, 300, 1000, 3000, 10_000, 30_000):
            solver, planning_s = time_call(partial(SolverW, network, 1e-4, workload=workload, max_programs=programs))
            curve[0].append(planning_s)
            curve[1].append(100 * solver.error)
            if solver.programs < programs:
                break
        curves[f"{inputs} inputs"] = curve
        row |= {"Solver-W error % at the last": curve[1][-1], "after s": curve[0][-1]}
        say(f"{inputs} inputs: C-FIT on the 10% grid")
        grid, row["C-FIT grid s"] = time_call(partial(Fit, chains(costs, max_rate=1000.0), 0.1, spread=Steps(0.1)))
        loads = grid.tables["B"].points @ (np.array(costs) / 1e3)
        row |= {
            "entries with load > 1/2, plus 1": int((loads > 0.5 + 1e-9).sum()) + 1,
            "paper": _PAPER[inputs],
            "entries": grid.entries,
        }
        if inputs == 8:
            bars.append(Bar.at_most("C-FIT, 8 inputs, the paper's grid, s", float(row["C-FIT grid s"] or 0), 60.0))
        say(f"{inputs} inputs: C-FIT with the geometric spread, 10%")
        row["C-FIT geometric s"], row["geometric entries"] = _geometric(inputs, say)
        if inputs == 4:
            say("4 inputs: Solver at 10%")
            solver4, row["Solver 10% s"] = time_call(partial(Solver, network, 0.1))
            row["Solver programs"] = solver4.programs
            bars.append(Bar.at_most("4 inputs, epsilon 10%, whole space (Solver), s", float(row["Solver 10% s"] or 0), 10.0))
        rows.append(row)
    entries = [int(row["entries with load > 1/2, plus 1"] or 0) for row in rows]
    claims = [
        Claim("entries for 2, 4, 8 inputs", "46, 984, 42472", ", ".join(map(str, entries)), None),
        Claim(
            "time and entries explode with the number of inputs",
            "8 inputs: about an hour",
            f"{float(rows[-1]['C-FIT grid s'] or 0):.1f} s",
            None,
        ),
    ]
    return Result("fit-14", rows, bars=bars, claims=claims, lines=curves)


def _geometric(inputs: int, say: Say) -> tuple[float | None, float | None]:
    """Plan with the geometric spread for 10%; return seconds and entries, or nothing if it takes too many entries."""
    try:
        fit, planning_s = time_call(partial(Fit, chains(_COSTS[inputs], max_rate=1000.0), 0.1))
    except PenstockError as error:
        say(str(error))
        return None, None
    return planning_s, fit.entries


def plot(result: Result, path: Path) -> None:
    """Draw the expected error over time."""
    lines(
        {"expected error, %": result.lines},
        path,
        title="Figure 14(a): Solver-W with 2, 4 and 8 inputs",
        x="planning time, s",
        log=["expected error, %"],
    )
