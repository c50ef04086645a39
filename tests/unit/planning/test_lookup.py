"""Looking rates up in tables."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.planning.column_effects import ColumnEffects, column_effects
from penstock.planning.directions import DirectionGrid, count_directions, finest_parts
from penstock.planning.flows import Flows
from penstock.planning.lookup import ClippingLookup, TableLookup
from penstock.planning.table import Table
from tests.networks import figure1

ONE_NODE = ColumnEffects(np.array([[1.0, 2.0, 0.5]]), np.array([1.0, 3.0, 0.25]))


@pytest.mark.parametrize("lookup_class", [TableLookup, ClippingLookup])
@pytest.mark.parametrize("knows_worth", [True, False])
def test_the_answer_is_feasible_and_never_nothing(lookup_class: type[TableLookup], knows_worth: bool) -> None:
    points = np.array([[0.5, 0.2, 0.2], [0.1, 0.4, 0.2]])
    table = Table("A", ("a", "b", "c"), points, points @ ONE_NODE.worth)
    lookup = lookup_class(table, ONE_NODE.shares, ONE_NODE.worth if knows_worth else None)
    rng = np.random.default_rng(1)
    for _ in range(200):
        rates = rng.random(3) * rng.integers(0, 2, 3)
        load = float((ONE_NODE.shares @ rates)[0])
        if load == 0.0:
            continue
        rates *= (1.001 + rng.random()) / load
        choice = lookup.find(rates.tolist())
        assert np.all(choice.rates <= rates * (1 + 1e-9))
        assert float((ONE_NODE.shares @ choice.rates)[0]) <= 1 + 1e-9
        assert choice.rates.sum() > 0.0


def test_an_empty_table_scales_rates_down() -> None:
    lookup = TableLookup(Table("A", ("a",), np.zeros((0, 1)), np.zeros(0)), np.array([[1.0]]), np.array([1.0]))
    choice = lookup.find([4.0])
    assert choice.rates.tolist() == [1.0]
    assert choice.row is None


def test_without_local_plans_the_worth_of_a_column_follows_from_the_table() -> None:
    points = np.random.default_rng(2).random((20, 3))
    table = Table("A", ("a", "b", "c"), points, points @ ONE_NODE.worth)
    known, estimated = (TableLookup(table, ONE_NODE.shares, worth) for worth in (ONE_NODE.worth, None))
    for rates in np.random.default_rng(3).random((50, 3)) * 2:
        assert known.find(rates.tolist()).rates.tolist() == pytest.approx(estimated.find(rates.tolist()).rates.tolist())


def test_directions_lie_on_the_boundary_and_their_error_falls() -> None:
    effects = column_effects(Flows(figure1()), ["i1", "i2"])
    grids = [DirectionGrid.divide(effects, parts) for parts in (4, 16, 64)]
    for grid in grids:
        assert np.max(grid.points @ effects.shares.T, axis=1) == pytest.approx(np.ones(len(grid.points)))
    assert [grid.error for grid in grids] == sorted((grid.error for grid in grids), reverse=True)
    assert grids[-1].error < 0.05


def test_the_finest_parts_use_a_budget_up() -> None:
    for columns, entries in ((2, 30), (4, 1000), (8, 42_472), (3, 3)):
        parts = finest_parts(columns, entries)
        assert count_directions(columns, parts) <= entries < count_directions(columns, parts + 1)
