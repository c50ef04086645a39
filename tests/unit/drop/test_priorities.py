"""Priority classes and how a keep probability is shared among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.drop.priorities import Priorities, share_keep, share_out
from penstock.errors import PenstockError


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_bad_weights_are_named(weight: float) -> None:
    with pytest.raises(PenstockError, match="the weight of class 'gold' must be zero or positive"):
        Priorities("tier", {"gold": weight, "bronze": 1})


@pytest.mark.parametrize("weight", ["10", None, True])
def test_weights_are_numbers(weight: Any) -> None:
    with pytest.raises(PenstockError, match="the weight of class 'gold' must be a number"):
        Priorities("tier", {"gold": weight})


@pytest.mark.parametrize("weights", [{}, {None: 1.0}])
def test_at_least_one_class(weights: dict[Any, float]) -> None:
    with pytest.raises(PenstockError, match="at least one class"):
        Priorities("tier", weights)


def test_all_zero() -> None:
    with pytest.raises(PenstockError, match="weight above zero"):
        Priorities("tier", {"a": 0, "b": 0})


def test_other_classes_have_the_least_weight_unless_given() -> None:
    assert Priorities("tier", {"a": 5, "b": 2}).weights == (5, 2, 2)
    assert Priorities("tier", {"a": 5, None: 9}).weights == (5, 9)


@given(
    keep=st.floats(0, 1),
    classes=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6)), min_size=1, max_size=6),
)
def test_laws_of_sharing(keep: float, classes: list[tuple[float, int]]) -> None:
    weights, offered = [w for w, _ in classes], [n for _, n in classes]
    assume(any(w > 1e-6 for w in weights) and sum(offered) > 0)
    assume(all(w == 0 or w > 1e-6 for w in weights))
    keeps = share_keep(keep, weights, offered)
    assert ((keeps >= 0) & (keeps <= 1)).all()
    # In all, the share asked for is kept; of classes without rows nothing is known.
    assert np.dot(keeps, offered) == pytest.approx(keep * sum(offered), rel=1e-9, abs=1e-6)
    # A heavier class is never kept less than a lighter one.
    order = np.argsort(weights)
    assert (np.diff(keeps[order])[np.diff(np.array(weights)[order]) > 0] >= -1e-9).all()
    # Below the cap, keeps are in proportion to the weights.
    free = [(k, w) for k, w in zip(keeps, weights, strict=True) if 0 < k < 1 and w > 0]
    ratios = [k / w for k, w in free]
    assert not ratios or max(ratios) == pytest.approx(min(ratios), rel=1e-6)


def test_unknown_counts_share_as_if_equal() -> None:
    assert share_keep(0.5, [3, 1], [0, 0]).tolist() == [0.75, 0.25]


@given(
    st.floats(0.01, 1.0),
    st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.integers(0, 1000)), min_size=1, max_size=5),
    st.floats(0.0, 0.5),
)
def test_classes_share_the_work_by_weight_cost_and_floor(
    keep: float, parts: list[tuple[float, float, int]], floor: float
) -> None:
    weights = {f"c{number}": weight for number, (weight, _, _) in enumerate(parts)}
    costs = {f"c{number}": cost for number, (_, cost, _) in enumerate(parts)}
    classes = Priorities("tier", weights, costs=costs, floor=floor)
    offered = np.array([*(rows for *_, rows in parts), 0.0])
    shares = share_out(keep, classes, offered)
    work = offered * np.array(classes.costs)
    assert np.all(shares <= 1.0 + 1e-12)
    assert np.all(shares >= min(keep, floor) - 1e-12)
    if work.sum() > 0:
        assert shares @ work == pytest.approx(keep * work.sum(), rel=1e-9)


def test_bad_classes_are_refused() -> None:
    for options, message in (
        ({"floor": 1.0}, "floor must lie in"),
        ({"costs": {"a": 0.0}}, "the cost of class 'a' must be positive"),
        ({"costs": {"b": 1.0}}, "costs name class 'b', which has no weight"),
    ):
        with pytest.raises(PenstockError, match=message):
            Priorities("tier", {"a": 1.0}, **options)  # type: ignore[arg-type]
