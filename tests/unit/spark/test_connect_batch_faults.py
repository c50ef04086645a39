"""What may go wrong by batch over Spark Connect: half written files, full disks, mounts that fail, clients that come late."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from penstock import Decision, Observation
from penstock.decision.handover import ContinuedByBatch, mark_by_arrival
from penstock.errors import JournalError, PenstockError
from penstock.journal import DecisionRecord, Journal, JournalState, read_journal
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.connect import batch_lookup, batch_tables
from penstock.spark.connect.batch_lookup import create_once, file_of, find_tables, make_lookup, read_file
from penstock.spark.connect.batch_tables import BatchTables, directory_of, place_of
from penstock.spark.connect.connect_batch_driver import ConnectBatchDriver
from tests.unit.spark.test_connect_batch_driver import ROWS, Engine, InTurn, keep_of, wait_for
from tests.unit.spark.test_connect_driver import start as start_by_arrival
from tests.unit.spark.test_pipelines import build


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr(batch_lookup, "PATIENCE_S", 1.0)
    monkeypatch.setattr(batch_lookup, "IMPATIENCE_S", 0.2)
    monkeypatch.setattr(batch_lookup, "_INSISTENCE_S", 0.3)
    return Engine(tmp_path)


def tables_of(engine: Engine) -> Path:
    return directory_of(str(engine.root / "shared"), "query")


def path_of(engine: Engine, batch_id: int) -> Path:
    return Path(file_of(str(tables_of(engine)), batch_id))


def journal_of(engine: Engine) -> JournalState:
    return read_journal(engine.root / "shared" / "query")


def decided(engine: Engine, *batches: int) -> list[float | None]:
    state = journal_of(engine)
    return [None if (decision := state.decision_for(number)) is None else decision.keep for number in batches]


@contextlib.contextmanager
def suspended(driver: ConnectBatchDriver) -> Iterator[None]:
    """The client does not see what Spark plans."""
    with mock.patch.object(driver, "_plan_next", return_value=None):
        yield


def run_unseen(engine: Engine, batches: range) -> list[float]:
    """Run batches whose reports don't come by themselves; return the keep of each."""
    keeps = []
    for batch_id in batches:
        engine.plan(batch_id)
        keeps.append(engine.ask())
        engine.report(batch_id)
        engine.commit(batch_id)
    return keeps


def count_first(driver: ConnectBatchDriver, batches: int) -> None:
    wait_for(lambda: len(driver.journal.state.batches) == batches)


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", refuse)


# -- files that are not whole ------------------------------------------------------------------------------------------


def test_a_file_that_lost_its_content_in_a_power_cut_is_written_anew(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(3))
    engine.plan(3)
    assert engine.ask() == keep_of(3)
    driver.finish()
    path_of(engine, 3).write_bytes(b"")
    again = engine.start()
    assert engine.ask() == keep_of(3), "the replay"
    again.finish()


def test_a_write_that_fails_leaves_no_half_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_links(monkeypatch)
    path, open_file = str(tmp_path / "7.json"), Path.open

    def fill(self: Path, mode: str = "r", **options: Any) -> Any:
        stream = open_file(self, mode, **options)
        if mode == "x" and not self.name.startswith("."):
            stream.close()
            broken = mock.MagicMock()
            broken.write.side_effect = OSError(errno.ENOSPC, "full")
            broken.__exit__.return_value = False
            return broken
        return stream

    with mock.patch.object(Path, "open", fill), pytest.raises(OSError, match="full"):
        create_once(path, {"a": 1})
    assert create_once(path, {"a": 2})
    assert read_file(path) == {"a": 2}


def test_a_writer_that_died_in_the_middle_is_not_waited_for_in_replays(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without links a file shows before it is whole. What a worker puts in its place is what replays find."""
    without_links(monkeypatch)
    driver = engine.start()
    engine.run(driver, range(3))
    with suspended(driver):
        engine.plan(3)
        path_of(engine, 3).write_text('{"decided_for": 3, "is_st')
        assert engine.ask() == keep_of(2)
        assert engine.ask() == keep_of(2)
    driver.report(engine.report(3))
    engine.commit(3)
    assert engine.run(driver, range(4, 6)) == [keep_of(4), keep_of(5)]
    driver.finish()
    assert decided(engine, 3) == [keep_of(2)], "the journal says what ran"


# -- full disks and mounts that fail -----------------------------------------------------------------------------------


def test_a_worker_that_can_write_nothing_takes_the_last_table_and_so_does_a_replay(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    full = OSError(errno.ENOSPC, "full")
    with (
        mock.patch.object(batch_lookup, "create_once", side_effect=full),
        mock.patch.object(batch_tables, "create_once", side_effect=full),
        mock.patch.object(Journal, "append", side_effect=JournalError("full")),
    ):
        engine.plan(2)
        assert engine.ask() == keep_of(1)
    driver.finish()
    again = engine.start()
    assert engine.ask() == keep_of(1)
    again.finish()


def test_a_table_that_could_not_be_written_is_not_what_the_journal_says_in_the_end(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    full = OSError(errno.ENOSPC, "full")
    with (
        mock.patch.object(batch_lookup, "create_once", side_effect=full),
        mock.patch.object(batch_tables, "create_once", side_effect=full),
    ):
        engine.plan(2)
        assert engine.ask() == keep_of(1)
        wait_for(lambda: driver.journal.state.decision_for(2) is not None)
        driver.report(engine.report(2))
        count_first(driver, 3)
    engine.commit(2)
    driver.finish()
    assert decided(engine, 2) == [keep_of(1)]
    assert journal_of(engine).batches[2].keep == keep_of(1)


def test_a_mount_that_fails_for_a_moment_ends_nothing(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    stat, failed = os.stat, []

    def fail_once(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if "offsets" in str(path) and not failed:
            failed.append(path)
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, *arguments, **options)

    with mock.patch.object(os, "stat", fail_once):
        wait_for(lambda: bool(failed))
    assert engine.run(driver, range(2, 5)) == [keep_of(2), keep_of(3), keep_of(4)]
    driver.finish()
    assert sorted(journal_of(engine).batches) == [0, 1, 2, 3, 4]


def test_a_worker_reads_again_what_a_mount_does_not_give(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    place = place_of(tables_of(engine), "in")
    look_up, read, failures = make_lookup(str(place), "in"), Path.read_bytes, [str(place)]

    def fail_once(self: Path) -> bytes:
        if str(self) in failures:
            failures.remove(str(self))
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(self)

    engine.plan(2)
    with mock.patch.object(Path, "read_bytes", fail_once):
        found = look_up(0)
    assert not failures
    assert found is not None
    assert found[5][-1] / 2.0**53 == keep_of(2)
    driver.finish()


def test_a_full_disk_at_the_start_is_one_line(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    engine.plan(2)
    engine.ask()
    driver.finish()
    path_of(engine, 2).unlink()
    with (
        mock.patch.object(batch_tables, "create_once", side_effect=OSError(errno.ENOSPC, "No space left on device")),
        pytest.raises(PenstockError, match=r"tables of batches can't be written to .*2\.json: No space left on device"),
    ):
        engine.start()


# -- clients that come late --------------------------------------------------------------------------------------------


def test_a_slow_client_is_waited_for_again_after_one_hiccup(engine: Engine) -> None:
    """Its journal takes longer than workers wait once a batch has waited in vain. It never had its say again."""
    append = Journal.append

    def append_slowly(self: Journal, *records: Any) -> None:
        if any(isinstance(record, DecisionRecord) for record in records):
            time.sleep(0.4)
        append(self, *records)

    with mock.patch.object(Journal, "append", append_slowly):
        driver = engine.start()
        engine.run(driver, range(3))
        last = read_file(str(path_of(engine, 2)))
        assert last is not None
        create_once(str(path_of(engine, 3)), {**last, "is_stand_in": True, "client": client_of(engine)})
        keeps = engine.run(driver, range(3, 8))
        driver.finish()
    assert keeps == [keep_of(2), *map(keep_of, range(4, 8))]


def client_of(engine: Engine) -> str:
    first = read_file(str(tables_of(engine) / "first.json"))
    assert first is not None
    return str(first["client"])


def test_a_client_that_comes_back_is_waited_for(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    driver.finish()
    for batch_id in (2, 3):
        engine.plan(batch_id)
        begin_s = time.monotonic()
        assert engine.ask() == keep_of(1)
        assert (time.monotonic() - begin_s < 0.7) == (batch_id == 3), "who has waited in vain waits less"
        engine.commit(batch_id)
    again = engine.start()
    with suspended(again):
        engine.plan(4)
        begin_s = time.monotonic()
        engine.ask()
        assert time.monotonic() - begin_s > 0.7
    again.finish()


def test_a_client_without_a_listener_finds_the_batch_of_the_day_itself(engine: Engine) -> None:
    """After a long pause Spark's log has no entry of the batch that it waits for, and no report comes by itself."""
    driver = engine.start()
    engine.run(driver, range(2))
    count_first(driver, 2)
    with suspended(driver):
        run_unseen(engine, range(2, 9))
        for path in (engine.checkpoint / "offsets").iterdir():
            if int(path.name) < 6:
                path.unlink()
    wait_for(lambda: driver._next == 9)
    engine.plan(9)
    assert engine.ask() == keep_of(9)
    engine.commit(9)
    driver.report(engine.report(9))
    driver.finish()
    assert sorted(journal_of(engine).batches) == list(range(10)), "reports were fetched"


def test_no_decision_is_made_about_a_batch_that_has_ended(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_lookup, "RETAINED", 3)
    monkeypatch.setattr(batch_tables, "RETAINED", 3)
    driver = engine.start()
    engine.run(driver, range(2))
    count_first(driver, 2)
    monkeypatch.setattr(batch_lookup, "PATIENCE_S", 0.02)
    with suspended(driver):
        assert set(run_unseen(engine, range(2, 12))) == {keep_of(1)}
    wait_for(lambda: driver._next == 12 and len(driver.journal.state.batches) == 12)
    driver.finish()
    assert set(decided(engine, *range(2, 12))) <= {None, keep_of(1)}


def test_what_held_is_journaled_before_a_later_decision(engine: Engine) -> None:
    """It was put behind it, and hid it: without its file the later batch was replayed with another table."""
    driver = engine.start()
    engine.run(driver, range(2))
    count_first(driver, 2)
    with mock.patch.object(BatchTables, "offer", side_effect=OSError(errno.EIO, "hiccup")):
        engine.plan(2)
        assert engine.ask() == keep_of(1)
    engine.commit(2)
    driver.query = None  # its report comes late, and can't be fetched
    engine.plan(3)
    assert engine.ask() == keep_of(3)
    driver.report(engine.report(2))
    count_first(driver, 3)
    assert driver._decided_for == 3
    driver.finish()
    assert decided(engine, 2, 3) == [keep_of(1), keep_of(3)]
    path_of(engine, 3).unlink()
    again = engine.start()
    assert engine.ask() == keep_of(3), "the replay"
    again.finish()


def test_a_batch_is_counted_also_if_what_held_cannot_be_journaled_yet(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    count_first(driver, 2)
    with suspended(driver):
        engine.plan(2)
        engine.ask()
        append = Journal.append

        def refuse_decisions(self: Journal, *records: Any) -> None:
            if any(isinstance(record, DecisionRecord) for record in records):
                raise JournalError("disk full")
            append(self, *records)

        with mock.patch.object(Journal, "append", refuse_decisions):
            driver.report(engine.report(2))
            count_first(driver, 3)
    engine.commit(2)
    engine.run(driver, range(3, 5))
    driver.finish()
    assert sorted(journal_of(engine).batches) == [0, 1, 2, 3, 4]
    assert decided(engine, 2) == [keep_of(1)], "it was journaled later"


def test_what_runs_again_is_counted_again(engine: Engine) -> None:
    """The checkpoint was set back, or a power cut took Spark's commits: batches have other rows than before."""
    driver = engine.start()
    engine.run(driver, range(5))
    count_first(driver, 5)
    driver.finish()
    for batch_id in (2, 3, 4):
        for folder in ("offsets", "commits"):
            (engine.checkpoint / folder / str(batch_id)).unlink()
    engine.reports.clear()
    again = engine.start()
    for batch_id in (2, 3, 4):
        engine.plan(batch_id, rows=7 * ROWS)
        assert engine.ask() == keep_of(batch_id), "as it was decided"
        report = json.loads(engine.report(batch_id))
        report["observedMetrics"]["penstock offered 'in'"]["rows"] = 7 * ROWS
        engine.reports[-1] = report
        again.report(json.dumps(report))
        engine.commit(batch_id)
    again.finish()
    assert [record.gates["in"][0] for _, record in sorted(journal_of(engine).batches.items())] == [ROWS, ROWS, *[7 * ROWS] * 3]


# -- several jobs ------------------------------------------------------------------------------------------------------


def test_jobs_with_one_directory_and_gates_of_one_name_have_tables_of_their_own(tmp_path: Path) -> None:
    class Always(InTurn):
        def __init__(self, keep: float) -> None:
            super().__init__(2.0)
            self._keep = keep

        def update(self, observation: Observation) -> Decision:
            return Decision(self._keep)

    def begin(label: str, keep: float) -> tuple[ConnectBatchDriver, Any]:
        checkpoint = tmp_path / label
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True)
        (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":0}\n{"n":100,"t0":0.0}')
        gate = build(tmp_path / "shared")
        core = ContinuedByBatch([gate.state], Always(keep), label=label, slot_gates=[gate.state])
        driver = ConnectBatchDriver([gate], core, str(checkpoint))
        gate.set_how(by_arrival=False)
        driver.open_journal(str(tmp_path / "shared" / label), label, is_new=False)
        driver.begin()
        place = place_of(directory_of(str(tmp_path / "shared"), label), "in")
        return driver, lambda: make_lookup(str(place), "in")(0)[5][-1] / 2.0**53  # type: ignore[index]

    first, ask_first = begin("a", 0.9)
    assert ask_first() == 0.9
    second, ask_second = begin("b", 0.125)
    assert (ask_first(), ask_second()) == (0.9, 0.125)
    first.finish()
    second.finish()


def test_a_process_that_lost_the_journal_decides_about_no_batch(engine: Engine) -> None:
    driver = engine.start()
    engine.run(driver, range(2))
    with (
        mock.patch.object(Journal, "is_lost", new_callable=mock.PropertyMock, return_value=True),
        mock.patch.object(Journal, "append", side_effect=JournalError("another job has it")),
    ):
        engine.plan(2)
        wait_for(lambda: driver._next == 3)
        time.sleep(0.1)
        assert not path_of(engine, 2).exists()
    driver.finish()


def test_by_arrival_a_table_is_one_process_alone(tmp_path: Path) -> None:
    """Tables of slots go by the gate's name: a job of the same name elsewhere would read and write the same file."""
    driver = start_by_arrival(tmp_path, None)
    taken = find_lock_elsewhere(tmp_path)
    driver.finish()
    assert taken == "taken"
    assert find_lock_elsewhere(tmp_path) == "free"


def find_lock_elsewhere(root: Path) -> str:
    (lock,) = (root / "tables").rglob("*.lock")
    code = (
        "import sys; from pathlib import Path; from penstock.filesystem import FileLock; "
        "print('free' if FileLock(Path(sys.argv[1])).acquire() else 'taken')"
    )
    return subprocess.run([sys.executable, "-c", code, str(lock)], capture_output=True, text=True, check=True).stdout.strip()


# -- the handover, and sizes -------------------------------------------------------------------------------------------


def test_a_late_report_of_the_batch_left_open_does_not_open_the_gates(engine: Engine) -> None:
    """The next batch may be decided before it is heard that the batch by arrival has ended."""
    journal = Journal(engine.root / "shared" / "query", "job")
    journal.append(mark_by_arrival(first_batch=0), DecisionRecord({"in": (0.25,)}, 0.25, from_slot=0))
    journal.close()
    engine.plan(0)
    driver = engine.start()
    driver.query = None
    engine.commit(0)
    engine.plan(1)
    wait_for(lambda: driver.journal.state.decision_for(1) is not None and path_of(engine, 1).exists())
    held = driver._in_force["in"]
    assert engine.ask() < 1.0, "a table that would be seen to go"
    driver.report(engine.report(0))
    wait_for(lambda: 0 in driver.journal.state.batches)
    assert driver._in_force["in"] is held
    driver.finish()


def test_a_compacted_log_of_files_is_read_from_its_end(tmp_path: Path) -> None:
    """It has all files that were ever read, and a batch waits meanwhile."""
    lines = [json.dumps({"path": f"file:/old{number}", "timestamp": 0, "batchId": 0}) for number in range(1_000)]
    lines += [json.dumps({"path": f"file:/new{number}", "timestamp": 0, "batchId": 9}) for number in range(2)]
    (tmp_path / "sources" / "0").mkdir(parents=True)
    (tmp_path / "sources" / "0" / "9.compact").write_text("\n".join(["v1", *lines]))
    (tmp_path / "offsets").mkdir()
    for number, offset in ((1, 8), (2, 9)):
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{}}\n{{"logOffset":{offset}}}')
    asked: list[str] = []

    def size(path: str) -> int:
        asked.append(path)
        return 10

    with mock.patch("penstock.spark.checkpoint.json.loads", wraps=json.loads) as loads:
        assert Checkpoint(tmp_path).count_rows(2, ["files"], size) == {"files": 20}
    assert sorted(asked) == ["file:/new0", "file:/new1"]
    assert loads.call_count < 20


def test_a_worker_without_any_file_keeps_everything(tmp_path: Path) -> None:
    for folder in ("offsets", "batches"):
        (tmp_path / folder).mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with mock.patch.object(batch_lookup, "PATIENCE_S", 0.05), mock.patch.object(batch_lookup, "_INSISTENCE_S", 0.05):
        assert find_tables(str(tmp_path / "offsets"), str(tmp_path / "batches")) is None
