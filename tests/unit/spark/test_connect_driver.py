"""The loop in the client of Spark Connect, against a query that is made up."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock import Controller, Decision, Observation
from penstock.decision import ByArrival
from penstock.decision.backfill import Backfill
from penstock.decision.handover import mark_by_arrival, ran_by_batch
from penstock.drop.tables import slot_start_s
from penstock.errors import PenstockError
from penstock.journal import BatchRecord, DecisionRecord, Journal
from penstock.spark.checkpoint import Checkpoint
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


def fill_journal(path: Path, *records: DecisionRecord | BatchRecord) -> None:
    journal = Journal(path, "job")
    journal.append(*records)
    journal.close()


def decide(slot: int, keep: float) -> DecisionRecord:
    return DecisionRecord({"in": (keep,)}, keep, from_slot=slot, controller={"learnt": slot})


def leave_table(tmp_path: Path, *decisions: DecisionRecord) -> None:
    """Leave what a process leaves that wrote the table of these decisions last."""
    gate = build(tmp_path)
    gate.publish(gate.state.restore_slots([(int(d.from_slot or 0), d.gates["in"]) for d in decisions]))


def in_force(driver: ConnectDriver) -> tuple[Any, dict[int, float]]:
    """Return the keep of the gate, and what the journal says by slot."""
    decisions = driver.journal.state.decisions
    return driver.gates["in"].state.ring.current[0], {int(d.from_slot or 0): d.gates["in"][0] for d in decisions if d.gates}


@pytest.mark.parametrize("earlier", [(), (decide(70, 0.25),), (decide(60, 0.75), decide(70, 0.25))])
def test_what_never_reached_its_table_is_taken_back(tmp_path: Path, earlier: tuple[DecisionRecord, ...]) -> None:
    """Its client was killed after it had journaled a decision and before it wrote the table, which Spark went on to read."""
    held, last = earlier[-1].keep if earlier else 1.0, decide(90, 0.5)
    leave_table(tmp_path, *earlier)
    fill_journal(tmp_path / "query", *earlier, last)
    for _ in range(2):  # the second one finds a table that has it
        driver = start(tmp_path, query_after(0))
        at_90 = [decision for decision in driver.journal.state.decisions if decision.from_slot == 90]
        assert at_90 == [last, replace(last, gates={"in": (held,)}, keep=held)], "once, with the memory of the controller"
        assert in_force(driver)[0] == held
        assert driver.core.keep == held
        driver.finish()


def test_a_decision_that_was_dropped_does_not_hide_one_that_never_held(tmp_path: Path) -> None:
    """It repeats what held, and never reached the table either."""
    leave_table(tmp_path, decide(70, 0.25))
    fill_journal(tmp_path / "query", decide(70, 0.25), decide(80, 0.1), decide(80, 0.25), decide(90, 0.5))
    driver = start(tmp_path, query_after(0))
    assert in_force(driver) == (0.25, {70: 0.25, 80: 0.25, 90: 0.25})
    driver.finish()


def test_what_a_lost_table_had_is_not_taken_back(tmp_path: Path) -> None:
    """Batches have ended with it, whether the table is gone or is one that a client has made that never started."""
    batch = BatchRecord(3, {"in": (10, 5)}, end_s=slot_start_s(90) + 1.0)
    fill_journal(tmp_path / "query", decide(90, 0.5), batch)
    for _ in range(2):
        build(tmp_path)
        driver = start(tmp_path, query_after(0))
        assert in_force(driver) == (0.5, {90: 0.5})
        driver.finish()
        leave_table(tmp_path)


@pytest.mark.parametrize("first", ["one", "two"])
@pytest.mark.parametrize("journals", [("one", "two"), ("two",)])
def test_queries_of_one_gate_agree_on_what_is_taken_back(tmp_path: Path, journals: tuple[str, ...], first: str) -> None:
    """Whichever starts first, and whether the killed client had told one of them or both."""
    leave_table(tmp_path, decide(70, 0.25))
    for name in ("one", "two"):
        fill_journal(tmp_path / name, decide(70, 0.25), *([decide(90, 0.5)] if name in journals else []))
    gate, drivers = build(tmp_path), {}
    for name in (first, "two" if first == "one" else "one"):
        drivers[name] = ConnectDriver([gate], ByArrival([gate.state], Most(2.0), label=name))
        drivers[name].open_journal(str(tmp_path / name), None, is_new=False)
    for name in journals:
        assert in_force(drivers[name]) == (0.25, {70: 0.25, 90: 0.25})
    for driver in drivers.values():
        assert in_force(driver)[0] == 0.25
        driver.finish()


def test_a_refused_start_takes_nothing_back(tmp_path: Path) -> None:
    """A batch that was decided by batch is open, and must find its journal as it was."""
    leave_table(tmp_path, decide(70, 0.25))
    fill_journal(tmp_path / "query", decide(70, 0.25), decide(90, 0.5), DecisionRecord({"in": (0.5,)}, 0.5, batch_id=8))
    gate = build(tmp_path)
    driver = ConnectDriver([gate], ByArrival([gate.state], Most(2.0), label="query"))
    driver.look_at_checkpoint = lambda: setattr(driver, "open_batch", 8)
    with pytest.raises(PenstockError, match="was decided by batch"):
        driver.open_journal(str(tmp_path / "query"), None, is_new=False)
    journal = Journal(tmp_path / "query", "job")
    assert len(journal.state.decisions) == 3
    journal.close()


def list_notes(driver: ConnectDriver) -> list[str]:
    return [line for line in driver.journal.state.errors if "ran while nobody listened" in line]


def test_batches_that_ran_without_a_client_are_missing_in_the_ledger(tmp_path: Path) -> None:
    """Some before this run, some in it."""
    driver = restart(tmp_path, mark_by_arrival(first_batch=0), BatchRecord(0, {"in": (10, 10)}), last_committed=3)
    driver.query = query_after(0)
    driver.listen([report(6), report(7), report(9)])
    driver.finish()
    assert list_notes(driver) == [
        "query: batches 1 to 5 ran while nobody listened; missing in the ledger",
        "query: batch 8 ran while nobody listened; missing in the ledger",
    ]
    assert sorted(driver.journal.state.batches) == [0, 6, 7, 9]


@pytest.mark.parametrize("records", [[mark_by_arrival(first_batch=2)], [DecisionRecord({"in": (0.5,)}, 0.5, batch_id=2)]])
def test_of_a_run_that_was_never_counted_all_batches_are_missing(tmp_path: Path, records: list[DecisionRecord]) -> None:
    """Those before it ran without a gate, or the journal does not know of them."""
    driver = restart(tmp_path, *records, last_committed=4)
    driver.query = query_after(0)
    driver.listen([report(5)])
    driver.finish()
    assert list_notes(driver) == ["query: batches 2 to 4 ran while nobody listened; missing in the ledger"]


def open_with_checkpoint(tmp_path: Path, batches: int) -> ConnectDriver:
    """Return a driver that has opened its journal, with a checkpoint in which so many batches are committed."""
    checkpoint = tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            (checkpoint / folder / str(number)).write_text("v1\n{}")
    gate = build(tmp_path)
    driver = ConnectDriver([gate], ByArrival([gate.state], Most(2.0), label="query"), checkpoint=Checkpoint(checkpoint))
    driver.open_journal(str(tmp_path / "query"), None, is_new=False)
    (checkpoint / "metadata").write_text('{"id": "job"}')  # as Spark does when the query starts
    return driver


def attach(driver: ConnectDriver, *reports: str) -> None:
    query: Any = query_after(0)
    query.id, query.recentProgress = "job", [json.loads(each) for each in reports]
    query.lastProgress = query.recentProgress[-1] if reports else None
    driver.attach(query)


def test_a_run_that_dies_before_its_first_report_has_said_where_it_began(tmp_path: Path) -> None:
    """Before Spark has made the checkpoint, it can't be told from one that this process does not see."""
    first = open_with_checkpoint(tmp_path, 0)
    attach(first)
    first.finish()
    assert first.journal.state.decisions[-1] == mark_by_arrival(first_batch=0)
    second = open_with_checkpoint(tmp_path, 3)
    attach(second, report(3))
    second.finish()
    assert list_notes(second) == ["query: batches 0 to 2 ran while nobody listened; missing in the ledger"]
    assert sorted(second.journal.state.batches) == [3]


def test_a_new_query_misses_no_batch_but_those_without_a_report(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "late").mkdir()
    whole, late = open_with_checkpoint(tmp_path / "whole", 0), open_with_checkpoint(tmp_path / "late", 0)
    attach(whole, report(0), report(1))
    attach(late, report(2))
    for driver in (whole, late):
        driver.finish()
    assert list_notes(whole) == []
    assert list_notes(late) == ["query: batches 0 to 1 ran while nobody listened; missing in the ledger"]


def test_what_ran_before_there_was_a_gate_is_not_missing(tmp_path: Path) -> None:
    """Also where the checkpoint can't be seen."""
    (tmp_path / "query").mkdir()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id": "job"}')
    seen, unseen = open_with_checkpoint(tmp_path, 5), start(tmp_path / "unseen", None)
    attach(seen, report(5))
    attach(unseen, report(5))
    for driver in (seen, unseen):
        driver.finish()
        assert list_notes(driver) == []
        assert sorted(driver.journal.state.batches) == [5]


def test_a_report_that_another_one_overtook_is_fetched(tmp_path: Path) -> None:
    """The listener passes on the report of batch 1 while that of batch 0 is still being asked for."""
    driver = open_with_checkpoint(tmp_path, 0)
    driver.report(report(1))
    attach(driver, report(0), report(1))
    driver.finish()
    assert sorted(driver.journal.state.batches) == [0, 1]
    assert list_notes(driver) == []


def test_batches_that_run_again_are_counted_again(tmp_path: Path) -> None:
    """With asynchronous progress tracking, Spark runs batches again that were counted, and they have other rows than before."""
    counted = [BatchRecord(number, {"in": (99, 99)}) for number in range(6)]
    driver = restart(tmp_path, mark_by_arrival(first_batch=0), *counted, last_committed=3)
    driver.query = query_after(0)
    driver.listen([report(4), report(5), report(6)])
    driver.finish()
    offered = {number: batch.gates["in"][0] for number, batch in driver.journal.state.batches.items()}
    assert list_notes(driver) == []
    assert offered == {0: 99, 1: 99, 2: 99, 3: 99, 4: 10, 5: 10, 6: 10}


def test_batches_that_were_counted_and_do_not_run_again_are_not_missing(tmp_path: Path) -> None:
    """With asynchronous progress tracking, commits come late: what was counted may be committed after the checkpoint was read."""
    counted = [BatchRecord(number, {"in": (99, 99)}) for number in range(6)]
    driver = restart(tmp_path, mark_by_arrival(first_batch=0), *counted, last_committed=3)
    driver.query = query_after(0)
    driver.listen([report(7)])
    driver.finish()
    assert list_notes(driver) == ["query: batch 6 ran while nobody listened; missing in the ledger"]


def test_a_run_by_arrival_that_crashed_before_it_said_so_is_marked_by_the_next(tmp_path: Path) -> None:
    """Its slots are in the journal without the mark: a batch that it never ran would count as decided by batch."""
    by_batch, slots = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7), DecisionRecord({"in": (0.5,)}, 0.5, from_slot=70)
    driver = restart(tmp_path, by_batch, slots, last_committed=7, controller=Backfill(Most(2.0)))
    assert mark_by_arrival(first_batch=8) in driver.journal.state.decisions
    assert not ran_by_batch(driver.journal.state, 8)
    driver.finish()


def look_after(driver: ConnectDriver, seconds: float) -> None:
    """Look at a query that nothing was heard of for so long."""
    driver._last_report_s -= seconds
    driver._begun_s -= seconds
    driver._looked_s = 0.0
    driver._watch()


def test_a_batch_that_follows_an_idle_time_is_not_one_that_runs_for_long(tmp_path: Path) -> None:
    """Its time was counted from the report of the last batch on, so the next one sheds."""
    driver = start(tmp_path, query_after(1))
    driver._take_in(report(0))
    assert driver.core.keep == pytest.approx(0.9)
    assert driver.query is not None
    driver.query.status = {"isTriggerActive": False, "isDataAvailable": False}
    look_after(driver, 60.0)
    driver.query.status = {"isTriggerActive": True, "isDataAvailable": True}
    look_after(driver, 0.5)
    assert driver.core.keep == pytest.approx(0.9)
    look_after(driver, 2.0)
    assert driver.core.keep < 0.9, "but it is one in the end"
    driver.finish()


def test_what_spark_says_of_a_query_without_data_is_no_report_of_a_batch(tmp_path: Path) -> None:
    """It has the number of the next batch; three of them were taken for reports that do not come by themselves."""
    driver = start(tmp_path, query_after(1))
    driver._take_in(report(0))
    told = json.loads(report(1))
    idle = {**told, "durationMs": {"latestOffset": 1, "triggerExecution": 1}, "observedMetrics": {}}
    driver.query = SimpleNamespace(lastProgress=idle, recentProgress=[json.loads(report(0)), idle], status=query_after(0).status)
    for _ in range(4):
        look_after(driver, 60.0)
    assert driver.journal.state.errors == []
    driver.query = SimpleNamespace(
        lastProgress=told, recentProgress=[json.loads(report(0)), idle, told], status=query_after(0).status
    )
    look_after(driver, 60.0)
    assert sorted(driver.journal.state.batches) == [0, 1]
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
        look_after(driver, 60.0)  # nothing was heard for long
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
    look_after(fetched, 60.0)
    assert fetched.journal.state.totals() == came.journal.state.totals()
    assert came.journal.state.totals()["in"][0] > 0
    assert not fetched.journal.state.batches[0].recounted
    for driver in (came, fetched):
        driver.finish()


def test_a_batch_that_runs_for_long_is_relieved(tmp_path: Path) -> None:
    driver = start(tmp_path, query_after(1))
    driver._take_in(report(0))
    look_after(driver, 60.0)
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
