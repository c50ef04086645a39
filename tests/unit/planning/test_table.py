"""Tables of plans, and what changed between two."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Network
from penstock.planning import (
    Fit,
    Table,
    delta_between,
)
from penstock.planning.table import Delta
from tests.networks import figure1


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"schema": 9},
        {"schema": 1, "node": "B", "columns": ["i"], "points": [[math.nan]], "scores": [1.0]},
        {"schema": 1, "columns": 3},
    ],
)
def test_messages_that_are_not_tables_are_rejected(message: dict[str, object]) -> None:
    with pytest.raises(PenstockError, match="table"):
        Table.from_message(message)


def _table(network: Network, epsilon: float = 0.1) -> Table:
    return Fit(network, epsilon).tables["B"]


def _with_operator_b1(cost: float = 3.0, selectivity: float = 1.0) -> Network:
    network = figure1()
    changed = replace(network.operators["b1"], cost=cost, selectivity=selectivity)
    return Network(network.nodes, network.inputs, {**network.operators, "b1": changed}, network.outputs)


def test_nothing_is_sent_if_nothing_changed() -> None:
    known = _table(figure1())
    change = delta_between(known, _table(figure1()))
    assert not change
    assert change.apply(known).points.tolist() == known.points.tolist()


@pytest.mark.parametrize(("cost", "selectivity"), [(3.0, 0.9), (3.0, 0.5), (4.0, 1.0), (2.0, 1.0)])
def test_after_a_delta_the_parent_plans_as_well_as_with_the_whole_table(cost: float, selectivity: float) -> None:
    known, new = _table(figure1()), _table(_with_operator_b1(cost, selectivity))
    sent = []
    for allowed in (0.0, 0.05, 0.2):
        change = Delta.from_message(delta_between(known, new, allowed).to_message())
        after = change.apply(known)
        sent.append(len(change.scores))
        rng = np.random.default_rng(3)
        for _ in range(200):
            rates = rng.random(2)
            in_new = np.all(new.points <= rates, axis=1)
            in_updated = np.all(after.points <= rates * (1 + 1e-9), axis=1)
            best = new.scores[in_new].max(initial=0.0)
            assert after.scores[in_updated].max(initial=0.0) >= best * (1 - allowed) - 1e-9
        # Every entry of the parent is feasible: some new entry is component-wise at least it.
        for point in after.points:
            assert np.any(np.all(new.points >= point * (1 - 1e-9), axis=1))
    assert sent == sorted(sent, reverse=True)
    assert sent[0] > 0


def test_a_delta_for_another_table_is_rejected() -> None:
    table = _table(figure1())
    with pytest.raises(PenstockError, match="send the whole table"):
        delta_between(table, Table("B", ("x",), np.zeros((1, 1)), np.zeros(1)))
    with pytest.raises(PenstockError, match="allowed difference"):
        delta_between(table, table, 1.0)
    with pytest.raises(PenstockError, match="removes row 9999"):
        Delta("B", (9999,), np.zeros((0, 2)), np.zeros(0)).apply(table)
    with pytest.raises(PenstockError, match="not a change of a table"):
        Delta.from_message({"node": "B"})


def test_a_delta_stays_within_the_allowed_difference() -> None:
    known = Table("B", ("i",), np.array([[1.0]]), np.array([1.05]))
    new = Table("B", ("i",), np.array([[1.0], [1.1]]), np.array([1.0, 1.1]))
    assert delta_between(known, new, 0.05)
    rng = np.random.default_rng(2)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        old = Table("B", ("i", "j"), rng.random((20, 2)), rng.random(20) + 0.5)
        now = Table("B", ("i", "j"), rng.random((20, 2)), rng.random(20) + 0.5)
        for allowed in (0.02, 0.2):
            after = delta_between(old, now, allowed).apply(old)
            for _ in range(20):
                rates = rng.random(2) * 1.2
                in_new, in_updated = np.all(now.points <= rates, axis=1), np.all(after.points <= rates, axis=1)
                best = now.scores[in_new].max(initial=0.0)
                if not best:
                    continue
                row = np.flatnonzero(in_updated)[np.argmax(after.scores[in_updated])]
                true = now.scores[np.all(now.points <= after.points[row] * (1 + 1e-9), axis=1)].max(initial=0.0)
                assert true >= (1 - allowed) * best - 1e-9


@pytest.mark.parametrize(
    "message",
    [
        {"schema": 1, "node": "B", "removed": [-1], "points": [], "scores": []},
        {"schema": 1, "node": "B", "removed": [], "points": [[1.0, 2.0], [1.0, 2.0], [3.0, 1.0]], "scores": [1.0, 2.0]},
        {"schema": 1, "node": "B", "removed": [], "points": [[float("nan")]], "scores": [1.0]},
        {"schema": 2, "node": "B", "removed": [], "points": [], "scores": []},
    ],
)
def test_malformed_deltas_are_rejected(message: dict[str, object]) -> None:
    table = Table("B", ("i", "j"), np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(PenstockError, match="a change"):
        Delta.from_message(message).apply(table)


def test_a_delta_for_another_node_is_rejected() -> None:
    with pytest.raises(PenstockError, match="does not fit the table of node 'C'"):
        Delta("B", (), np.zeros((0, 1)), np.zeros(0)).apply(Table("C", ("i",), np.zeros((1, 1)), np.zeros(1)))
