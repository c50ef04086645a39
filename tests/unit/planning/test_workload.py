"""Which rates are how probable."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.planning import (
    Empirical,
    Exponential,
)


def test_probabilities_of_regions_sum_to_1() -> None:
    rng = np.random.default_rng(1)
    for workload in (Exponential([2.0, 3.0], [8.0, 8.0]), Empirical(rng.random((50, 2)) * 10, [8.0, 8.0])):
        cells = [workload.mass([x, y], [x + 4, y + 4]) for x in (0.0, 4.0) for y in (0.0, 4.0)]
        assert sum(cells) == pytest.approx(1.0)


def test_a_trace_in_another_order_and_too_few_means() -> None:
    rates = {"i2": np.array([8.0]), "i1": np.array([1.0])}
    workload = Empirical.from_trace(rates, {"i1": 10.0, "i2": 10.0})
    assert workload.mass([0.0, 5.0], [5.0, 10.0]) == 1.0
    with pytest.raises(PenstockError, match="differ in input 'i3'"):
        Empirical.from_trace({"i1": np.ones(1), "i3": np.ones(1)}, {"i1": 1.0})
    with pytest.raises(PenstockError, match="a mean for each of 2 inputs, got 1"):
        Exponential([1.0], [1.0, 1.0])


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: Exponential([0.0], [1.0]), "must be positive"),
        (lambda: Empirical(np.zeros((0, 2)), [1.0, 1.0]), "needs samples"),
        (lambda: Empirical(np.array([[-1.0]]), [1.0]), "finite and not negative"),
        (lambda: Empirical.from_trace({"a": np.ones(2), "b": np.ones(3)}, {"a": 1.0, "b": 1.0}), "differ in length"),
    ],
)
def test_bad_options(construct: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        construct()  # type: ignore[operator]
