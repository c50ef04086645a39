"""Addresses, whole files, locks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import fs

from penstock import filesystem
from penstock.errors import PenstockError
from penstock.filesystem import DirectoryLock, is_locked, resolve, write_atomically


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/data/x", "/data/x"),
        ("/data/a:b", "/data/a:b"),
        (Path("/data/x"), "/data/x"),
        ("file:/data/x", "/data/x"),
        ("file:///data/x", "/data/x"),
        ("/data/with space/100%", "/data/with space/100%"),
    ],
)
def test_local_addresses(address: str | Path, path: str) -> None:
    found, where = resolve(address, "the journal")
    assert isinstance(found, fs.LocalFileSystem)
    assert where == path


def test_a_relative_path_is_one_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("below/x", "the journal")[1] == str(tmp_path / "below" / "x")


@pytest.mark.parametrize("address", ["warp://x/y", "file:x", "hdfs:"])
def test_an_address_that_leads_nowhere_is_named_in_one_line(address: str) -> None:
    with pytest.raises(PenstockError, match="the checkpoint ") as caught:
        resolve(address, "the checkpoint")
    assert address in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_written_whole(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "x.json"
    for content in (b"a" * 100_000, b"b"):
        write_atomically(path, content, durable=durable)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_durable_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(filesystem.os, "fsync", synced.append)
    write_atomically(tmp_path / "x", b"a")
    assert not synced
    write_atomically(tmp_path / "x", b"a", durable=True)
    assert synced


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(filesystem.os if step == "fsync" else Path, step, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new", durable=True)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "none" / "x", b"a")


def test_a_directory_is_held_once(tmp_path: Path) -> None:
    one, two = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    assert not is_locked(tmp_path)
    assert one.acquire()
    assert not two.acquire()
    assert is_locked(tmp_path)
    assert is_locked(tmp_path), "asking takes nothing away"
    two.release()
    assert is_locked(tmp_path), "who does not hold it gives nothing back"
    one.release()
    one.release()
    assert not is_locked(tmp_path)
    assert two.acquire()
    two.release()


def test_asking_leaves_no_file(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert not is_locked(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_process_releases_its_lock(tmp_path: Path) -> None:
    code = (
        "import sys, os; from pathlib import Path; from penstock.filesystem import DirectoryLock, is_locked\n"
        "path = Path(sys.argv[1]); sys.exit(0 if DirectoryLock(path).acquire() and is_locked(path) else 1)"
    )
    lock = DirectoryLock(tmp_path)
    assert lock.acquire()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 1, "another process sees it"
    lock.release()
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
    assert not is_locked(tmp_path)


def test_two_threads_that_write_one_file_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, replace = tmp_path / "x", Path.replace
    pending = [b"second"]

    def interrupted(self: Path, target: Path) -> Path:
        if pending:  # another thread writes the same file from start to end
            write_atomically(path, pending.pop())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    write_atomically(path, b"first")
    assert path.read_bytes() == b"first"


def test_an_address_as_hadoop_writes_it_may_have_spaces() -> None:
    assert resolve("file:/data/my checkpoints/x", "the journal")[1] == "/data/my checkpoints/x"


def test_a_filesystem_without_locks_is_not_taken_for_one_that_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(filesystem.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="its filesystem has no locks") as caught:
        DirectoryLock(tmp_path).acquire()
    assert "\n" not in str(caught.value)
