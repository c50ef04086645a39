"""Mounts whose other side is far away: no locks, perhaps no links, and renames that may not replace."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any, Self

import pytest

from penstock.errors import JournalError
from penstock.journal import BatchRecord, Journal, read_journal
from penstock.storage import HeldError, Lease, Store, open_store
from penstock.storage import mounted_store as module
from penstock.storage.local_store import LocalStore
from penstock.storage.mounted_store import MountedStore, find_mount_kind, is_far_away
from penstock.testing.stores import SharedStoreContract


class TestMounted(SharedStoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path

    def new_store(self) -> Store:
        return MountedStore(self.place / "new" / "store")


class TestWithoutLinksAndRenames(SharedStoreContract):
    """As an object store behind a mount may be."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = tmp_path

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(module.os, "link", refuse)
        monkeypatch.setattr(Path, "replace", refuse)

    def new_store(self) -> Store:
        return MountedStore(self.place / "new" / "store")


class _Full:
    """A file on a full disk."""

    def __init__(self, stream: IO[Any]) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def write(self, _: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("has_links", [True, False])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = MountedStore(tmp_path)
    store._has_links = has_links
    if has_links:
        monkeypatch.setattr(module.os, "link", full)
    else:
        opened = Path.open
        monkeypatch.setattr(Path, "open", lambda self, *how: _Full(opened(self, *how)))
    with pytest.raises(OSError, match="No space left"):
        store.create("x", b"1")
    assert list(tmp_path.iterdir()) == []


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:40 / /Volumes rw - fuse.dbfs dbfs rw
31 22 0:41 / /mnt/with\\040space rw - fuse.gcsfuse bucket rw
32 22 0:42 / /data rw - fuse.gcsfuse bucket rw
33 22 0:43 / /data rw - xfs /dev/data rw
34 22 0:44 / /home rw - fuse.fuse-overlayfs overlay rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_far"),
    [
        ("/Volumes/main/default/v/checkpoint", "fuse.dbfs", True),
        ("/Volumes", "fuse.dbfs", True),
        ("/VolumesElse/x", "ext4", False),
        ("/mnt/with space/x", "fuse.gcsfuse", True),
        ("/data/x", "xfs", False),
        ("/home/x", "fuse.fuse-overlayfs", False),
    ],
)
def test_which_mounts_lie_far_away(tmp_path: Path, path: str, kind: str, is_far: bool) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert find_mount_kind(Path(path), mounts) == kind
    assert is_far_away(kind) == is_far
    assert find_mount_kind(Path(path), tmp_path / "none") is None
    assert not is_far_away(None)


def test_a_journal_below_a_mount_is_held_by_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks there hold on one machine, if they do at all."""
    assert isinstance(open_store(tmp_path, "the journal"), LocalStore)
    monkeypatch.setattr(module, "find_mount_kind", lambda _: "fuse.dbfs")
    store = open_store(tmp_path, "the journal")
    assert isinstance(store, MountedStore)
    assert store.is_remote
    assert store.is_held() is None
    first = Journal(store, "job")
    monkeypatch.setattr(Lease, "acquire", lambda _: (_ for _ in ()).throw(HeldError("a driver on far holds it")))
    with pytest.raises(JournalError, match="is in use by another job"):
        Journal(store, "job")
    first.append(BatchRecord(0, {"in": (10, 4)}))
    first.close()
    assert not (tmp_path / "lock").exists()
    assert read_journal(store).batches[0].gates == {"in": (10, 4)}
