"""Staying FIT (Tatbul et al.), figure 15(b): what to send after a change of selectivity.

Two chains, (64, 32) ms. The selectivity of the first chain's operator on B falls from 1. Measures how many entries B
must send to A, as a share of B's new table, so that A's scores stay within a given difference of the right ones.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result
from benchmarks.support.table_changes import compare_tables, count_rising
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:
    """Lower the selectivity in steps."""
    values = (1.0, 0.8, 0.5) if quick else (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
    changes = [(f"selectivity {value:g}", chains((64.0, 32.0), selectivity=value)) for value in values]
    rows, curves = compare_tables("change", changes, say)
    at5 = [float(row["sent %"] or 0) for row in rows if row["difference %"] == 5.0]
    rising, columns = count_rising(curves)
    is_falling = all(ys == sorted(ys, reverse=True) for _, ys in curves.values())
    claims = [
        Claim("nothing is sent when nothing changed", "-", f"{at5[0]:.1f}%", at5[0] == 0.0),
        Claim(
            "the larger the change, the more entries must be sent, for every allowed difference",
            "yes",
            f"at {rising} of {columns} differences; at 5%: " + ", ".join(f"{value:.1f}%" for value in at5),
            rising == columns,
        ),
        Claim("a smaller difference needs more entries", "yes", "in every line" if is_falling else "not everywhere", is_falling),
    ]
    return Result("fit-15b", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the share over the allowed difference."""
    lines(
        {"entries sent, %": result.lines},
        path,
        title="Figure 15(b): after a change of selectivity",
        x="allowed difference of scores, %",
    )
