"""Tallies from journals that other processes write."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.journal import BatchRecord, DecisionRecord, Journal, writer
from penstock.metrics.journal_poll import JournalPoll
from penstock.metrics.tally import QueryTally, TallyBook
from penstock.storage.local_store import LocalStore


def batch(number: int, offered: int = 100, kept: int = 40, **more: object) -> BatchRecord:
    return BatchRecord(number, {"in": (offered, kept)}, **more)  # type: ignore[arg-type]


def values(tally: QueryTally) -> dict[str, float]:
    return {".".join((sample.key, *sample.labels[2:])): sample.value for sample in tally.samples()}


def test_a_journal_is_followed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "job" / "penstock", "me")
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    journal.append(DecisionRecord({"in": (1.0,)}, 1.0, batch_id=0))
    assert poll.refresh() == 1
    (tally,) = book.tallies
    assert tally.label == "job"
    assert "active" not in values(tally)
    assert "batch_start" in values(tally)
    first = batch(0, mean_arrival_s=1.0)
    journal.append(first)
    journal.append(
        replace(first, start_s=1.0, end_s=3.0), DecisionRecord({"in": (0.5,)}, 0.5, batch_id=1), "q: could not decide: no idea"
    )
    journal.append(batch(1, start_s=3.0, end_s=4.0), "q: just a note")
    poll.refresh()
    poll.refresh()
    assert book.tallies == [tally]
    now = values(tally)
    assert (now["offered"], now["kept"], now["shed.overload"], now["batches"], now["errors"]) == (200, 80, 120, 2, 1)
    assert now["keep"] == 0.5
    assert tally.histograms["delay"].count == 1
    assert tally.histograms["duration"].count == 2
    assert "batch_start" not in now
    journal.close()


def test_a_batch_without_a_decision_of_its_own_has_begun(tmp_path: Path) -> None:
    """A decision that says the same as the last one is written when the batch ends. Spark's logs tell that it runs."""
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    journal = Journal(tmp_path / "job" / "penstock", "me")
    journal.append(DecisionRecord({"in": (1.0,)}, 1.0, batch_id=0), batch(0))
    for folder, numbers in (("offsets", (0, 1)), ("commits", (0,))):
        (tmp_path / "job" / folder).mkdir()
        for number in numbers:
            (tmp_path / "job" / folder / str(number)).touch()
    os.utime(tmp_path / "job" / "offsets" / "1", (50.0, 50.0))
    poll.refresh()
    (tally,) = book.tallies
    assert values(tally)["batch_start"] == 50.0
    (tmp_path / "job" / "commits" / "1").touch()
    poll.refresh()
    assert "batch_start" not in values(tally)
    journal.close()


def test_the_numbers_are_the_ledgers_whenever_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the journal was compacted, several times, between two looks."""
    monkeypatch.setattr(writer, "COMPACT_EVERY", 16)
    journal = Journal(tmp_path / "penstock", "me", retain=4)
    book, late = TallyBook(), TallyBook()
    poll = JournalPoll([tmp_path], [book])
    journal.append(batch(0))
    poll.refresh()
    for number in range(1, 90):
        journal.append(batch(number, start_s=float(number), end_s=number + 1.0))
        if number in {10, 15, 16, 17, 60}:
            poll.refresh()
    poll.refresh()
    JournalPoll([tmp_path], [late]).refresh()
    for tally in (*book.tallies, *late.tallies):
        assert values(tally)["batches"] == 90
        assert (values(tally)["offered"], values(tally)["kept"]) == journal.state.totals()["in"]
    journal.close()


def test_journals_come_and_go(tmp_path: Path) -> None:
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    assert poll.refresh() == 0
    for name in ("a", "b"):
        journal = Journal(tmp_path / name / "penstock", "me")
        journal.append(batch(0))
        journal.append(batch(1))
        journal.close()
    assert poll.refresh() == 2
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")
    journal = Journal(tmp_path / "b" / "penstock", "another")
    journal.append(batch(0, 7, 7))
    journal.close()
    assert poll.refresh() == 1
    (tally,) = book.tallies
    assert (tally.label, values(tally)["offered"]) == ("b", 7)


def test_a_journal_that_lags_behind_spark_is_failing(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "penstock", "me")
    journal.append(batch(0))
    journal.close()
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    poll.refresh()
    assert "failing" not in values(book.tallies[0])  # nothing says what Spark has done
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    (tmp_path / "commits" / ".1.crc").touch()
    poll.refresh()
    assert values(book.tallies[0])["failing"] == 0.0
    (tmp_path / "commits" / "1").touch()
    poll.refresh()
    assert values(book.tallies[0])["failing"] == 1.0


def test_a_damaged_journal_is_named_once_and_the_rest_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(tmp_path / "penstock", "me")
    journal.append(batch(0))
    journal.close()
    (tmp_path / "penstock" / "000000000001.json").write_text("half a fi")
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    for _ in range(3):
        poll.refresh()
    assert values(book.tallies[0])["offered"] == 100
    assert sum("torn or damaged" in record.getMessage() for record in caplog.records) == 1


def test_where_journals_are_found(tmp_path: Path) -> None:
    for place in ("net/nodes/n1/queries/q--r", "net/nodes/n2/queries/s", "jobs/eu/a", "jobs/us/b"):
        Journal(tmp_path / place / "penstock", "me").close()
    Journal(tmp_path / "alone", "me").close()
    (tmp_path / "net" / "network.json").write_text("{}")

    def names(directory: Path) -> list[str]:
        book = TallyBook()
        JournalPoll([directory], [book]).refresh()
        return [tally.label for tally in book.tallies]

    assert names(tmp_path / "net") == ["n1/q--r", "n2/s"]
    assert names(tmp_path / "jobs") == ["a", "b"]
    assert names(tmp_path / "jobs" / "eu" / "a" / "penstock") == ["a"]
    assert names(tmp_path / "alone") == ["alone"]
    with pytest.raises(PenstockError, match="there is no directory"):
        names(tmp_path / "nothing")


def test_a_directory_that_is_gone_does_not_hide_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b"):
        journal = Journal(tmp_path / name / "penstock", "me")
        journal.append(batch(0))
        journal.close()
    book = TallyBook()
    poll = JournalPoll([tmp_path / "a", tmp_path / "b"], [book])
    assert poll.refresh() == 2
    shutil.rmtree(tmp_path / "a")
    assert poll.refresh() == 1
    assert [tally.label for tally in book.tallies] == ["b"]
    assert f"there is no directory {tmp_path / 'a'}" in caplog.text
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(PenstockError, match="there is no directory"):
        poll.refresh()
    assert book.tallies == []


def test_only_new_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one of them is damaged: then all are read once, and after that only new ones again."""
    journal = Journal(tmp_path / "penstock", "me")
    journal.append(batch(0))
    book = TallyBook()
    poll = JournalPoll([tmp_path], [book])
    poll.refresh()
    read, original = [], LocalStore.read
    monkeypatch.setattr(LocalStore, "read", lambda self, name: read.append(name) or original(self, name))  # type: ignore[func-returns-value]
    journal.append(batch(1))
    poll.refresh()
    poll.refresh()
    assert read == ["000000000001.json"]
    (tmp_path / "penstock" / "000000000002.json").write_text("torn")
    journal.state.next_number = 3
    poll.refresh()
    read.clear()
    journal.append(batch(2))
    poll.refresh()
    assert read == ["000000000003.json"]
    assert values(book.tallies[0])["offered"] == 300
    journal.close()
