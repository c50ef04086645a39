"""Costs and selectivities from counts and times."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.estimate import OperatorCosts, Selectivities, SelectivityEstimator


def feed(model: OperatorCosts, costs: dict[str, float], batches: int, seed: int) -> OperatorCosts:
    rng = np.random.default_rng(seed)
    for _ in range(batches):
        rows = {name: int(rng.uniform(0.5, 1.5) * 200) for name in costs}
        busy = 0.12 + sum(costs[name] * count for name, count in rows.items())
        model.update(rows, busy * rng.normal(1.0, 0.02))
    return model


@given(
    st.lists(st.floats(0.0005, 0.02), min_size=1, max_size=3),
    st.floats(0.1, 8.0),
    st.integers(0, 1000),
)
def test_declared_values_are_only_the_start(costs: list[float], wrong: float, seed: int) -> None:
    true = {f"o{number}": cost for number, cost in enumerate(costs)}
    model = feed(OperatorCosts({name: cost * wrong for name, cost in true.items()}), true, 60, seed)
    whole = sum(200 * cost for cost in true.values())
    for name, cost in true.items():
        estimate = model.cost(name)
        # What an operator costs matters as far as it weighs in the whole.
        assert abs(estimate.value - cost) * 200 < 0.15 * whole + 0.02
        assert abs(estimate.value - cost) < 6 * estimate.error + 0.1 * cost


@pytest.mark.parametrize("factor", [0.4, 2.0, 3.0])
def test_a_changed_cost_is_found_within_a_few_batches(factor: float) -> None:
    costs = {"a": 0.004, "b": 0.002}
    model = feed(OperatorCosts(costs), costs, 30, 1)
    feed(model, {"a": 0.004 * factor, "b": 0.002}, 5, 2)
    assert model.cost("a").value == pytest.approx(0.004 * factor, rel=0.15)
    assert model.cost("b").value == pytest.approx(0.002, rel=0.35)


def test_what_always_goes_in_step_is_sure_only_together() -> None:
    model = OperatorCosts({"a": 0.003, "b": 0.003})
    rng = np.random.default_rng(3)
    for _ in range(40):
        rows = int(rng.uniform(50, 400))
        model.update({"a": rows, "b": rows}, 0.1 + 0.006 * rows * rng.normal(1.0, 0.02))
    together = model.group_cost({"a": 1, "b": 1})
    assert together.value == pytest.approx(0.006, rel=0.05)
    assert together.error < 0.1 * together.value
    assert model.cost("a").error > 3 * together.error


def test_batches_of_few_rows_do_not_make_a_cost_of_nothing() -> None:
    rng = np.random.default_rng(4)
    model = feed(OperatorCosts({"a": 0.008}), {"a": 0.008}, 10, 4)
    for _ in range(100):  # nearly shut: what a batch takes is the engine's, give or take
        rows = int(rng.integers(0, 4))
        model.update({"a": rows}, 0.12 + rng.normal(0.0, 0.03) + 0.008 * rows)
    assert 0.003 < model.cost("a").value < 0.016
    feed(model, {"a": 0.008}, 3, 5)
    assert model.cost("a").value == pytest.approx(0.008, rel=0.2)


def test_a_cost_declared_as_nothing_is_found() -> None:
    model = feed(OperatorCosts({"a": 0.0}), {"a": 0.01}, 3, 6)
    assert model.cost("a").value == pytest.approx(0.01, rel=0.15)
    both = feed(OperatorCosts({"a": 0.0, "b": 0.004}), {"a": 0.01, "b": 0.004}, 12, 7)
    assert both.cost("a").value == pytest.approx(0.01, rel=0.2)


def test_nonsense_is_ignored() -> None:
    model = OperatorCosts({"a": 0.003})
    for rows, busy in (({"a": -1}, 1.0), ({"a": 10}, float("nan")), ({"a": 10}, -1.0), ({"a": float("inf")}, 1.0)):
        model.update(rows, busy)
    assert model.batches == 0
    assert model.cost("a").value == 0.003


def test_what_was_learned_survives() -> None:
    model = feed(OperatorCosts({"a": 0.001}), {"a": 0.004}, 20, 5)
    other = OperatorCosts({"a": 0.001})
    other.restore(model.snapshot())
    assert other.cost("a") == model.cost("a")
    stranger = OperatorCosts({"b": 0.001})
    stranger.restore(model.snapshot())
    assert stranger.cost("b").value == 0.001


@given(st.floats(0.02, 1.0), st.floats(0.02, 1.0), st.integers(0, 100))
def test_a_changed_selectivity_is_found(before: float, after: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratio = SelectivityEstimator(0.5)
    for true in (before, after):
        for _ in range(8):
            rows = int(rng.integers(500, 2000))
            ratio.update(rows, int(rng.binomial(rows, true)))
        estimate = ratio.estimate
        assert abs(estimate.value - true) < 0.05 + 0.1 * true
        assert abs(estimate.value - true) < 6 * estimate.error + 1e-3


def test_a_ratio_of_nothing_changes_nothing() -> None:
    ratio = SelectivityEstimator(0.5)
    before = ratio.estimate
    ratio.update(0, 0)
    ratio.update(-5, 1)
    assert ratio.estimate == before


def test_many_selectivities_learn_like_one_each() -> None:
    rng = np.random.default_rng(1)
    options = [{}, {"weight": 5_000.0, "decay": 0.98, "surprise": math.inf}]
    singles = [SelectivityEstimator(0.5, **options[number % 2]) for number in range(8)]
    many = Selectivities([0.5] * 8, weight=[20.0, 5_000.0] * 4, decay=[0.8, 0.98] * 4, surprise=[4.0, math.inf] * 4)
    for batch in range(60):
        members = np.flatnonzero(rng.random(8) < 0.7)
        rows_in = rng.integers(0, 300, members.size)
        rows_out = (rows_in * (0.9 if batch > 30 else 0.3) * rng.random(members.size)).astype(int)
        many.update(members, rows_in, rows_out)
        for member, entering, leaving in zip(members.tolist(), rows_in.tolist(), rows_out.tolist(), strict=True):
            singles[member].update(entering, leaving)
        assert many.values.tolist() == pytest.approx([single.estimate.value for single in singles])
        assert many.errors.tolist() == pytest.approx([single.estimate.error for single in singles])
    assert many.snapshot() == [pytest.approx(single.snapshot()) for single in singles]


def test_a_query_of_many_operators_has_a_small_state() -> None:
    """A thousand operators had a million covariances, in every record of the journal."""
    names = [f"o{number}" for number in range(1000)]
    model = OperatorCosts(dict.fromkeys(names, 1e-4))
    rng = np.random.default_rng(2)
    for _ in range(40):
        rows = dict(zip(names, rng.integers(50, 150, 1000).tolist(), strict=True))
        model.update(rows, 0.1 + sum(3e-5 * count for count in rows.values()))
    assert model.group_cost(dict.fromkeys(names, 100.0)).value == pytest.approx(3.0, rel=0.05)
    assert len(json.dumps(model.snapshot())) < 100_000
    costs, errors = model.costs
    assert costs[7] == model.cost("o7").value
    assert errors[7] == pytest.approx(model.cost("o7").error)
