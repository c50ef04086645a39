"""The rates that tables have entries for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.planning.spread import AbsoluteError, Geometric, Steps, TableSize


def test_spreads() -> None:
    (geometric,) = Geometric(0.1, least=0.01, total=0.2).samples([2.0], [1.0])
    assert (geometric[0], geometric[-1]) == (0.0, 2.0)
    # A tenth of the rate, or 0.01 where that is more.
    assert np.all(np.diff(geometric) <= np.maximum(0.1 * geometric[1:], 0.01) * (1 + 1e-9))
    assert geometric.size < 50
    (tenths,) = Steps(0.1).samples([3.0], [1.0])
    assert tenths.size == 11
    assert tenths[-1] == pytest.approx(3.0)
    first, second = AbsoluteError(0.1).samples([1 / 3, 1.0], [0.5, 1.0])
    assert (first.size, second.size) == (4, 21)
    sizes = [samples.size for samples in TableSize(100).samples([1.0, 1.0], [1.0, 2.0])]
    assert math.prod(sizes) <= 100
    assert math.prod(sizes) >= 60


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (lambda: Steps(0.0), "epsilon must lie"),
    ],
)
def test_bad_options(construct: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        construct()  # type: ignore[operator]
