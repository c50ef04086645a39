"""Each node for itself."""

from __future__ import annotations

from pathlib import Path

from penstock.coordination import (
    Follower,
    Local,
)
from tests.unit.coordination.engine import UNIT, Engine


def test_each_for_itself_does_work_in_vain(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Local)
    flow = engine.settle()
    assert flow["a1"] > 0.75 / UNIT, "A's own optimum is all of i1"
    together = Engine(tmp_path / "together", Follower, "exact").settle()
    assert together["b1"] + together["b2"] > 1.3 * (flow["b1"] + flow["b2"])


def test_what_is_never_let_in_is_still_measured(tmp_path: Path) -> None:
    engine = Engine(tmp_path, Local)
    flow = engine.settle()
    assert 0 < flow["a2"] < 0.02 / UNIT, "A alone would drop all of i2"
