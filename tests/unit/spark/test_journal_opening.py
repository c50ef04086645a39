"""The order in which a query's past is read."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from penstock.control import KeepAll
from penstock.decision import AppendLater, BatchPlanned, SlotGate
from penstock.decision.handover import ContinuedByBatch
from penstock.drop.shares import EqualShare
from penstock.journal import DecisionRecord, Journal
from penstock.spark.batch_driver import BatchDriver
from penstock.storage.local_store import LocalStore


def test_the_checkpoint_is_read_while_the_journal_is_held(tmp_path: Path) -> None:
    """A job that had the journal may have run batches until it died: which one is open shows only then."""
    journal = Journal(tmp_path, "job")
    journal.append(DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7))
    journal.close()
    state = SlotGate("in", EqualShare())
    gate: Any = SimpleNamespace(name="in", state=state, publish=mock.Mock(), windows=None)
    core = ContinuedByBatch([state], KeepAll(2.0), slot_gates=[state])
    driver = BatchDriver(mock.Mock(), mock.Mock(), [gate], core, counter=mock.Mock())

    def look() -> None:
        assert LocalStore(tmp_path).is_held()
        driver.open_batch = 8

    driver.look_at_checkpoint = look
    driver.open_journal(str(tmp_path), "job", is_new=False)
    (repeated,) = core.plan_batch(BatchPlanned(8, now_s=10.0, rows={"source": 5}))
    assert isinstance(repeated, AppendLater)
    assert repeated.records == (DecisionRecord({"in": (0.5,)}, 0.5, batch_id=8),)
    driver.finish()
