"""Managers that need no plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordination import (
    Fixed,
)
from tests.unit.coordination.engine import UNIT, Engine


def test_a_fixed_share_is_kept_whatever_comes(tmp_path: Path) -> None:
    engine = Engine(tmp_path, lambda network, node: Fixed(network, node, {"i1": 0.25}))
    flow = engine.settle(6)
    assert flow["a1"] == pytest.approx(0.25 / UNIT, rel=0.01)
    assert flow["a2"] == pytest.approx(1 / UNIT, rel=0.01)
