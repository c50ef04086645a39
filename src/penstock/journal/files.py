"""The files of a journal: numbered, each written as a whole and checked by a checksum."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash
from pyarrow import fs

from penstock.errors import JournalError
from penstock.filesystem import DirectoryLock, resolve, write_atomically

__all__ = ["FILE_NAME", "FORMAT", "JournalFiles", "OWNER", "seal", "unseal"]

FORMAT = "penstock-journal-1"
FILE_NAME = re.compile(r"(\d{12})(\.compact)?\.json")
OWNER = "owner.json"


def seal(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content of a file: a header with a checksum, then one JSON object per line."""
    body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    return f"{FORMAT} {xxhash.xxh64_hexdigest(body)}\n".encode() + body


def unseal(content: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a file.

    Raises
    ------
    ValueError
        If the file is incomplete, or not one of a journal.
    """
    header, _, body = content.partition(b"\n")
    fields = header.decode(errors="replace").split()
    if len(fields) != 2 or fields[0] != FORMAT:
        raise ValueError(f"it does not begin with {FORMAT}")
    if fields[1] != xxhash.xxh64_hexdigest(body):
        raise ValueError("its checksum does not match")
    for line in body.splitlines():
        yield json.loads(line)


class JournalFiles:
    """The file operations that a journal needs, on any filesystem that pyarrow can reach.

    Parameters
    ----------
    location
        The directory, as a path or a URI.
    filesystem
        Where the directory is; by default its location says so.
    """

    def __init__(self, location: str | Path, filesystem: fs.FileSystem | None) -> None:
        self._fs, self.location = (filesystem, str(location)) if filesystem is not None else resolve(location, "the journal")
        self._lock = DirectoryLock(Path(self.location)) if isinstance(self._fs, fs.LocalFileSystem) else None

    def exists(self) -> bool:
        """Return whether the directory exists."""
        kind: fs.FileType = self._fs.get_file_info(self.location).type
        return bool(kind == fs.FileType.Directory)

    def prepare(self) -> None:
        """Create the directory, check that it can be written, and take the lock.

        Raises
        ------
        JournalError
            If it can't be written, or another job has the lock.
        """
        try:
            self._fs.create_dir(self.location, recursive=True)
            self.write(".probe", b"")
            self.delete(".probe")
        except OSError as error:
            reason = error.strerror or str(error).splitlines()[0]
            raise JournalError(f"the journal in {self.location} can't be written: {reason}") from error
        if self._lock is not None and not self._lock.acquire():
            raise JournalError(f"the journal in {self.location} is in use by another job: give each job a journal of its own")

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()

    def list_names(self) -> Iterator[str]:
        """Yield the names of all files."""
        for info in self._fs.get_file_info(fs.FileSelector(self.location, allow_not_found=True)):
            yield info.base_name

    def list_numbered(self) -> Iterator[str]:
        """Yield the names of the numbered files."""
        return (name for name in self.list_names() if FILE_NAME.fullmatch(name))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._fs.open_input_stream(f"{self.location}/{name}") as stream:
            content: bytes = stream.read()
        return content

    def write(self, name: str, content: bytes, *, exclusive: bool = False) -> None:
        """Write a file as a whole; it is durable when this returns. An exclusive one must not exist yet."""
        path = f"{self.location}/{name}"
        if exclusive and self._fs.get_file_info(path).type != fs.FileType.NotFound:
            raise OSError(f"{name} exists already: another job writes here")
        if self._lock is not None:
            write_atomically(Path(path), content, durable=True)
            return
        temporary = f"{self.location}/.{name}.tmp"
        with self._fs.open_output_stream(temporary) as stream:
            stream.write(content)
        self._fs.move(temporary, path)

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._fs.delete_file(f"{self.location}/{name}")
