"""Paper 000, figure 15(b): how much of a table must be sent again after a selectivity has changed.

Two chains, (64, 32) ms; the selectivity of the first chain's operator on B falls from 1. What B must send to A so that A stays
within a given difference of the right score, as a share of B's new table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.network import Network
from penstock.planning import Fit, Table
from penstock.planning.table import entries_to_send
from penstock.simulation.plotting import lines

__all__ = ["plot", "resent", "run"]

_DIFFERENCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
_EPSILON = 0.05


def table_of_b(network: Network) -> Table:
    """What B has sent to A."""
    return Fit(network, _EPSILON).tables["B"]


def resent(
    name: str, changed: Sequence[tuple[str, Network]], say: Say
) -> tuple[list[Row], dict[str, tuple[list[float], list[float]]]]:
    """Compare each changed network's table with the one before."""
    known = table_of_b(chains((64.0, 32.0)))
    rows: list[Row] = []
    drawn: dict[str, tuple[list[float], list[float]]] = {}
    for label, network in changed:
        say(label)
        new = table_of_b(network)
        shares = [100 * entries_to_send(known, new, difference) for difference in _DIFFERENCES]
        drawn[label] = ([100 * difference for difference in _DIFFERENCES], shares)
        rows += [
            {name: label, "difference %": 100 * difference, "sent %": share, "entries": len(new)}
            for difference, share in zip(_DIFFERENCES, shares, strict=True)
        ]
    return rows, drawn


def run(*, quick: bool, say: Say) -> Result:
    """Lower the selectivity in steps."""
    values = (1.0, 0.8, 0.5) if quick else (1.0, 0.95, 0.9, 0.8, 0.65, 0.5)
    changed = [(f"selectivity {value:g}", chains((64.0, 32.0), selectivity=value)) for value in values]
    rows, drawn = resent("change", changed, say)
    at5 = [float(row["sent %"] or 0) for row in rows if row["difference %"] == 5.0]
    falling = all(line[1] == sorted(line[1], reverse=True) for line in drawn.values())
    claims = [
        Claim("nothing is sent when nothing changed", "-", f"{at5[0]:.1f}%", at5[0] == 0.0),
        Claim("a greater change needs more entries", "yes", ", ".join(f"{value:.1f}%" for value in at5), at5 == sorted(at5)),
        Claim("a smaller difference needs more entries", "yes", "in every line" if falling else "not everywhere", falling),
    ]
    return Result("fit-15b", rows, claims=claims, lines=drawn)


def plot(result: Result, path: Path) -> None:
    """Draw the share over the allowed difference."""
    lines(
        {"entries sent, %": result.lines},
        path,
        title="Figure 15(b): after a change of selectivity",
        x="allowed difference of scores, %",
    )
