"""A directory on a disk of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import ClassVar

from penstock.filesystem import DirectoryLock, find_holder, write_atomically
from penstock.storage.store import HeldError, Hold, Store

__all__ = ["LocalStore"]


class LocalStore(Store):
    """Files on a disk: written under a temporary name, synced and renamed; held by a lock that ends with its process.

    Parameters
    ----------
    location
        The directory.

    Examples
    --------
    >>> import tempfile
    >>> store = LocalStore(tempfile.mkdtemp())
    >>> store.create("x", b"1")
    >>> store.list_names(), store.read("x")
    (['x'], b'1')
    """

    is_remote: ClassVar[bool] = False

    def __init__(self, location: str | Path) -> None:
        self._path = Path(location)
        self.location = str(location)

    def below(self, folder: str) -> LocalStore:
        """Return the store of a directory below this one."""
        return LocalStore(self._path / folder)

    def make(self) -> None:
        """Make the directory."""
        self._path.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return self._path.is_dir()

    def list_names(self, folder: str = "") -> list[str]:
        """Return the names in a directory."""
        try:
            return [path.name for path in (self._path / folder).iterdir()]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self._path / name).read_bytes()

    def create(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet. Jobs that hold the directory never race for it; others might."""
        self._create(name, content, durable=True)

    def create_unsynced(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet, and leave it to the system when it gets to the disk."""
        self._create(name, content, durable=False)

    def _create(self, name: str, content: bytes, *, durable: bool) -> None:
        path = self._path / name
        if path.exists():
            raise FileExistsError(f"{name} exists already")
        write_atomically(path, content, durable=durable)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, also over one that exists."""
        write_atomically(self._path / name, content, durable=True)

    def delete(self, name: str) -> None:
        """Remove a file or a directory."""
        path = self._path / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def copy(self, source: str, target: str) -> None:
        """Copy a file or a directory."""
        origin, copied = self._path / source, self._path / target
        copied.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, copied, dirs_exist_ok=True)
        elif origin.exists():
            shutil.copyfile(origin, copied)

    def changed_s(self) -> float | None:
        """Return when a file was last added or removed."""
        try:
            return self._path.stat().st_mtime
        except OSError:
            return None

    def is_held(self) -> bool | None:
        """Return whether a process of this machine holds the directory."""
        return find_holder(self._path)

    def hold(self) -> Hold:
        """Return the lock of the directory."""
        return LocalHold(self._path)


class LocalHold:
    """A lock on a directory, which the system releases when the process ends, however that happens."""

    def __init__(self, directory: Path) -> None:
        self._lock = DirectoryLock(directory)

    def acquire(self) -> None:
        """Take the lock."""
        if not self._lock.acquire():
            raise HeldError("another job has locked it")

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()
