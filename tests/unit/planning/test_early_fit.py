"""The forerunner of FIT."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import NetworkBuilder
from penstock.planning import (
    EarlyFit,
    Exact,
)
from tests.networks import figure1


def test_early_fit_bounds_its_error_over_several_leaves() -> None:
    builder = NetworkBuilder().node("A", 10.0)
    for number in range(3):
        builder.node(f"L{number}").input(f"i{number}", max_rate=5.0).operator(f"a{number}", "A", f"i{number}", cost=0.1)
        builder.operator(f"b{number}", f"L{number}", f"a{number}", cost=0.7).output(f"q{number}", f"b{number}")
    network = builder.build()
    early, exact = EarlyFit(network, error=0.3), Exact(network)
    rng = np.random.default_rng(1)
    for _ in range(100):
        rates = dict(zip(network.inputs, (rng.random(3) * 4).tolist(), strict=True))
        assert early.plan(rates).score >= exact.plan(rates).score - 0.3 - 1e-9


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: EarlyFit(figure1()), "either an absolute error or the size"),
        (lambda: EarlyFit(figure1(), error=-1.0), "must be positive and finite"),
        (lambda: EarlyFit(figure1(), size=0), "size of a table must be positive"),
    ],
)
def test_bad_options(construct: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        construct()  # type: ignore[operator]


@pytest.mark.parametrize("options", [{"error": 0.3}, {"size": 400}])
def test_fragments_are_planned_apart(options: dict[str, float]) -> None:
    """Three networks that share nothing: three tables of two columns, not one of six, and the errors add up to what was asked."""
    builder = NetworkBuilder()
    for part in range(3):
        builder.node(f"N{part}")
        for number in (2 * part, 2 * part + 1):
            builder.input(f"i{number}", max_rate=4.0).operator(f"a{number}", f"N{part}", f"i{number}", cost=0.3 + 0.1 * number)
            builder.output(f"q{number}", f"a{number}")
    network = builder.build()
    early, exact = EarlyFit(network, **options), Exact(network)  # type: ignore[arg-type]
    assert len(early.fragments) == 3
    assert all(len(table.columns) == 2 for table in early.tables.values())
    rng = np.random.default_rng(1)
    for _ in range(50):
        rates = dict(zip(network.inputs, (rng.random(6) * 4).tolist(), strict=True))
        plan, best = early.plan(rates), exact.plan(rates).score
        assert plan.feasible
        assert plan.score >= (best - 0.3 if "error" in options else best * (1 - early.error)) - 1e-9
