"""Messages through a directory: in order, once, and nothing that is not for us."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.coordination import DirectoryMailbox
from penstock.errors import PenstockError


def pair(tmp_path: Path, network: str = "x") -> tuple[DirectoryMailbox, DirectoryMailbox]:
    return DirectoryMailbox(tmp_path, "A", ["B"], network), DirectoryMailbox(tmp_path, "B", ["A"], network)


def the_file(tmp_path: Path, to: str = "B", sender: str = "A") -> Path:
    (found,) = (tmp_path / to / sender).glob("*.json")
    return found


def test_messages_come_in_order_and_once(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    for number in range(12):
        a.send("B", "measurements", {"n": number}, replaces=False)
    got = b.receive()
    assert [message.body["n"] for message in got] == list(range(12))
    assert [message.sender for message in got] == ["A"] * 12
    assert b.receive() == []
    assert not b.ignored


def test_a_newer_message_replaces_one_that_was_not_taken(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    assert a.send("B", "measurements", {"n": 1})
    a.send("B", "plan", {"n": 2})
    assert not a.send("B", "measurements", {"n": 3})
    assert [(m.kind, m.body["n"]) for m in b.receive()] == [("plan", 2), ("measurements", 3)]
    assert a.send("B", "measurements", {"n": 4})


def test_a_torn_message_is_ignored_and_counted_once(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    a.send("B", "measurements", {"n": 1})
    path = the_file(tmp_path)
    path.write_bytes(path.read_bytes()[:-3])
    assert b.receive() == []
    assert b.receive() == []
    assert b.ignored == {"torn": 1}
    a.send("B", "measurements", {"n": 2}, replaces=False)
    assert [m.body["n"] for m in b.receive()] == [2]


def test_an_empty_file_is_torn(tmp_path: Path) -> None:
    _, b = pair(tmp_path)
    (tmp_path / "B" / "A" / "000000001-000000000001.json").write_bytes(b"")
    assert b.receive() == []
    assert b.ignored == {"torn": 1}


def test_what_was_taken_is_not_taken_again(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    a.send("B", "measurements", {"n": 1})
    first = the_file(tmp_path)
    kept = tmp_path / first.name
    shutil.copy(first, kept)
    b.receive()
    shutil.copy(kept, first)
    assert b.receive() == []
    assert b.ignored == {"duplicated": 1}
    a.send("B", "measurements", {"n": 2})
    b.receive()
    shutil.copy(kept, first)
    assert b.receive() == []
    assert b.ignored == {"duplicated": 1, "stale": 1}


def test_also_after_a_restart_of_the_receiver(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    a.send("B", "measurements", {"n": 1})
    first = the_file(tmp_path)
    kept = tmp_path / first.name
    shutil.copy(first, kept)
    b.receive()
    again = DirectoryMailbox(tmp_path, "B", ["A"], "x")
    shutil.copy(kept, first)
    assert again.receive() == []
    assert again.ignored == {"duplicated": 1}


def test_a_restarted_sender_is_heard(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    for number in range(5):
        a.send("B", "measurements", {"n": number}, replaces=False)
    b.receive()
    again = DirectoryMailbox(tmp_path, "A", ["B"], "x")
    again.send("B", "measurements", {"n": 9})
    assert [m.body["n"] for m in b.receive()] == [9]
    (tmp_path / "A" / ".seen.json").unlink()  # even if it has lost its memory
    lost = DirectoryMailbox(tmp_path, "A", ["B"], "x")
    lost.send("B", "measurements", {"n": 10})
    assert [m.body["n"] for m in b.receive()] == [10]


def test_a_copy_under_another_name_is_a_duplicate(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    a.send("B", "measurements", {"n": 1})
    shutil.copy(the_file(tmp_path), tmp_path / "B" / "A" / "999999999-000000000001.json")
    assert [m.body["n"] for m in b.receive()] == [1]
    assert b.ignored == {"duplicated": 1}


def test_foreign_messages_are_ignored(tmp_path: Path) -> None:
    a, b = pair(tmp_path)
    (tmp_path / "B" / "stranger").mkdir()
    (tmp_path / "B" / "A" / "notes.txt").write_text("hello")
    other = DirectoryMailbox(tmp_path / "other", "A", ["B"], "another network")
    other.send("B", "plan", {"n": 0})
    other.send("B", "measurements", {"n": 1}, replaces=False)
    min((tmp_path / "other" / "B" / "A").glob("*.json")).unlink()
    wrong = the_file(tmp_path / "other")
    shutil.copy(wrong, tmp_path / "B" / "A" / wrong.name)
    a.send("B", "measurements", {"n": 2})
    newer = tmp_path / "B" / "A" / "000000001-000000000077.json"
    newer.write_bytes(b"penstock-message-2 0123456789abcdef\n{}")
    assert [m.body["n"] for m in b.receive()] == [2]
    assert b.ignored == {"foreign": 4}


def test_somebody_elses_mail_is_foreign(tmp_path: Path) -> None:
    a = DirectoryMailbox(tmp_path, "A", ["B", "C"], "x")
    b = DirectoryMailbox(tmp_path, "B", ["A"], "x")
    a.send("C", "measurements", {"n": 1})
    path = the_file(tmp_path, "C")
    shutil.copy(path, tmp_path / "B" / "A" / path.name)
    assert b.receive() == []
    assert b.ignored == {"foreign": 1}


def test_an_unknown_peer_is_refused(tmp_path: Path) -> None:
    a, _ = pair(tmp_path)
    with pytest.raises(PenstockError, match="has no peer 'C'; its peers are B"):
        a.send("C", "measurements", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cant_be_written_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PenstockError, match="cannot exchange messages in"):
        DirectoryMailbox(tmp_path / "m", "A", ["B"], "x")


def test_a_file_in_place_of_the_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(PenstockError, match=r"cannot exchange messages in .*m: "):
        DirectoryMailbox(tmp_path / "m", "A", ["B"], "x")
