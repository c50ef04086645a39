"""Queries that a pipeline starts: taken over with their first report, and what earlier runs decided holds."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType, TimestampType

from penstock import Controller, Decision, Observation
from penstock.control import KeepAll
from penstock.errors import PenstockError
from penstock.journal import DecisionRecord, Journal, read_journal
from penstock.spark.connect.connect_driver import ConnectDriver
from penstock.spark.connect.connect_gate import ConnectGate
from penstock.spark.connect.pipelines import PipelineFollower, core_of_flow, is_in_pipeline, recall_slots
from penstock.spark.driver_registry import DriverRegistry
from penstock.spark.gates import GateSpecification

SCHEMA = StructType().add("id", LongType()).add("t", TimestampType())
FLOW = "spark_catalog.default.packets"


class Half(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.5)


def build(directory: Path, name: str = "in", **options: Any) -> ConnectGate:
    no_session: Any = None  # needed only for the expression
    return ConnectGate(no_session, GateSpecification(name, arrival="t", **options), SCHEMA, str(directory))


def follow(
    gate: ConnectGate, controller: Controller | None = None, *, keeps_all: bool = False
) -> tuple[PipelineFollower, DriverRegistry]:
    registry = DriverRegistry()
    make_core = partial(core_of_flow, controller or KeepAll(60.0), 1.0, keeps_all=keeps_all)
    return PipelineFollower({gate.name: gate}, registry, make_core), registry


def report(batch: int, gate: str = "in", *, run: str = "r1", query: str = "0123456789ab", rows: int = 10) -> str:
    counts = {f"penstock offered {gate!r}": {"rows": rows}, f"penstock kept {gate!r}": {"rows": rows, "timed": rows}}
    durations = {"addBatch": 900, "triggerExecution": 1000}
    times = {"timestamp": "2026-01-01T00:00:00.000Z", "durationMs": durations, "sources": []}
    return json.dumps({"id": query, "runId": run, "name": FLOW, "batchId": batch, "observedMetrics": counts, **times})


def read_oldest(directory: Path, name: str = "in") -> int:
    return int(json.loads((directory / "tables" / f"{name.encode().hex()}.json").read_text())["oldest"])


def test_a_flow_is_counted_and_decided_from_its_first_report_on(tmp_path: Path) -> None:
    gate = build(tmp_path)
    follower, registry = follow(gate, Half(60.0))
    follower.take_over("r1", report(0))
    for driver in registry.drivers:
        driver.report(report(1))
        assert driver.query is not None
        assert driver.query.isActive
        driver.ended.set()
        assert not driver.query.isActive
    registry.finish()
    state = read_journal(tmp_path / f"{FLOW}-01234567")
    assert {number: record.gates["in"] for number, record in state.batches.items()} == {0: (10, 10), 1: (10, 10)}
    assert [decision.gates["in"] for decision in state.decisions if decision.gates] == [(0.5,)]
    assert state.owner["job"] == "0123456789ab"
    assert state.owner["about"]["label"] == FLOW


def test_of_a_flow_that_was_never_counted_all_batches_are_missing(tmp_path: Path) -> None:
    """The process dies with the first report in its hands."""
    follower, registry = follow(build(tmp_path))
    with mock.patch.object(ConnectDriver, "_take_in"):
        follower.take_over("r1", report(3))
        registry.finish()
    follower, registry = follow(build(tmp_path))
    follower.take_over("r2", report(5, run="r2"))
    registry.finish()
    state = read_journal(tmp_path / f"{FLOW}-01234567")
    assert state.errors == [f"{FLOW}: batches 3 to 4 ran while nobody listened; missing in the ledger"]
    assert sorted(state.batches) == [5]


def test_by_default_a_run_keeps_everything(tmp_path: Path) -> None:
    follower, registry = follow(build(tmp_path), Half(60.0), keeps_all=True)
    follower.take_over("r1", report(0))
    registry.finish()
    state = read_journal(tmp_path / f"{FLOW}-01234567")
    assert state.totals()["in"] == (10, 10)
    assert [decision.gates for decision in state.decisions if decision.gates] == []


def test_the_next_run_goes_on_and_a_full_refresh_begins_anew(tmp_path: Path) -> None:
    for run, query, batches in (("r1", "0123456789ab", (0, 1)), ("r2", "0123456789ab", (2,)), ("r3", "ffff456789ab", (0,))):
        follower, registry = follow(build(tmp_path))
        follower.take_over(run, report(batches[0], run=run, query=query))
        for number in batches[1:]:
            registry.drivers[0].report(report(number, run=run, query=query))
        registry.finish()
    assert sorted(read_journal(tmp_path / f"{FLOW}-01234567").batches) == [0, 1, 2]
    assert sorted(read_journal(tmp_path / f"{FLOW}-ffff4567").batches) == [0]


def test_a_flow_without_a_gate_is_left_alone(tmp_path: Path) -> None:
    follower, registry = follow(build(tmp_path))
    follower.take_over("r1", report(0, gate="another"))
    follower.take_over("r2", json.dumps({"id": "q", "runId": "r2", "name": FLOW, "batchId": 0}))
    assert registry.drivers == []


def test_a_flow_whose_journal_is_held_is_said_to_be_uncontrolled_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    held = Journal(tmp_path / f"{FLOW}-01234567")
    follower, registry = follow(build(tmp_path))
    with caplog.at_level(logging.WARNING, "penstock"):
        follower.take_over("r1", report(0))
        follower.take_over("r1", report(1))
    held.close()
    assert [line for line in caplog.messages if f"flow '{FLOW}' of the pipeline is not controlled: " in line] == caplog.messages
    assert len(caplog.messages) == 1
    assert registry.drivers == []


def test_what_was_journaled_but_not_written_holds_from_the_next_run_on(tmp_path: Path) -> None:
    gate = build(tmp_path)
    before = read_oldest(tmp_path)
    journal = Journal(tmp_path / "flow", "q")
    journal.append(DecisionRecord({"in": (0.5,)}, 0.5, from_slot=100_000))
    journal.close()
    assert read_oldest(tmp_path) == before
    recall_slots(gate)
    assert gate.state.ring.changes == [(100_000, (0.5,))]
    assert read_oldest(tmp_path) == 100_000 - 8191
    other = build(tmp_path, "other")
    recall_slots(other)
    assert other.state.ring.changes == []


def test_a_table_of_a_process_that_lives_stays(tmp_path: Path) -> None:
    gate = build(tmp_path)
    before = read_oldest(tmp_path)
    journal = Journal(tmp_path / "flow", "q")
    journal.append(DecisionRecord({"in": (0.5,)}, 0.5, from_slot=100_000))
    recall_slots(gate)
    assert read_oldest(tmp_path) == before
    journal.close()


def test_other_classes_than_in_earlier_runs_are_refused(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "flow", "q")
    journal.append(DecisionRecord({"in": (0.5, 0.5)}, 0.5, from_slot=100_000))
    journal.close()
    with pytest.raises(PenstockError, match="gate 'in': the journal has 2 classes where the gate has 1; give it another name"):
        recall_slots(build(tmp_path))


def test_outside_of_a_pipeline_there_is_none() -> None:
    assert not is_in_pipeline()
    graph = pytest.importorskip("pyspark.pipelines.graph_element_registry", reason="pipelines came with Spark 4.1")
    assert not is_in_pipeline()
    with graph.graph_element_registration_context(object()):
        assert is_in_pipeline()
