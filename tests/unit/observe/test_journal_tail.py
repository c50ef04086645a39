"""Following a journal: only what is new is read, and nothing is lost when files are compacted away."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from penstock.errors import JournalError
from penstock.journal import BatchRecord, Journal, read_journal
from penstock.observe import JournalTail
from tests.journals import make_records, write_journal


def totals_of(path: Path) -> dict[str, tuple[int, int]]:
    return read_journal(path).totals()


def test_it_says_what_the_journal_says(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", 300)
    tail = JournalTail(path)
    assert tail.poll()
    assert tail.series.totals == totals_of(path)
    assert tail.series.batches == 300
    assert tail.series.errors == ["the clock of a source is ahead"]
    assert tail.owner["job"] == "job"
    assert not tail.poll()


def test_new_batches_come_in_while_the_job_writes_and_compacts(tmp_path: Path) -> None:
    journal, tail = Journal(tmp_path / "j", owner="job", retain=64), JournalTail(tmp_path / "j")
    for number, records in enumerate(make_records(700)):
        journal.append(*records)
        if number % 7 == 0:
            tail.poll()
    tail.poll()
    assert tail.series.totals == journal.state.totals()
    assert tail.series.batches == 700
    assert tail.series.column("batch_id")[-1] == 699
    assert len(tail.series) == 700  # it saw each of them, though the journal keeps 64
    journal.close()


def test_files_that_were_compacted_unread_are_found_in_the_compacted_one(tmp_path: Path) -> None:
    journal, tail = Journal(tmp_path / "j", owner="job", retain=64), JournalTail(tmp_path / "j")
    records = list(make_records(900))
    for record in records[:10]:
        journal.append(*record)
    tail.poll()
    for record in records[10:]:
        journal.append(*record)
    tail.poll()
    assert tail.series.totals == journal.state.totals()
    assert tail.series.batches == 900
    assert float(tail.series.table()["offered"].sum()) == sum(sum(o for o, _ in b.gates.values()) for _, b in records)
    journal.close()


def test_a_later_record_of_a_batch_replaces_the_earlier_one(tmp_path: Path) -> None:
    now = [100.0]
    journal, tail = Journal(tmp_path / "j", owner="job"), JournalTail(tmp_path / "j", now_s=lambda: now[0])
    tail.poll()
    journal.append(BatchRecord(0, {"in": (10, 4)}, mean_arrival_s=98.0))
    tail.poll()
    assert tail.series.last("delay_s") == 2.0  # it ended when it was seen, until the journal says more
    journal.append(BatchRecord(0, {"in": (10, 4)}, start_s=98.5, end_s=99.5, mean_arrival_s=98.0))
    now[0] = 101.0
    tail.poll()
    assert tail.series.last("delay_s") == 1.5
    assert (tail.series.batches, tail.series.totals) == (1, {"in": (10, 4)})
    journal.close()


def test_a_batch_that_ended_before_anybody_looked_gets_no_time(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", owner="job")
    journal.append(BatchRecord(0, {"in": (10, 4)}, mean_arrival_s=98.0))
    tail = JournalTail(tmp_path / "j")
    tail.poll()
    assert math.isnan(tail.series.column("end_s")[0])
    assert tail.series.totals == {"in": (10, 4)}
    journal.close()


def test_damaged_files_are_named_and_passed_over(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", 20)
    (path / "000000000003.json").write_bytes(b"penstock-journal-1 0000\n{}")
    tail = JournalTail(path)
    tail.poll()
    assert tail.series.batches == 19
    assert "000000000003.json is torn or damaged" in next(iter(tail.damage.values()))


def test_a_damaged_compacted_file_leaves_what_is_beside_it(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", 300)
    (compact,) = path.glob("*.compact.json")
    compact.write_bytes(b"nothing")
    tail = JournalTail(path)
    tail.poll()
    assert tail.series.batches == read_journal(path).compacted_batches + len(read_journal(path).batches)
    assert any("compact" in name for name in tail.damage)


def test_another_job_in_the_same_place_begins_anew(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", 50)
    tail = JournalTail(path)
    tail.poll()
    for file in path.iterdir():
        file.unlink()
    write_journal(path, 3)
    os.utime(path, (1.0, 1.0))
    tail.poll()
    assert tail.series.batches == 3


def test_a_missing_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal in"):
        JournalTail(tmp_path / "none").poll()


def test_nothing_is_written_and_no_lock_is_taken(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", 5)
    before = sorted((file.name, file.stat().st_mtime_ns) for file in path.iterdir())
    path.chmod(0o555)
    tail = JournalTail(path)
    tail.poll()
    assert tail.is_running is False
    assert sorted((file.name, file.stat().st_mtime_ns) for file in path.iterdir()) == before
    path.chmod(0o755)
    journal = Journal(path, owner="job")
    assert tail.is_running is True
    journal.close()
