"""Cycles and headroom from the times of batches."""

from __future__ import annotations

import pytest

from penstock.coordination.batch_times import BatchTimes
from tests.unit.coordination.engine import PACE


def test_headroom_falls_with_long_batches_and_recovers() -> None:
    times = BatchTimes(PACE)
    now = 0.0

    def run_batches(length_s: float, count: int) -> None:
        nonlocal now
        for _ in range(count):
            times.begin("a", now)
            times.end("a", now + length_s)
            now += max(PACE, length_s)

    run_batches(PACE, 5)
    assert times.headroom == 1.0
    run_batches(2 * PACE, 3)
    assert 0.9 < times.headroom < 1.0
    run_batches(2 * PACE, 50)
    assert times.headroom == 0.9
    assert times.cycle_s("a") == pytest.approx(2 * PACE, rel=0.01)
    run_batches(0.5 * PACE, 50)
    assert times.headroom == 1.0
    assert times.cycle_s("a") == pytest.approx(PACE, rel=0.01)
    assert times.cycle_s("another") == PACE
