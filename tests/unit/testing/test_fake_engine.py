"""The fake engine that users test their controllers with."""

from __future__ import annotations

import pytest

from penstock.control import KeepAll, MicroBatch
from penstock.decision import ByArrival, ByBatch, QueryCore, SlotGate
from penstock.drop.shares import EqualShare
from penstock.testing import FakeEngine
from tests.unit.decision.harness import Scripted


def engine(kind: type[QueryCore] = ByBatch, *script: float | None, **options: float) -> FakeEngine:
    return FakeEngine(lambda: kind([SlotGate("in", EqualShare())], Scripted(*script), is_warm=True), **options)


def test_a_batch_takes_what_its_rows_cost() -> None:
    fake = engine(ByBatch, 0.5, cost_s=0.01, overhead_s=0.5)
    first = fake.run_batch(100)
    assert (first.batch_id, first.offered, first.kept) == (0, 100, 50)
    assert first.end_s - first.start_s == pytest.approx(0.5 + 0.01 * 50)
    assert fake.clock_s == first.end_s
    assert fake.run_batch(0).end_s == pytest.approx(first.end_s + 0.5)


def test_batches_follow_one_another_and_the_journal_knows_them() -> None:
    fake = engine(ByBatch, 0.5, 0.25)
    batches = [fake.run_batch(100) for _ in range(3)]
    assert [batch.batch_id for batch in batches] == [0, 1, 2]
    assert [batch.kept for batch in batches] == [50, 25, 25]
    assert {number: record.gates["in"] for number, record in fake.journal.batches.items()} == {
        0: (100, 50),
        1: (100, 25),
        2: (100, 25),
    }
    assert all(record.end_s is not None for record in fake.journal.batches.values())


def test_a_batch_that_is_not_committed_runs_again() -> None:
    fake = engine(ByBatch, 0.5, 0.25)
    lost = fake.run_batch(100, is_committed=False)
    assert fake.journal.batches == {}
    fake.crash()
    again = fake.run_batch(100)
    assert (again.batch_id, again.kept) == (lost.batch_id, lost.kept)
    assert again.start_s == lost.end_s, "the time is gone"


def test_a_crash_loses_all_but_the_journal() -> None:
    fake = engine(ByBatch, 0.5)
    fake.run_batch(100)
    before, journal = fake.core, fake.journal
    fake.crash()
    assert fake.core is not before
    assert fake.journal is journal
    assert fake.core.keep == 0.5


def test_a_full_disk_is_a_warning_and_the_job_goes_on() -> None:
    for kind in (ByBatch, ByArrival):
        fake = engine(kind, 0.5, 0.5)
        fake.is_disk_full = True
        assert fake.run_batch(100).kept == 100
        assert fake.warnings
        assert fake.journal.batches == {}


def test_by_arrival_a_decision_holds_for_the_next_batch() -> None:
    fake = engine(ByArrival, 0.5, 0.25)
    assert [fake.run_batch(100).kept for _ in range(3)] == [100, 50, 25]


def test_it_tells_a_controller_that_holds_the_delay_from_one_that_does_not() -> None:
    def longest(controller: type[KeepAll | MicroBatch]) -> float:
        fake = FakeEngine(lambda: ByBatch([SlotGate("in", EqualShare())], controller(2.0)), cost_s=0.001)
        return max(batch.end_s - batch.start_s for batch in [fake.run_batch(6_000) for _ in range(20)][5:])

    assert longest(MicroBatch) < 2.0 < longest(KeepAll)
