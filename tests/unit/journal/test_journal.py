"""The journal: durable, whole or not at all, one job's alone."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import filesystem
from penstock.errors import JournalError
from penstock.journal import BatchRecord, DecisionRecord, Journal, read_journal
from penstock.journal.files import seal
from penstock.storage.local_store import LocalStore


def decision(batch_id: int, keep: float = 0.5) -> DecisionRecord:
    return DecisionRecord({"in": (keep,)}, keep, batch_id=batch_id, controller={"memory": batch_id})


def batch(batch_id: int, offered: int = 10, kept: int = 4) -> BatchRecord:
    return BatchRecord(batch_id, {"in": (offered, kept)}, keep=0.5, start_s=1.0, end_s=3.0, mean_arrival_s=1.5)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", "job")
    journal.append(decision(0))
    journal.append(batch(0), decision(1, 0.25))
    journal.append("something went wrong")
    journal.close()
    state = read_journal(tmp_path / "j")
    assert state.decisions == [decision(0), decision(1, 0.25)]
    assert state.batches == {0: batch(0)}
    assert state.errors == ["something went wrong"]
    assert state.damage == []
    assert state.batches[0].delay_s == 1.5
    again = Journal(tmp_path / "j", "job")
    assert again.state.decision_for(1) == decision(1, 0.25)
    assert again.state.decision_for(7) is None
    again.close()


def test_a_batch_that_is_replayed_is_counted_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    journal.append(batch(3, 10, 4))
    journal.append(batch(3, 10, 5))
    journal.close()
    assert read_journal(tmp_path).batches == {3: batch(3, 10, 5)}


def test_compaction_keeps_sums_decisions_and_the_latest_batches(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job", retain=50)
    for number in range(400):
        journal.append(decision(number))
        journal.append(batch(number, 10, number % 10))
    journal.close()
    state = read_journal(tmp_path)
    assert len(list(tmp_path.glob("*.json"))) < 300
    assert max(state.batches) == 399
    assert state.compacted_batches + len(state.batches) == 400
    assert state.totals()["in"] == (4000, sum(n % 10 for n in range(400)))
    assert state.decision_for(399) == decision(399)
    assert state.decisions[-1].controller == {"memory": 399}


def test_a_crash_while_compacting_loses_and_doubles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compacted file is there, the small ones were not removed yet."""
    journal = Journal(tmp_path, "job", retain=5)
    monkeypatch.setattr(journal._writer.store, "delete", lambda _: None)
    for number in range(300):
        journal.append(batch(number))
    journal.close()
    state = read_journal(tmp_path)
    assert state.compacted_batches + len(state.batches) == 300
    assert state.totals()["in"][0] == 3000


@pytest.mark.parametrize("content", [b"", b"penstock-journal-1", b"penstock-journal-1 0123\n{}", b"\x00\xff garbage"])
def test_a_torn_file_is_named_and_survived(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(tmp_path, "job")
    for number in range(3):
        journal.append(batch(number), decision(number))
    journal.close()
    (tmp_path / "000000000001.json").write_bytes(content)
    state = read_journal(tmp_path)
    assert sorted(state.batches) == [0, 2]
    assert len(state.damage) == 1
    assert "000000000001.json is torn or damaged" in state.damage[0]
    with caplog.at_level(logging.WARNING):
        Journal(tmp_path, "job").close()
    assert "000000000001.json" in caplog.text


def test_a_foreign_file_is_named_and_left_alone(tmp_path: Path) -> None:
    Journal(tmp_path, "job").close()
    (tmp_path / "notes.txt").write_text("mine")
    state = read_journal(tmp_path)
    assert "notes.txt is not Penstock's" in state.damage[0]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_journal_after_damage_goes_on_behind_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    journal.append(batch(0))
    journal.close()
    (tmp_path / "000000000009.json").write_bytes(b"torn")
    journal = Journal(tmp_path, "job")
    journal.append(batch(1))
    journal.close()
    assert (tmp_path / "000000000010.json").exists()
    assert sorted(read_journal(tmp_path).batches) == [0, 1]


def test_another_job_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, "job-a").close()
    with pytest.raises(JournalError, match="belongs to job job-a, not to job-b"):
        Journal(tmp_path, "job-b")
    Journal(tmp_path, "job-a").close()


def test_the_same_job_twice_is_refused(tmp_path: Path) -> None:
    first = Journal(tmp_path, "job")
    with pytest.raises(JournalError, match="is in use by another job"):
        Journal(tmp_path, "job")
    first.close()
    Journal(tmp_path, "job").close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_place(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(JournalError, match="can't be written: Permission denied"):
        Journal(tmp_path / "j", "job")


def test_a_place_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(JournalError, match="can't be written") as caught:
        Journal(tmp_path / "file" / "j", "job")
    assert "\n" not in str(caught.value)


def test_a_place_that_cannot_be_reached() -> None:
    with pytest.raises(ValueError, match="the journal warp://x can't be reached without Spark"):
        Journal("warp://x", "job")


def test_a_full_disk_loses_no_counts_and_makes_no_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path, "job")
    journal.append(batch(0))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(filesystem.os, "fsync", full)
        with pytest.raises(JournalError, match="can't be written: No space left on device"):
            journal.append(batch(1), decision(2))
    assert sorted(read_journal(tmp_path).batches) == [0]  # nothing half written
    assert not list(tmp_path.glob(".*.tmp"))
    journal.append(batch(2))
    journal.close()
    state = read_journal(tmp_path)
    assert sorted(state.batches) == [0, 1, 2]
    assert state.decisions == []


def test_a_batch_waits_for_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts are synced with the next decision, which holds them again."""
    journal = Journal(tmp_path, "job", syncs_counts=False)
    syncs: list[int] = []
    monkeypatch.setattr(filesystem.os, "fsync", syncs.append)
    for number in range(10):
        journal.append(decision(number))
        journal.append(batch(number))
    assert len(syncs) == 10
    journal.close()
    assert len(syncs) == 11
    journal = Journal(tmp_path, "job")  # where nothing would be counted again
    syncs.clear()
    journal.append(batch(10))
    assert len(syncs) == 1
    journal.close()


def test_a_batch_whose_decision_says_the_same_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay that does not find it takes the last one. The next that says something else holds them all."""
    journal = Journal(tmp_path, "job", syncs_counts=False)
    journal.append(decision(0))
    syncs: list[int] = []
    monkeypatch.setattr(filesystem.os, "fsync", syncs.append)
    for number in range(1, 10):
        journal.append_later(decision(number))
        journal.append(batch(number))
    assert syncs == []
    journal.append(decision(10))
    assert len(syncs) == 1
    journal.close()
    newest = sorted(tmp_path.glob("0*.json"))[-1]
    assert newest.read_text().count('"decision"') == 10
    assert [each.batch_id for each in read_journal(tmp_path).decisions] == list(range(11))


@given(st.lists(st.sampled_from(["decision", "later", "batch", "message"]), max_size=60), st.integers(0, 60))
def test_a_power_cut_takes_only_what_came_after_the_last_sync(kinds: list[str], cut: int) -> None:
    """It tears every file that was not synced. What was synced holds whatever came before it."""
    with TemporaryDirectory() as directory:
        path = Path(directory)
        journal = Journal(path, "job", syncs_counts=False)
        unsynced: set[str] = set()
        create = LocalStore.create_unsynced

        def note(store: LocalStore, name: str, content: bytes) -> None:
            unsynced.add(name)
            create(store, name, content)

        last_sync = -1
        with mock.patch.object(LocalStore, "create_unsynced", note):
            for number, kind in enumerate(kinds[:cut]):
                count = len(unsynced)
                if kind == "later":
                    journal.append_later(decision(number))
                    continue
                journal.append({"decision": decision, "batch": batch, "message": str}[kind](number))  # type: ignore[operator]
                last_sync = number if len(unsynced) == count else last_sync
        for name in unsynced:
            (path / name).write_bytes(b"")
        state = read_journal(path)
        journal.close()
    synced = kinds[:cut][: last_sync + 1]
    assert sorted(state.batches) == [number for number, kind in enumerate(synced) if kind == "batch"]
    decisions = [number for number, kind in enumerate(synced) if kind in ("decision", "later")]
    assert [each.batch_id for each in state.decisions] == decisions
    assert state.errors == [str(number) for number, kind in enumerate(synced) if kind == "message"]
    assert kinds[last_sync + 1 : cut].count("batch") <= 16


def test_what_was_folded_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that wait for the next decision may be totals by then."""
    monkeypatch.setattr("penstock.journal.writer.COMPACT_EVERY", 8)
    journal = Journal(tmp_path, "job", retain=2, syncs_counts=False)
    for number in range(100):
        journal.append(batch(number))
    journal.append(decision(100))
    journal.close()
    state = read_journal(tmp_path)
    assert state.totals()["in"] == (1000, 400)
    assert state.compacted_batches + len(state.batches) == 100


def test_no_journal_there(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal in"):
        read_journal(tmp_path / "nothing")


def test_an_unknown_kind_of_record_is_damage(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    lines: list[dict[str, Any]] = [{"kind": "surprise"}]
    journal._writer.store.create("000000000005.json", seal(lines))
    journal.close()
    assert "unknown kind 'surprise'" in read_journal(tmp_path).damage[0]


def test_compacting_keeps_what_classes_and_windows_need(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job", retain=5)
    snapshot = {"in": {"changes": [[7, 0.5]], "last": [7, 0.5], "forgotten": True}}
    for number in range(300):
        windows = snapshot if number == 250 else None
        journal.append(DecisionRecord({"in": (0.5, 7.0)}, 0.5, batch_id=number, windows=windows))
        classes = {"in": [(6, 3), (4, 4)]}
        journal.append(BatchRecord(number, {"in": (10, 7)}, latest={"in": 1_000 + number}, classes=classes))
    journal.close()
    state = read_journal(tmp_path)
    many = state.compacted_batches
    assert state.folded_classes["in"] == [(6 * many, 3 * many), (4 * many, 4 * many)]
    assert state.class_totals("in") == [(1_800, 900), (1_200, 1_200)]
    assert state.compacted_batches > 100
    assert state.batches[299].latest == {"in": 1_299}
    assert state.batches[299].classes == {"in": [(6, 3), (4, 4)]}
    assert [decision.windows for decision in state.decisions if decision.windows] == [snapshot]


def test_a_closed_journal_takes_nothing_more(tmp_path: Path) -> None:
    """The next run may have it open: a late record would take a number that is its."""
    first = Journal(tmp_path, "job")
    first.append(batch(0))
    first.close()
    second = Journal(tmp_path, "job")
    with pytest.raises(JournalError, match="is closed"):
        first.append(batch(1))
    second.append(batch(1))
    second.close()
    assert sorted(read_journal(tmp_path).batches) == [0, 1]


def test_compacting_keeps_the_last_memory_of_the_controller(tmp_path: Path) -> None:
    """Also where the last decision is another query's, which has none; and no more than that, in the file and in memory."""
    journal = Journal(tmp_path, "job", retain=5)
    for number in range(300):
        memory = {"memory": number} if number < 255 else None
        journal.append(DecisionRecord({"in": (0.5,)}, 0.5, from_slot=number, controller=memory))
    kept = [decision.controller for decision in journal.state.decisions if decision.controller]
    journal.close()
    assert kept == [{"memory": 254}]
    assert [d.controller for d in read_journal(tmp_path).decisions if d.controller] == [{"memory": 254}]
