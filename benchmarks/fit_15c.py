"""Staying FIT (Tatbul et al.), figure 15(c): what to send after an operator has moved.

Two chains, (64, 32) ms. 8, 16 or 24 ms of the first chain's cost move from its operator on A to its operator on B.
Measures how many entries B must send to A, as a share of B's new table, so that A's scores stay within a given
difference of the right ones.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result
from benchmarks.support.table_changes import compare_tables, count_rising
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:  # noqa: ARG001 - it takes no time
    """Move load in steps."""
    changes = [(f"parent-to-child-{moved:g}", chains((64.0, 32.0), moved_ms=moved)) for moved in (8.0, 16.0, 24.0)]
    rows, curves = compare_tables("move", changes, say)
    at5 = [float(row["sent %"] or 0) for row in rows if row["difference %"] == 5.0]
    rising, columns = count_rising(curves)
    smallest = min(curves["parent-to-child-24"][1])
    claims = [
        Claim(
            "the more load is moved, the more entries must be sent, for every allowed difference",
            "yes",
            f"at {rising} of {columns} differences; at 5%: " + ", ".join(f"{value:.1f}%" for value in at5),
            rising == columns,
        ),
        Claim(
            "after moving 24 ms, no less than 8% must be sent, no matter how large a difference is allowed",
            "8%",
            f"{smallest:.1f}% at a difference of 30%",
            smallest >= 8.0,
        ),
    ]
    return Result("fit-15c", rows, claims=claims, lines=curves)


def plot(result: Result, path: Path) -> None:
    """Draw the share over the allowed difference."""
    lines(
        {"entries sent, %": result.lines},
        path,
        title="Figure 15(c): after an operator has moved",
        x="allowed difference of scores, %",
    )
