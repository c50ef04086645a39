"""Staying FIT (Tatbul et al.), figure 12: exponential workloads for different lambdas.

The paper's colour map shows the joint probability of two exponential rates, whose bright area moves up as lambda grows.
We tabulate the probability by how much of network 9(b)'s capacity the rates take, in quarters of the capacity, and
draw it.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks.support.fit_networks import MAX_RATE
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.planning import Exponential
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_LAMBDAS = (1.0, 3.0, 5.0, 10.0)
_COSTS_S = (0.064, 0.032)
_LOADS = np.arange(0.0, 3.01, 0.25)


def run(*, quick: bool, say: Say) -> Result:
    """Add up the probability of small squares by the load of their centre."""
    count = 100 if quick else 400
    edges = np.linspace(0.0, MAX_RATE, count + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    loads = centres[:, None] * _COSTS_S[0] + centres[None, :] * _COSTS_S[1]
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for mean in _LAMBDAS:
        say(f"lambda {mean:g}")
        along = np.array([Exponential([mean], [MAX_RATE]).mass([low], [high]) for low, high in pairwise(edges.tolist())])
        joint = along[:, None] * along[None, :]
        by_load = np.histogram(loads, [*_LOADS.tolist(), np.inf], weights=joint)[0]
        order = np.argsort(loads, axis=None)
        median = float(loads.ravel()[order][np.searchsorted(np.cumsum(joint.ravel()[order]), 0.5)])
        rows.append(
            {
                "lambda": mean,
                "probability": float(joint.sum()),
                "overloaded %": 100 * float(joint[loads > 1.0].sum()),
                "median load": median,
                "likeliest quarter": float(_LOADS[int(np.argmax(by_load))]),
            }
        )
        curves[f"lambda {mean:g}"] = (_LOADS.tolist(), by_load.tolist())
    overloaded = [float(row["overloaded %"] or 0) for row in rows]
    medians = [float(row["median load"] or 0) for row in rows]
    claims = [
        Claim(
            "the area of high probability moves up with lambda",
            "yes",
            "median load " + ", ".join(f"{median:.2f}" for median in medians),
            medians == sorted(medians) and medians[-1] > medians[0],
        ),
        Claim(
            "fewer rates lie below the feasibility boundary",
            "yes",
            "overloaded " + ", ".join(f"{share:.1f}%" for share in overloaded),
            all(after > before for before, after in pairwise(overloaded)),
        ),
    ]
    return Result("fit-12", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the probability over the load."""
    lines({"probability": result.lines}, path, title="Figure 12: exponential workloads", x="load of network 9(b), from")
