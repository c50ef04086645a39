"""The part of FIT that runs on one node."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.planning import (
    Fit,
    FitNode,
    Table,
)
from penstock.planning.bounds import RateBounds
from penstock.planning.fit_node import geometric_spread
from tests.networks import figure1


def test_a_node_needs_the_tables_of_its_children() -> None:
    bounds = RateBounds(figure1())
    spread = geometric_spread(bounds, 0.1)
    with pytest.raises(PenstockError, match=r"node 'A' needs the tables of \['B'\], got \[\]"):
        FitNode(bounds, "A", spread, step=spread.step).table([])


def test_foreign_and_duplicate_child_tables_are_rejected() -> None:
    bounds = RateBounds(figure1())
    spread = geometric_spread(bounds, 0.2)
    fit_node = FitNode(bounds, "A", spread, step=spread.step)
    table = Fit(figure1(), 0.2).tables["B"]
    with pytest.raises(PenstockError, match="needs the tables of"):
        fit_node.table([table, table])
    foreign = Table("B", ("x->y", "a2->b2"), table.points, table.scores)
    with pytest.raises(PenstockError, match="has a column 'x->y' that node 'A' does not feed"):
        fit_node.table([foreign])
