"""A directory that looks like one of this machine and is storage elsewhere: a FUSE mount, such as a Databricks volume.

Other machines write there too, and the kernel keeps locks on it to itself. Object stores behind a mount have no hard links, no
append, and a rename that may be a copy. So a directory is held by a lease, and files are created with what is left: exclusively.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

from penstock.filesystem import write_aside, write_atomically
from penstock.storage.arrow_store import read_or_error
from penstock.storage.lease import Lease
from penstock.storage.local_store import LocalStore

__all__ = ["MountedStore", "find_mount_kind", "is_far_away", "open_local_store"]

_READERS = 16
_UNKNOWN = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK, errno.EXDEV, errno.EINVAL}
"""What a mount answers to a call that it does not have."""
_NEAR = {"fuseblk", "fuse.fuse-overlayfs", "fuse.overlayfs", "fuse.lxcfs", "fuse.grpcfuse", "fuse.ntfs-3g", "fuse.snapfuse"}
"""FUSE mounts of what lies on this machine."""
_MOUNTS = Path("/proc/self/mountinfo")


class MountedStore(LocalStore):
    """Files below a mount whose other side is far away.

    A file is linked to its name where the mount has links: it appears whole, and only if the name is free. Elsewhere it is opened
    exclusively; an object store shows it when it is closed.

    Parameters
    ----------
    location
        The directory.
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, location: str | Path) -> None:
        super().__init__(location)
        self._has_links = True  # until it says otherwise

    def below(self, folder: str) -> MountedStore:
        """Return the store of a directory below this one."""
        below = MountedStore(self._path / folder)
        below._has_links = self._has_links
        return below

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Yield each name with the content of its file; several are read at once."""
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(partial(read_or_error, self), names)

    def create(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet."""
        path = self._path / name
        if self._has_links:
            temporary = write_aside(path, content, durable=True)
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise FileExistsError(f"{name} exists already") from None
            except OSError as error:
                if error.errno not in _UNKNOWN:
                    raise
                self._has_links = False
            else:
                return
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink()
        _write_exclusively(path, content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, also over one that exists; in place where the mount can't rename over a file."""
        path = self._path / name
        try:
            write_atomically(path, content, durable=True)
        except OSError as error:
            if error.errno not in _UNKNOWN | {errno.EEXIST}:
                raise
            path.write_bytes(content)

    def is_held(self) -> None:
        """Return nothing: leases are not looked into."""
        return

    def hold(self) -> Lease:
        """Return a lease on the directory: a lock would hold on this machine alone."""
        return Lease(self)


def _write_exclusively(path: Path, content: bytes) -> None:
    try:
        stream = path.open("xb")
    except FileExistsError:
        raise FileExistsError(f"{path.name} exists already") from None
    try:
        with stream:  # an object store takes the file when it is closed, and may refuse it then
            stream.write(content)
            stream.flush()
            with contextlib.suppress(OSError):  # where it can't be asked for, closing must do
                os.fsync(stream.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def open_local_store(location: str | Path) -> LocalStore:
    """Return the store of a directory on a disk, or below a mount whose other side is far away."""
    return MountedStore(location) if is_far_away(find_mount_kind(Path(location))) else LocalStore(location)


def is_far_away(kind: str | None) -> bool:
    """Whether a kind of mount has its files elsewhere: FUSE, but for what lies on this machine.

    >>> is_far_away("fuse.dbfs"), is_far_away("ext4"), is_far_away("fuse.fuse-overlayfs")
    (True, False, False)
    """
    return kind is not None and kind.startswith("fuse") and kind not in _NEAR


def find_mount_kind(path: Path, mounts: Path = _MOUNTS) -> str | None:
    """Return the kind of the mount that a path is on, such as ``ext4``; ``None`` if the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    target = os.path.realpath(path)
    longest, kind = -1, None
    for line in lines:
        mount, _, rest = line.partition(" - ")
        fields = mount.split()
        if len(fields) < 5 or not rest:
            continue
        point = fields[4].replace("\\040", " ").rstrip("/")
        if (target == point or target.startswith(f"{point}/")) and len(point) >= longest:  # a later mount hides an earlier one
            longest, kind = len(point), rest.split()[0]
    return kind
