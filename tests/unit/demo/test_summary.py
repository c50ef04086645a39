"""The demo's summary of a run."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.demo.summary import ArmRun, summarise
from tests.unit.demo.runs import ARRIVALS, batch


def test_the_delay_of_a_row_is_the_end_of_its_batch_minus_its_arrival() -> None:
    run = ArmRun("b", 10.0, (batch(0, 9.5, 90, 30, 5.0), batch(9.5, 10.0, 10, 10, 0.5)), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    delays = np.concatenate([9.5 - ARRIVALS[:90], 10.0 - ARRIVALS[90:]])
    weights = np.repeat([1 / 3, 1.0], [90, 10])
    assert found.mean_delay_s == pytest.approx(np.average(delays, weights=weights))
    assert found.mean_violation_s == pytest.approx(np.average(np.maximum(0, delays - 2), weights=weights))
    assert found.max_violation_s == 7.5
    assert (found.arrived, found.kept, found.shed, found.queued) == (100, 40, 60, 0)
    assert found.goodput_rows_per_s == 4.0
    assert found.goodput_of_capacity == 0.5


def test_rows_still_queued_count_with_their_age() -> None:
    run = ArmRun("a", 10.0, (batch(0, 6, 50, 50, 1.0),), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    ages = 10.0 - ARRIVALS[50:]
    assert found.queued == 50
    assert found.arrived == found.kept + found.shed + found.queued
    assert found.mean_delay_s == pytest.approx(((6.0 - ARRIVALS[:50]).sum() + ages.sum()) / 100)


def test_of_queued_rows_only_the_share_that_is_kept_counts() -> None:
    shed = ArmRun("b", 10.0, (batch(0, 5, 50, 25, 1.0),), keep=0.0)
    found = summarise(shed, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    assert found.mean_delay_s == pytest.approx((5.0 - ARRIVALS[:50]).mean())


def test_the_start_can_be_left_out() -> None:
    run = ArmRun("b", 10.0, (batch(0, 5, 50, 50, 1.0), batch(5, 10, 50, 10, 1.0)), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0, from_s=5.0)
    assert (found.arrived, found.kept, found.shed, found.queued) == (50, 10, 40, 0)
    assert found.mean_delay_s == pytest.approx((10.0 - ARRIVALS[50:]).mean())


def test_an_arm_without_a_batch_has_a_summary() -> None:
    nothing = summarise(ArmRun("a", 0.001, (), keep=0.0), ARRIVALS[:0], target_s=2.0, capacity_rows_per_s=8.0)
    assert nothing.mean_delay_s == nothing.p99_delay_s == nothing.max_violation_s == 0.0
