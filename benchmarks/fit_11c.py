"""Staying FIT (Tatbul et al.), figure 11(c): Solver-W over the provision level of a trace.

The paper uses TCP traces of the Internet Traffic Archive. We take the two halves of BC-pAug89, an Ethernet trace of that
archive, where ``PENSTOCK_DATA`` has it, scaled to 14 tuples per second each; otherwise two on-off sources as bursty. The
costs of network 9(b), (64, 32) ms, shrink in proportion; the provision level is the share of the seconds that are
feasible.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.support.fit_networks import MAX_RATE, chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from benchmarks.support.timing import time_call
from benchmarks.support.trace_rates import trace_name, trace_rates
from penstock.planning import Empirical, SolverW
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_COSTS = ((64.0, 32.0), (56.0, 28.0), (48.0, 24.0), (40.0, 20.0), (32.0, 16.0), (24.0, 12.0))
_EXPECTED, _RATE, _LENGTH_S = 0.0144, 14.0, 2000.0


def run(*, quick: bool, say: Say) -> Result:
    """Plan at every provision level."""
    samples = trace_rates(_RATE, _LENGTH_S / (4 if quick else 1))
    workload = Empirical(samples, [MAX_RATE, MAX_RATE])
    rows: list[Row] = []
    for costs in _COSTS:
        say(f"costs {costs[0]:g} and {costs[1]:g} ms")
        provision = float(np.mean(samples @ (np.array(costs) / 1e3) <= 1.0))
        solver, planning_s = time_call(partial(SolverW, chains(costs), _EXPECTED, workload=workload))
        rows.append(
            {
                "costs ms": f"({costs[0]:g}, {costs[1]:g})",
                "provision %": 100 * provision,
                "planning s": planning_s,
                "programs": solver.programs,
                "error %": 100 * solver.error,
            }
        )
    programs = [int(row["programs"] or 0) for row in rows]
    claims = [
        Claim(
            f"provision level of (64, 32), {trace_name()}",
            "about 20%",
            f"{float(rows[0]['provision %'] or 0):.0f}%",
            10.0 <= float(rows[0]["provision %"] or 0) <= 30.0,
        ),
        Claim(
            "the better the system is provisioned, the shorter planning takes",
            "yes",
            f"{programs} programs",
            programs == sorted(programs, reverse=True),
        ),
    ]
    curves = {"Solver-W": ([float(row["provision %"] or 0) for row in rows], [float(row["planning s"] or 0) for row in rows])}
    return Result("fit-11c", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw time over the provision level."""
    lines(
        {"planning time, s": result.lines}, path, title="Figure 11(c): Solver-W over the provision level", x="feasible seconds, %"
    )
