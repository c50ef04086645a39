"""The loop in the client of Spark Connect, against a query that is made up."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from penstock import Controller, Decision, Observation
from penstock.decision import ByArrival
from penstock.decision.backfill import Backfill
from penstock.decision.handover import mark_by_arrival, ran_by_batch
from penstock.errors import PenstockError
from penstock.journal import BatchRecord, DecisionRecord, Journal
from penstock.spark.connect.connect_driver import ConnectDriver
from penstock.spark.connect.listener import add_listener
from tests.unit.spark.test_pipelines import build, report


class Most(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.9)


def start(tmp_path: Path, query: Any) -> ConnectDriver:
    gate = build(tmp_path)
    driver = ConnectDriver([gate], ByArrival([gate.state], Most(2.0), label="query"))
    driver.open_journal(str(tmp_path / "query"), None, is_new=False)
    driver.query = query
    return driver


def restart(
    tmp_path: Path, *records: DecisionRecord | BatchRecord, last_committed: int, controller: Controller | None = None
) -> ConnectDriver:
    """Start a query whose checkpoint is there, after a journal with these records."""
    journal = Journal(tmp_path / "query", "job")
    journal.append(*records)
    journal.close()
    gate = build(tmp_path)
    driver = ConnectDriver([gate], ByArrival([gate.state], controller or Most(2.0), label="query"))

    def look() -> None:
        driver.first_batch, driver.last_committed, driver.last_planned_s = last_committed + 1, last_committed, 1_000.0

    driver.look_at_checkpoint = look
    driver.open_journal(str(tmp_path / "query"), "job", is_new=False)
    return driver


def test_a_backfill_says_that_it_ran_by_arrival_before_it_decides(tmp_path: Path) -> None:
    """What it keeps looks like a run by arrival. Without a mark of its own, batches from here on counted as decided by batch."""
    slots, by_batch = DecisionRecord({"in": (0.5,)}, 0.5, from_slot=70), DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7)
    driver = restart(tmp_path, slots, by_batch, last_committed=7, controller=Backfill(Most(2.0)))
    assert driver.journal.state.decisions[-1] == mark_by_arrival(first_batch=8)
    assert driver.gates["in"].state.ring.current == (1.0,), "it decided too"
    assert not ran_by_batch(driver.journal.state, 8)
    driver.finish()


def test_of_batches_before_this_run_no_report_is_missed(tmp_path: Path) -> None:
    """They were counted at the start, or it was said why not."""
    driver = restart(tmp_path, mark_by_arrival(first_batch=0), BatchRecord(0, {"in": (10, 10)}), last_committed=3)
    driver.query = query_after(0)
    with mock.patch.object(driver, "_recover") as recover:
        driver.listen([report(6)])
        driver.finish()
    assert [call.args for call in recover.call_args_list] == [(4,), (5,)]
    assert sorted(driver.journal.state.batches) == [0, 6]


def test_batches_that_run_again_are_counted_again(tmp_path: Path) -> None:
    """With asynchronous progress tracking, Spark runs batches again that were counted, and they have other rows than before."""
    counted = [BatchRecord(number, {"in": (99, 99)}) for number in range(6)]
    driver = restart(tmp_path, mark_by_arrival(first_batch=0), *counted, last_committed=3)
    driver.query = query_after(0)
    driver.listen([report(4), report(5), report(6)])
    driver.finish()
    offered = {number: batch.gates["in"][0] for number, batch in driver.journal.state.batches.items()}
    assert offered == {0: 99, 1: 99, 2: 99, 3: 99, 4: 10, 5: 10, 6: 10}


def test_a_run_by_arrival_that_crashed_before_it_said_so_is_marked_by_the_next(tmp_path: Path) -> None:
    """Its slots are in the journal without the mark: a batch that it never ran would count as decided by batch."""
    by_batch, slots = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7), DecisionRecord({"in": (0.5,)}, 0.5, from_slot=70)
    driver = restart(tmp_path, by_batch, slots, last_committed=7, controller=Backfill(Most(2.0)))
    assert mark_by_arrival(first_batch=8) in driver.journal.state.decisions
    assert not ran_by_batch(driver.journal.state, 8)
    driver.finish()


def query_after(batches: int) -> Any:
    done = [json.loads(report(number)) for number in range(batches)]
    status = {"isTriggerActive": True, "isDataAvailable": True}
    return SimpleNamespace(lastProgress=done[-1] if done else None, recentProgress=done, status=status, runId="r1")


def test_reports_that_never_come_are_fetched_and_shed_nothing(tmp_path: Path) -> None:
    """A broken connection takes the listener away; batches end as ever, so there is no reason to keep less."""
    driver = start(tmp_path, query_after(0))
    for batches in range(1, 6):
        driver.query = query_after(batches)
        driver._last_report_s = time.time() - 60.0  # nothing was heard for long
        driver._watch()
        assert sorted(driver.journal.state.batches) == list(range(batches))
        assert driver.core.keep == pytest.approx(0.9)
    said = [line for line in driver.journal.state.errors if "no longer come by themselves" in line]
    assert len(said) == 1
    driver.finish()


def test_a_report_that_is_fetched_counts_as_one_that_came(tmp_path: Path) -> None:
    """Spark gives its observations as rows with a schema then, and no number of rows; they were counted as none."""

    def as_fetched(number: int) -> dict[str, Any]:
        told = json.loads(report(number))
        observed = {
            name: {"values": list(row.values()), "schema": {"type": "struct", "fields": [{"name": key} for key in row]}}
            for name, row in told["observedMetrics"].items()
        }
        offsets = {"startOffset": number, "endOffset": number + 1, "numInputRows": 10}
        return {**told, "observedMetrics": observed, "numInputRows": None, "sources": [offsets]}

    (tmp_path / "came").mkdir()
    (tmp_path / "fetched").mkdir()
    came, fetched = start(tmp_path / "came", query_after(1)), start(tmp_path / "fetched", query_after(0))
    came._take_in(report(0))
    fetched.query = SimpleNamespace(lastProgress=as_fetched(0), recentProgress=[as_fetched(0)])
    fetched._last_report_s = time.time() - 60.0
    fetched._watch()
    assert fetched.journal.state.totals() == came.journal.state.totals()
    assert came.journal.state.totals()["in"][0] > 0
    assert not fetched.journal.state.batches[0].recounted
    for driver in (came, fetched):
        driver.finish()


def test_a_batch_that_runs_for_long_is_relieved(tmp_path: Path) -> None:
    driver = start(tmp_path, query_after(1))
    driver._take_in(report(0))
    driver._last_report_s = time.time() - 60.0
    driver._watch()
    assert driver.core.keep < 0.01
    driver.finish()


def test_a_listener_that_spark_does_not_take_is_an_error() -> None:
    def refuse(_: Any) -> None:
        warnings.warn("Failed to add the listener because of exception: gone\nThe listener is not added, please", stacklevel=1)

    def complain(_: Any) -> None:
        warnings.warn("something else", stacklevel=1)

    listener: Any = None
    session: Any = SimpleNamespace(streams=SimpleNamespace(addListener=refuse))
    with pytest.raises(PenstockError, match=r"sends no reports, so nothing can be controlled: Failed to add .* gone$"):
        add_listener(session, listener)
    session.streams.addListener = complain
    with pytest.warns(UserWarning, match="something else"):
        add_listener(session, listener)
