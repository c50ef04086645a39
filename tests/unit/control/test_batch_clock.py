"""When a batch begins, and how old rows are at best."""

from __future__ import annotations

import pytest

from penstock.control import GateCount, Observation
from penstock.control.batch_clock import BatchClock


def watch(clock: BatchClock, ages_s: list[float], *, lead_s: float = 0.1, is_capped: bool = False, first: int = 0) -> BatchClock:
    """Batches of a second, whose rows have these mean ages when they start."""
    for number, age_s in enumerate(ages_s, start=first):
        clock.update(
            Observation(
                number,
                100.0 + number,
                101.0 + number,
                {"in": GateCount(10, 10)},
                mean_arrival_s=100.0 + number - age_s,
                waited_s=1.0 + lead_s,
                taken_s=101.0 + number + lead_s,
            ),
            is_capped=is_capped,
        )
    return clock


def test_rows_that_only_waited_for_the_engine_have_no_latency() -> None:
    clock = watch(BatchClock(), [0.5] * 10)
    assert clock.lead_s == pytest.approx(0.1)
    assert clock.latency_s == pytest.approx(0.0, abs=1e-9)


def test_older_rows_do() -> None:
    assert watch(BatchClock(), [1.7] * 10).latency_s == pytest.approx(1.2)


def test_one_late_batch_changes_nothing() -> None:
    """The least of the last batches counts, so neither a stall nor a backlog is taken for a long way."""
    clock = watch(BatchClock(), [0.5] * 6)
    assert watch(clock, [9.0, 30.0, 3.0], first=6).latency_s == pytest.approx(0.0, abs=1e-9)


def test_a_batch_begins_as_long_before_its_decision_as_it_usually_does() -> None:
    clock = BatchClock()
    for number, lead_s in enumerate((0.05, 0.1, 0.12, 0.11, 2.0)):
        watch(clock, [0.5], lead_s=lead_s, first=number)
    assert clock.lead_s == pytest.approx(0.11)


def test_behind_a_cap_rows_are_old_for_another_reason() -> None:
    assert watch(BatchClock(), [5.0] * 10, is_capped=True).latency_s == 0.0


def test_it_takes_several_batches_to_believe_it() -> None:
    assert watch(BatchClock(), [5.0] * 4).latency_s == 0.0, "the first has no wait to compare with"
    assert watch(BatchClock(), [5.0] * 5).latency_s == pytest.approx(4.5)


def test_a_clock_that_jumps_is_not_believed() -> None:
    clock = watch(BatchClock(), [0.5] * 8)
    jumped = Observation(9, 5_000.0, 4_000.0, {"in": GateCount(10, 10)}, mean_arrival_s=0.0, waited_s=1.0, taken_s=4_000.0)
    clock.update(jumped, is_capped=False)
    assert clock.latency_s == pytest.approx(0.0, abs=1e-9)


def test_a_batch_begins_before_it_is_decided_on() -> None:
    clock = watch(BatchClock(), [0.5] * 4, lead_s=0.25)
    assert clock.begin_s(Observation(9, 1.0, 2.0, taken_s=10.0)) == pytest.approx(9.75)
    assert clock.waited_s(1.25) == pytest.approx(1.0)
    assert clock.waited_s(0.0) == 0.0, "an idle engine"
