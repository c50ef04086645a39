"""Paper 000, figure 15(c): how much of a table must be sent again after an operator has moved.

Two chains, (64, 32) ms; 8, 16 or 24 ms of the first chain move from its operator on A to that on B. What B
must send to A so that A stays within a given difference of the right score, as a share of B's new table.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fit_15b import resent
from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]


def run(*, quick: bool, say: Say) -> Result:  # noqa: ARG001 - an instant
    """Move load in steps."""
    changed = [(f"parent-to-child-{moved:g}", chains((64.0, 32.0), moved_ms=moved)) for moved in (8.0, 16.0, 24.0)]
    rows, drawn = resent("move", changed, say)
    at5 = [float(row["sent %"] or 0) for row in rows if row["difference %"] == 5.0]
    least = min(drawn["parent-to-child-24"][1])
    claims = [
        Claim("more load moved needs more entries", "yes", ", ".join(f"{value:.1f}%" for value in at5), at5 == sorted(at5)),
        Claim(
            "after moving 24 the share stays above a floor",
            "8%, whatever the difference",
            f"{least:.1f}% at a difference of 30%",
            None,
        ),
    ]
    return Result("fit-15c", rows, claims=claims, lines=drawn)


def plot(result: Result, path: Path) -> None:
    """Draw the share over the allowed difference."""
    lines(
        {"entries sent, %": result.lines},
        path,
        title="Figure 15(c): after an operator has moved",
        x="allowed difference of scores, %",
    )
