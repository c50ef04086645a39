"""A backfill keeps everything, and what was known before it is known after it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from penstock import MicroBatch, Observation, PenstockError, Shedder
from penstock.control.base import GateCount
from penstock.decision.backfill import Backfill


def learn(controller: MicroBatch) -> MicroBatch:
    for number in range(6):
        took_s = 5.0 * (number + 1)
        counts = {"in": GateCount(10_000, 10_000)}
        controller.update(Observation(batch_id=number, start_s=10.0 * number, end_s=10.0 * number + took_s, gates=counts))
    return controller


def test_it_keeps_everything_whatever_the_batches_take() -> None:
    backfill = Backfill(MicroBatch(1.0))
    assert backfill.start().keep == 1.0
    observations = [Observation(batch_id=number, start_s=900.0 * number, end_s=900.0 * (number + 1)) for number in range(5)]
    assert {backfill.update(observation).keep for observation in observations} == {1.0}


def test_it_carries_the_memory_of_the_controller() -> None:
    known = learn(MicroBatch(1.0)).snapshot()
    assert known != MicroBatch(1.0).snapshot()
    backfill = Backfill(MicroBatch(1.0)).restore(known)
    backfill.update(Observation(batch_id=6, start_s=100.0, end_s=1_000.0))
    assert MicroBatch(1.0).restore(backfill.snapshot()).snapshot() == known


def test_the_target_may_change() -> None:
    backfill = Backfill(MicroBatch(1.0))
    backfill.change_target(5.0)
    assert backfill.delay_target_s == 5.0


def test_another_word_is_refused() -> None:
    with pytest.raises(PenstockError, match=r"^backfill must be 'keep' or 'shed', got 'drop'$"):
        Shedder("2s", backfill="drop")  # type: ignore[arg-type]
