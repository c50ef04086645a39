"""Staying FIT (Tatbul et al.), figure 14(b): the planning time of C-FIT over the largest error, for 2, 4 and 8 inputs.

Costs (64, 32), (32, 16, 32, 16) and (16, 8, ...) ms. A table that would be too large is refused, and then there is no
point on the curve. The last column of rows has the largest error that 42,472 entries guarantee, the paper's number for 8
inputs at 10%.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.errors import PenstockError
from penstock.planning import Fit
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_COSTS = {2: (64.0, 32.0), 4: (32.0, 16.0) * 2, 8: (16.0, 8.0) * 4}
_EPSILONS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_PAPER_ENTRIES = 42_472


def run(*, quick: bool, say: Say) -> Result:
    """Plan with each number of inputs and each error."""
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    answers: dict[tuple[int, float], tuple[float, str]] = {}
    for inputs, costs in _COSTS.items():
        network = chains(costs, max_rate=1000.0)
        curve: tuple[list[float], list[float]] = ([], [])
        for epsilon in (0.1, 0.5) if quick else _EPSILONS:
            say(f"{inputs} inputs, {epsilon:.0%}")
            start_s = time.perf_counter()
            try:
                fit: Fit | None = Fit(network, epsilon)
                answer = ""
            except PenstockError as error:
                fit, answer = None, str(error)
            planning_s = time.perf_counter() - start_s
            answers[inputs, epsilon] = planning_s, answer
            rows.append(
                {
                    "inputs": inputs,
                    "largest error %": 100 * epsilon,
                    "planning s": planning_s,
                    "entries": None if fit is None else fit.entries,
                    "guaranteed %": None if fit is None else 100 * fit.error,
                    "42,472 entries guarantee %": 100 * Fit(network, None, max_entries=_PAPER_ENTRIES).error,
                }
            )
            if fit is not None:
                curve[0].append(100 * epsilon)
                curve[1].append(planning_s)
        curves[f"{inputs} inputs"] = curve
    seconds, answer = answers[8, 0.1]
    claims, bars = _compare(rows, seconds, answer)
    return Result("fit-14b", rows, bars=bars, claims=claims, lines=curves)


def _compare(rows: list[Row], seconds: float, answer: str) -> tuple[list[Claim], list[Bar]]:
    def entries(inputs: int) -> list[float]:
        return [float(row["entries"] or float("inf")) for row in rows if row["inputs"] == inputs]

    grows = all(few < many for few, many in zip(entries(4), entries(8), strict=True))
    falls = all(entries(inputs) == sorted(entries(inputs), reverse=True) for inputs in _COSTS)
    claims = [
        Claim("the smaller the error, the more entries", "yes", "for every number of inputs" if falls else "no", falls),
        Claim("8 inputs need more entries than 4 at every error", "yes", "yes" if grows else "no", grows),
        Claim("8 inputs at 10% can be had", "42,472 entries, about an hour", answer or f"{seconds:.1f} s", not answer),
    ]
    bar = "8 inputs at 10%: refused, s" if answer else "8 inputs at 10%: planned, s"
    return claims, [Bar.at_most(bar, seconds, 1.0 if answer else 60.0)]


def plot(result: Result, path: Path) -> None:
    """Draw the time over the error."""
    lines(
        {"planning time, s": result.lines},
        path,
        title="Figure 14(b): C-FIT with 2, 4 and 8 inputs",
        x="largest error allowed, %",
        log=["planning time, s"],
    )
