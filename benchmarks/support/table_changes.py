"""How many entries of a table must be sent again after a change, for figures 15(b) and 15(c) of Staying FIT (Tatbul et al.).

The tables are those that D-FIT's nodes send: their samples are anchored, so that they stay where they are when a limit
changes, and depend on the network as it was declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.support.fit_networks import chains
from benchmarks.support.protocol import Say
from benchmarks.support.results import Row
from penstock.network import Network
from penstock.planning import Fit, Table
from penstock.planning.bounds import RateBounds
from penstock.planning.fit_node import geometric_spread
from penstock.planning.spread import Anchored
from penstock.planning.table import entries_to_send

__all__ = ["compare_tables", "count_rising", "plan_table"]

_DIFFERENCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)
_EPSILON = 0.05


def plan_table(network: Network) -> Table:
    """Plan the table that B sends to A, on the grid of D-FIT."""
    geometric = geometric_spread(RateBounds(chains((64.0, 32.0))), _EPSILON)
    anchored = Anchored(geometric.step, geometric.least, geometric.total)
    return Fit(network, _EPSILON, spread=anchored).tables["B"]


def compare_tables(
    column: str, changes: Sequence[tuple[str, Network]], say: Say
) -> tuple[list[Row], dict[str, tuple[list[float], list[float]]]]:
    """Compare the table of each changed network with the table before the change; return rows and curves."""
    known = plan_table(chains((64.0, 32.0)))
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for label, network in changes:
        say(label)
        new = plan_table(network)
        shares = [100 * entries_to_send(known, new, difference) for difference in _DIFFERENCES]
        curves[label] = ([100 * difference for difference in _DIFFERENCES], shares)
        rows += [
            {column: label, "difference %": 100 * difference, "sent %": share, "entries": len(new)}
            for difference, share in zip(_DIFFERENCES, shares, strict=True)
        ]
    return rows, curves


def count_rising(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> tuple[int, int]:
    """Return at how many allowed differences a later curve is nowhere below an earlier one, and how many there are."""
    columns = list(zip(*(shares for _, shares in curves.values()), strict=True))
    return sum(list(column) == sorted(column) for column in columns), len(columns)
