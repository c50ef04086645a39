"""Files: where an address leads, how a file is written whole, and how a directory is held by one process."""

from __future__ import annotations

import fcntl
import itertools
import os
import re
from pathlib import Path

from pyarrow import fs

from penstock.errors import PenstockError

__all__ = ["DirectoryLock", "FileLock", "find_holder", "is_locked", "resolve", "write_aside", "write_atomically"]

_NUMBERS = itertools.count()  # threads of one process must not share a temporary file


def resolve(location: str | Path, what: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem that an address names, and the path on it.

    >>> resolve("file:/data/x", "the journal")[1]
    '/data/x'
    """
    # Hadoop writes file:/x where an address has file:///x, and does not escape what stands behind it.
    text = re.sub(r"^file:/+", "/", str(location))
    if ":" not in text.split("/", 1)[0]:
        return fs.LocalFileSystem(), str(Path(text).absolute())
    try:
        # Hadoop's names for S3 mean nothing to pyarrow, but the place is the same.
        filesystem, path = fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", text))
    except (OSError, ValueError, NotImplementedError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise PenstockError(f"{what} {text} can't be reached without Spark: {reason}{_advise(text)}") from error
    return filesystem, path


def _advise(address: str) -> str:
    """Return what pyarrow needs for an address, as the end of a sentence."""
    scheme = address.split(":", 1)[0].lower()
    needs = {
        "hdfs": "it needs Hadoop's libhdfs with HADOOP_HOME and CLASSPATH set",
        "viewfs": "it needs Hadoop's libhdfs with HADOOP_HOME and CLASSPATH set",
        "s3": "it needs AWS credentials and a region in the environment",
        "s3a": "it needs AWS credentials and a region in the environment",
        "gs": "it needs Google's credentials in the environment",
        "abfs": "it needs Azure's credentials in the environment",
        "abfss": "it needs Azure's credentials in the environment",
    }
    return f"; {needs.get(scheme, 'known are paths and s3a, gs, abfss and hdfs addresses')}, or copy the directory to a disk"


def write_atomically(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Write a local file whole or not at all: under a hidden temporary name first, then renamed.

    A durable file is on the disk before it is renamed, so that not even a power cut leaves half of it. The rename itself is not
    forced to the disk: Spark does not do that for its own checkpoint either, and a power cut takes both back alike.
    """
    temporary = write_aside(path, content, durable=durable)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_aside(path: Path, content: bytes, *, durable: bool) -> Path:
    """Write what a file is to have under a hidden temporary name beside it; return that name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_NUMBERS)}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


class FileLock:
    """Holds a local file for one process, until ``release`` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    def acquire(self) -> bool:
        """Take the lock; false if another process, or another lock of this one, has it.

        Raises
        ------
        OSError
            If the filesystem has no locks.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError as error:
            os.close(handle)
            raise OSError(error.errno, f"its filesystem has no locks ({error.strerror})") from None
        self._handle = handle
        return True

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


class DirectoryLock(FileLock):
    """Holds a local directory, by a file in it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "lock")


def find_holder(directory: Path) -> bool | None:
    """Return whether a process of this machine holds a directory, without trying its lock; ``None`` if the system can't tell.

    To try a lock takes it for a moment, and a job that starts in that moment would fail.
    """
    try:
        inode = (directory / "lock").stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    return any(" FLOCK " in line and f":{inode} " in line for line in locks.splitlines())


def is_locked(directory: Path) -> bool:
    """Whether some process holds a directory."""
    lock = DirectoryLock(directory)
    if not (directory / "lock").exists():
        return False
    try:
        free = lock.acquire()
    except OSError:  # no locks here, so nobody holds one
        return False
    lock.release()
    return not free
