"""A directory on a filesystem that pyarrow can reach: for commands that read what a job wrote, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, NoReturn

from pyarrow import fs

from penstock.storage.store import Store

__all__ = ["ArrowStore"]

_READERS = 16


class ArrowStore(Store):
    """Reads only: jobs write through Spark's own filesystems.

    Parameters
    ----------
    filesystem
        Of pyarrow.
    path
        The directory on it.
    location
        The directory as the user named it.
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, filesystem: fs.FileSystem, path: str, location: str) -> None:
        self._fs, self._path, self.location = filesystem, path, location

    def below(self, folder: str) -> ArrowStore:
        """Return the store of a directory below this one."""
        return ArrowStore(self._fs, f"{self._path}/{folder}", f"{self.location}/{folder}")

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return bool(self._fs.get_file_info(self._path).type == fs.FileType.Directory)

    def list_names(self, folder: str = "") -> list[str]:
        """Return the names in a directory."""
        selector = fs.FileSelector(f"{self._path}/{folder}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self._fs.get_file_info(selector)]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._fs.open_input_stream(f"{self._path}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Yield each name with the content of its file; several are read at once."""
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(partial(read_or_error, self), names)

    def _refuse(self) -> NoReturn:
        raise PermissionError(f"{self.location} is read without Spark, and only jobs write there")

    def make(self) -> None:
        """Refuse."""
        self._refuse()

    def create(self, name: str, content: bytes) -> None:  # noqa: ARG002 - it writes nothing
        """Refuse."""
        self._refuse()

    def replace(self, name: str, content: bytes) -> None:  # noqa: ARG002 - it writes nothing
        """Refuse."""
        self._refuse()

    def delete(self, name: str) -> None:  # noqa: ARG002 - it writes nothing
        """Refuse."""
        self._refuse()

    def copy(self, source: str, target: str) -> None:  # noqa: ARG002 - it writes nothing
        """Refuse."""
        self._refuse()

    def hold(self) -> NoReturn:
        """Refuse."""
        self._refuse()


def read_or_error(store: Store, name: str) -> tuple[str, bytes | OSError]:
    """Return a name with the content of its file, or with why it can't be read."""
    try:
        return name, store.read(name)
    except OSError as error:
        return name, error
