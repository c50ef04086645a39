"""Staying FIT (Tatbul et al.), figure 14 and table 3: 2, 4 and 8 inputs.

(a) The expected error of Solver-W as it divides the space, with exponential rates and lambda 3. (b) The time and the
entries of C-FIT, once on the grid behind table 3, with steps of 10% of the largest feasible rate, and once with the
tables that guarantee 10%: geometric for two inputs, directions for four. Costs (64, 32), (32, 16, 32, 16) and (16, 8, ...) ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.support.fit_networks import MAX_RATE, chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Lines, Result, Row
from benchmarks.support.timing import time_call
from penstock.errors import PenstockError
from penstock.planning import Exponential, Fit, Solver, SolverW
from penstock.planning.spread import Steps
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_COSTS = {2: (64.0, 32.0), 4: (32.0, 16.0) * 2, 8: (16.0, 8.0) * 4}
_PAPER = {2: 46, 4: 984, 8: 42472}
_LAMBDA = 3.0
_THRESHOLD = 5.0
"""The expected error in percent at which figure 14(a) is read."""


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
            if 100 * solver.error <= _THRESHOLD and "programs to 5%" not in row:
                row["programs to 5%"] = solver.programs
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
        say(f"{inputs} inputs: C-FIT that guarantees 10%")
        row["C-FIT 10% s"], row["10% entries"] = _guarantee(inputs, say)
        if inputs == 4:
            say("4 inputs: Solver at 10%")
            solver4, row["Solver 10% s"] = time_call(partial(Solver, network, 0.1))
            row["Solver programs"] = solver4.programs
            bars.append(Bar.at_most("4 inputs, epsilon 10%, whole space (Solver), s", float(row["Solver 10% s"] or 0), 10.0))
        rows.append(row)
    return Result("fit-14", rows, bars=bars, claims=_compare(rows, curves), lines=curves)


def _compare(rows: list[Row], curves: Lines) -> list[Claim]:
    """Compare with section 8.2.4 and table 3."""
    inputs = [int(row["inputs"] or 0) for row in rows]
    entries = [int(row["entries with load > 1/2, plus 1"] or 0) for row in rows]
    growth = [after / before for before, after in pairwise(entries)]
    programs = [float(row.get("programs to 5%") or float("inf")) for row in rows]
    shown = [f"{_reach(*curves[f'{count} inputs']):.3f} s" for count in inputs]
    return [
        Claim(
            "entries for 2, 4, 8 inputs",
            ", ".join(str(_PAPER[count]) for count in inputs),
            ", ".join(map(str, entries)),
            entries == [_PAPER[count] for count in inputs],
        ),
        Claim(
            "(a) with more inputs, plan generation takes significantly longer",
            "yes",
            f"an expected error of {_THRESHOLD:g}% after {', '.join(shown)}, {', '.join(map('{:g}'.format, programs))} programs",
            all(after > 2.0 * before for before, after in pairwise(programs)),
        ),
        Claim(
            "the curse of dimensionality: entries grow by more with every doubling of the inputs",
            "21 and 43 times",
            " and ".join(f"{factor:.0f}" for factor in growth) + " times",
            growth == sorted(growth) and growth[0] > 2.0,
        ),
        Claim(
            "8 inputs at 10% take about an hour",
            "an hour",
            f"{float(rows[-1]['C-FIT grid s'] or 0):.1f} s on the paper's grid with {inputs[-1]} inputs",
            None,
        ),
    ]


def _reach(seconds: Sequence[float], errors: Sequence[float]) -> float:
    """Return the seconds after which the expected error is at most the threshold; infinite if it never is."""
    return next((second for second, error in zip(seconds, errors, strict=True) if error <= _THRESHOLD), float("inf"))


def _guarantee(inputs: int, say: Say) -> tuple[float | None, float | None]:
    """Plan tables that guarantee 10%; return seconds and entries, or nothing if it takes too many entries."""
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
