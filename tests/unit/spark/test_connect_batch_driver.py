"""The loop in the client that decides by batch, against a checkpoint and reports that are made up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from penstock import Controller, Decision, Observation
from penstock.control.base import AgeRule
from penstock.decision.handover import ContinuedByBatch, mark_by_arrival
from penstock.errors import JournalError, PenstockError
from penstock.journal import DecisionRecord, Journal, read_journal
from penstock.spark.checkpoint import find_open_batch
from penstock.spark.connect.batch_lookup import create_once, file_of, find_tables, read_file
from penstock.spark.connect.batch_tables import BatchTables, to_fields
from penstock.spark.connect.connect_batch_driver import LATE, ConnectBatchDriver
from penstock.spark.connect.connect_driver import ConnectDriver
from penstock.spark.connect.connect_gate import ConnectGate
from tests.unit.spark.test_connect_driver import Most
from tests.unit.spark.test_pipelines import build

ROWS = 100


class InTurn(Controller):
    """Keeps a share that tells which batch it is for, and remembers what it saw."""

    def __init__(self, delay_target_s: float) -> None:
        super().__init__(delay_target_s)
        self.seen: list[Observation] = []

    def update(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return Decision(keep_of(observation.batch_id + 1))


def keep_of(batch_id: int) -> float:
    return 0.5 + batch_id / 64.0


class Query:
    id, runId, isActive = "job", "r1", True  # noqa: N815 - Spark's name

    def __init__(self, reports: list[dict[str, Any]]) -> None:
        self.recentProgress = reports

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        return self.recentProgress[-1] if self.recentProgress else None


class Engine:
    """Spark, as far as the driver sees it: offsets and commits in a checkpoint, reports, and workers that ask for tables."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoint = root / "checkpoint"
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (self.checkpoint / "metadata").write_text('{"id": "job"}')
        self.reports: list[dict[str, Any]] = []

    def plan(self, batch_id: int, rows: int = ROWS) -> None:
        path = self.checkpoint / "offsets" / str(batch_id)
        whole = path.with_name(f".{batch_id}.tmp")
        whole.write_text(f'v1\n{{"batchTimestampMs":0}}\n{{"n":{(batch_id + 1) * rows},"t0":0.0}}')
        whole.rename(path)

    def ask(self) -> float:
        """Return the keep that the running batch gets, as a worker finds it."""
        tables = find_tables(str(self.checkpoint / "offsets"), str(self.root / "shared/tables" / f"{b'query'.hex()}.query"))
        assert tables is not None
        return float(tables["in"][5][-1] / 2.0**53)

    def report(self, batch_id: int, **kept: Any) -> str:
        counts = {
            "penstock offered 'in'": {"rows": ROWS, "older": 0},
            "penstock kept 'in'": {"rows": 60, "since_base_us": 0.0, **kept},
        }
        source = {"description": "Replay", "startOffset": {"n": 0}, "endOffset": {"n": 1}, "numInputRows": ROWS}
        report = {
            "id": "job",
            "runId": "r1",
            "name": "query",
            "batchId": batch_id,
            "observedMetrics": counts,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "durationMs": {"addBatch": 900, "triggerExecution": 1000},
            "sources": [source],
        }
        self.reports.append(report)
        return json.dumps(report)

    def commit(self, batch_id: int) -> None:
        (self.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")

    def start(self, controller: Controller | None = None) -> ConnectBatchDriver:
        gate = build(self.root / "shared")
        core = ContinuedByBatch([gate.state], controller or InTurn(2.0), label="query", slot_gates=[gate.state])
        driver = ConnectBatchDriver([gate], core, str(self.checkpoint))
        gate.set_how(by_arrival=False)
        driver.open_journal(str(self.root / "shared" / "query"), "job", is_new=False)
        driver.begin()
        driver.query = Query(self.reports)  # type: ignore[assignment]
        return driver

    def run(self, driver: ConnectBatchDriver, batches: range) -> list[float]:
        """Run batches one after the other; return the keep of each."""
        keeps = []
        for batch_id in batches:
            self.plan(batch_id)
            keeps.append(self.ask())
            driver.report(self.report(batch_id))
            self.commit(batch_id)
        return keeps


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_each_batch_gets_the_table_that_was_decided_for_it(engine: Engine) -> None:
    controller = InTurn(2.0)
    driver = engine.start(controller)
    assert engine.run(driver, range(5)) == [keep_of(number) for number in range(5)]
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert {number: record.gates["in"] for number, record in state.batches.items()} == dict.fromkeys(range(5), (ROWS, 60))
    assert [record.keep for record in state.batches.values()] == [keep_of(number) for number in range(5)]
    assert [observation.upcoming_rows for observation in driver.core.controller.seen] == [ROWS] * 5, "sizes are known"
    assert state.errors == []


def test_a_batch_that_is_replayed_gets_the_same_table(engine: Engine) -> None:
    driver = engine.start()
    keeps = engine.run(driver, range(3))
    engine.plan(3)
    keeps.append(engine.ask())
    driver.finish()  # the job dies in batch 3
    again = engine.start()
    assert engine.ask() == keeps[3]
    again.report(engine.report(3))
    engine.commit(3)
    assert engine.run(again, range(4, 6)) == [keep_of(4), keep_of(5)]
    again.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert sorted(state.batches) == list(range(6))
    assert state.errors == []


def test_without_its_file_a_replay_takes_the_journal(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(3))
    engine.plan(3)
    keep = engine.ask()
    driver.finish()
    for path in (engine.root / "shared/tables").glob("*.query/[0-9]*.json"):
        path.unlink()
    again = engine.start()
    assert engine.ask() == keep
    again.finish()


def test_a_client_that_dies_leaves_the_last_table_and_journals_it_later(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = engine.start()
    engine.run(driver, range(3))
    driver.finish()
    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.connect.batch_lookup.PATIENCE_S", 0.05)
        patch.setattr("penstock.spark.connect.batch_lookup.IMPATIENCE_S", 0.05)
        for batch_id in range(3, 6):
            engine.plan(batch_id)
            assert engine.ask() == keep_of(2)
            if batch_id < 5:
                engine.commit(batch_id)
    again = engine.start()
    assert engine.ask() == keep_of(2), "batch 5 was begun"
    again.report(engine.report(5))
    engine.commit(5)
    assert engine.run(again, range(6, 8)) == [keep_of(6), keep_of(7)]
    again.finish()
    state = read_journal(engine.root / "shared" / "query")
    decided = {number: decision.keep for number in range(8) if (decision := state.decision_for(number)) is not None}
    assert decided == {0: keep_of(0), 1: keep_of(1), **dict.fromkeys(range(2, 6), keep_of(2)), 6: keep_of(6), 7: keep_of(7)}
    assert sorted(state.batches) == [0, 1, 2, 5, 6, 7]
    assert [line for line in state.errors if "batches 3 to 4 ran while nobody listened" in line]
    assert [line for line in state.errors if LATE in line]


def list_notes(engine: Engine) -> list[str]:
    state = read_journal(engine.root / "shared" / "query")
    return [line for line in state.errors if "ran while nobody listened" in line]


def test_batches_before_the_first_count_are_missing_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client dies in the first batch that it has decided; what ran without a gate before is not missing."""
    for batch_id in range(2):
        engine.plan(batch_id)
        engine.commit(batch_id)
    driver = engine.start()
    engine.plan(2)
    engine.ask()
    driver.finish()
    engine.commit(2)
    monkeypatch.setattr("penstock.spark.connect.batch_lookup.PATIENCE_S", 0.05)
    engine.plan(3)
    engine.ask()
    engine.commit(3)
    again = engine.start()
    engine.run(again, range(4, 6))
    again.finish()
    assert sorted(read_journal(engine.root / "shared" / "query").batches) == [4, 5]
    assert list_notes(engine) == ["query: batches 2 to 3 ran while nobody listened; missing in the ledger"]


def test_a_first_batch_without_a_report_is_missing(engine: Engine) -> None:
    """Whatever the journal has of it: this run has planned it."""
    driver = engine.start()
    driver.query = None  # nobody to fetch it from
    with mock.patch.object(Journal, "append", side_effect=JournalError("the disk is full")):
        engine.plan(0)
        engine.ask()
    engine.plan(1)
    engine.ask()
    driver.report(engine.report(1))
    driver.finish()
    assert sorted(read_journal(engine.root / "shared" / "query").batches) == [1]
    assert list_notes(engine) == ["query: batch 0 ran while nobody listened; missing in the ledger"]


def test_a_report_that_another_one_overtook_is_fetched(engine: Engine) -> None:
    """The listener passes on the report of batch 1 while that of batch 0 is still being asked for."""
    driver = engine.start()
    query, driver.query = driver.query, None  # it has not started, as far as this process knows
    for batch_id in range(2):
        engine.plan(batch_id)
        engine.ask()
        engine.report(batch_id)
    driver.query = query
    driver.report(json.dumps(engine.reports[1]))
    driver.finish()
    assert sorted(read_journal(engine.root / "shared" / "query").batches) == [0, 1]
    assert list_notes(engine) == []


def test_a_worker_that_was_quicker_is_believed(engine: Engine) -> None:
    """The journal has the client's decision already; what the worker has put in force is written behind it."""
    driver = engine.start()
    engine.run(driver, range(2))
    offer = BatchTables.offer

    def lose(tables: BatchTables, batch_id: int, *arguments: Any) -> bool:
        path = file_of(str(tables._directory), batch_id)
        create_once(path, {**(read_file(file_of(str(tables._directory), 1)) or {}), "is_stand_in": True})
        return offer(tables, batch_id, *arguments)

    with mock.patch.object(BatchTables, "offer", lose):
        engine.plan(2)
        assert engine.ask() == keep_of(1)
        wait_for(lambda: any(LATE in line for line in driver.journal.state.errors))
    driver.report(engine.report(2))
    engine.commit(2)
    assert engine.run(driver, range(3, 5)) == [keep_of(3), keep_of(4)]
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert [state.decision_for(number).keep for number in range(5)] == [keep_of(n) for n in (0, 1, 1, 3, 4)]  # type: ignore[union-attr]
    assert state.batches[2].keep == keep_of(1)


def test_a_journal_that_fails_leaves_the_last_table_and_nobody_waits(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    with mock.patch.object(Journal, "append", side_effect=JournalError("the disk is full")):
        engine.plan(2)
        begin_s = time.monotonic()
        assert engine.ask() == keep_of(1)
        assert time.monotonic() - begin_s < 1.5, "before the worker lost patience"
    driver.report(engine.report(2))
    engine.commit(2)
    assert engine.run(driver, range(3, 5)) == [keep_of(3), keep_of(4)]
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert [state.decision_for(number).keep for number in range(5)] == [keep_of(n) for n in (0, 1, 1, 3, 4)]  # type: ignore[union-attr]


def test_reports_that_do_not_come_are_fetched(engine: Engine) -> None:
    """A broken connection takes the listener away; a decision rests on what the batch before has shown."""
    controller = InTurn(2.0)
    driver = engine.start(controller)
    for batch_id in range(4):
        engine.plan(batch_id)
        assert engine.ask() == keep_of(batch_id)
        engine.report(batch_id)
        engine.commit(batch_id)
    driver.finish()
    assert sorted(read_journal(engine.root / "shared" / "query").batches) == [0, 1, 2]


def test_a_report_that_comes_after_the_next_decision_counts_with_the_keep_it_had(engine: Engine) -> None:
    driver = engine.start()
    driver.query = None  # nobody to fetch it from, as before start() has returned
    for batch_id in range(2):
        engine.plan(batch_id)
        engine.ask()
    driver.report(engine.report(0))
    driver.report(engine.report(1))
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert state.batches[0].keep == state.decision_for(0).keep  # type: ignore[union-attr]
    assert state.batches[1].keep == state.decision_for(1).keep  # type: ignore[union-attr]


def test_expired_rows_and_those_from_the_future_are_counted(engine: Engine) -> None:
    class Fresh(Controller):
        def update(self, observation: Observation) -> Decision:
            return Decision(0.5, age=AgeRule(after_s=observation.end_s, fresh=0.5))

    driver = engine.start(Fresh(2.0))
    engine.plan(0)
    engine.ask()
    told = json.loads(engine.report(0))
    told["observedMetrics"] = {
        "penstock offered 'in'": {"rows": 100, "older": 40, "older_since_base_us": -40e6},
        "penstock kept 'in'": {"rows": 30, "missing": 2, "since_base_us": 28e6, "future": 1, "older": 0},
    }
    driver.report(json.dumps(told))
    driver.finish()
    record = read_journal(engine.root / "shared" / "query").batches[0]
    assert record.gates["in"] == (100, 30)
    assert record.expired == {"in": 40}
    assert record.from_future == 1
    gate: Any = driver.gates["in"]
    assert record.mean_arrival_s == pytest.approx(gate._by_batch.base_us / 1e6 + 1.0)


def test_a_batch_by_arrival_is_replayed_with_its_slots(engine: Engine) -> None:
    slots = DecisionRecord({"in": (0.25,)}, 0.25, from_slot=70)
    journal = Journal(engine.root / "shared" / "query", "job")
    journal.append(mark_by_arrival(first_batch=0), slots)
    journal.close()
    engine.plan(0)
    driver = engine.start()
    tables = find_tables(str(engine.checkpoint / "offsets"), str(engine.root / "shared/tables" / f"{b'query'.hex()}.query"))
    gate: Any = driver.gates["in"]
    assert tables == {"in": to_fields(gate.state.tables()[0])}
    driver.report(engine.report(0))
    engine.commit(0)
    assert engine.run(driver, range(1, 3)) == [keep_of(1), keep_of(2)]
    driver.finish()


def test_an_open_batch_by_batch_is_not_replayed_by_arrival(engine: Engine) -> None:
    driver = engine.start()
    engine.plan(0)
    engine.ask()
    driver.finish()
    from penstock.decision import ByArrival

    gate: ConnectGate = build(engine.root / "shared")
    other = ConnectDriver([gate], ByArrival([gate.state], Most(2.0), label="query"))
    other.look_at_checkpoint = lambda: setattr(other, "open_batch", find_open_batch(engine.checkpoint))
    with pytest.raises(PenstockError, match="batch 0 of query 'query' was decided by batch"):
        other.open_journal(str(engine.root / "shared" / "query"), None, is_new=False)


def test_a_new_checkpoint_does_not_get_the_tables_of_an_old_one(engine: Engine) -> None:
    directory = engine.root / "shared/tables" / f"{b'query'.hex()}.query"
    directory.mkdir(parents=True)
    old = {"decided_for": 0, "is_stand_in": False, "tables": {"in": [0, 0, 0, 0, 0, [0]]}}
    (directory / "0.json").write_text(json.dumps(old))
    driver = engine.start()
    assert engine.run(driver, range(2)) == [keep_of(0), keep_of(1)]
    driver.finish()


def test_a_decision_that_never_reached_its_file_is_replaced_by_what_ran(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client dies between its journal and the file; Spark runs that batch and another one with the table before it."""
    driver = engine.start()
    engine.run(driver, range(2))
    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.connect.batch_lookup.PATIENCE_S", 0.05)
        patch.setattr(BatchTables, "offer", lambda *_: True)
        engine.plan(2)
        wait_for(lambda: driver.journal.state.decision_for(2) is not None)
        driver.finish()
        for batch_id in (2, 3):
            assert engine.ask() == keep_of(1)
            engine.commit(batch_id)
            engine.plan(batch_id + 1)
    again = engine.start()
    assert engine.ask() == keep_of(1), "batch 4 may have begun"
    again.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert [state.decision_for(number).keep for number in range(5)] == [keep_of(n) for n in (0, 1, 1, 1, 1)]  # type: ignore[union-attr]


def test_a_file_that_could_not_be_created_is_replaced_by_what_ran(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.connect.batch_lookup.PATIENCE_S", 0.5)
    driver = engine.start()
    engine.run(driver, range(2))
    with mock.patch.object(BatchTables, "offer", side_effect=OSError("the disk is full")):
        engine.plan(2)
        assert engine.ask() == keep_of(1)
    driver.report(engine.report(2))
    engine.commit(2)
    assert engine.run(driver, range(3, 5)) == [keep_of(3), keep_of(4)]
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert [state.decision_for(number).keep for number in range(5)] == [keep_of(n) for n in (0, 1, 1, 3, 4)]  # type: ignore[union-attr]
    assert state.batches[2].keep == keep_of(1)


def test_a_client_that_was_suspended_continues_with_the_batch_of_the_day(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps the offsets of its last batches only, so the ones that were missed are gone."""
    driver = engine.start()
    engine.run(driver, range(2))
    with monkeypatch.context() as patch:
        patch.setattr("penstock.spark.connect.batch_lookup.PATIENCE_S", 0.05)
        patch.setattr("penstock.spark.connect.batch_lookup.IMPATIENCE_S", 0.05)
        patch.setattr(driver, "_plan_next", lambda: None)
        for batch_id in range(2, 6):
            engine.plan(batch_id)
            assert engine.ask() == keep_of(1)
            engine.report(batch_id)
            engine.commit(batch_id)
        for batch_id in range(5):
            (engine.checkpoint / "offsets" / str(batch_id)).unlink()
    del engine.reports[2:4]  # Spark keeps the last ones only, and these were lost
    for report in engine.reports[2:]:
        driver.report(json.dumps(report))
    assert engine.run(driver, range(6, 8)) == [keep_of(6), keep_of(7)]
    driver.finish()
    state = read_journal(engine.root / "shared" / "query")
    assert [state.decision_for(number).keep for number in range(2, 7)] == [keep_of(n) for n in (1, 1, 1, 1, 6)]  # type: ignore[union-attr]
    assert sorted(state.batches) == [0, 1, 4, 5, 6, 7]
    assert {number: record.keep for number, record in state.batches.items() if number in (4, 5)} == {4: keep_of(1), 5: keep_of(1)}
