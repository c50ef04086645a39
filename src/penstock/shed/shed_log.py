"""What must be remembered of a batch to find the rows again that it shed: where they lie, and the table that judged them.

Spark's offset log and the journal have the same, but both forget. This log does not: a line per batch that shed, some dozens of
lines in a file, below the query's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.filesystem import resolve, write_atomically
from penstock.journal.files import seal, unseal

__all__ = ["DIRECTORY", "OffsetRange", "ShedLog", "ShedRecord"]

DIRECTORY = "penstock-shed"
"""The name of the log's directory, below a checkpoint."""
_BATCHES_PER_FILE = 64


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Consecutive offsets of one partition: from the first on, before the end."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ShedRecord:
    """One gate in one batch."""

    batch: int
    gate: str
    keep: float
    """Of rows that are not old."""
    ranges: tuple[OffsetRange, ...]
    older_keep: float | None = None
    """Of rows that arrived before ``line``; ``None`` if age does not matter."""
    line: int | None = None
    """A moment in microseconds since the epoch."""

    @property
    def has_ages(self) -> bool:
        """Whether the arrival of a row decides, too."""
        return self.older_keep is not None

    @classmethod
    def decode(cls, line: Any) -> ShedRecord:
        """Return the record from a line of the log."""
        ranges = tuple(OffsetRange(**one) for one in line["ranges"])
        return cls(**{name: value for name, value in line.items() if name != "ranges"}, ranges=ranges)


class ShedLog:
    """The log below one checkpoint.

    Parameters
    ----------
    checkpoint
        The directory of the query's checkpoint, as a path or a URI.
    """

    def __init__(self, checkpoint: str | Path) -> None:
        self._fs, path = resolve(checkpoint, "the checkpoint")
        self.location = f"{path}/{DIRECTORY}"
        self._block: tuple[int, dict[tuple[int, str], ShedRecord]] | None = None

    def exists(self) -> bool:
        """Return whether there is a log."""
        return bool(self._fs.get_file_info(self.location).type == fs.FileType.Directory)

    def add(self, record: ShedRecord) -> None:
        """Write a record; it is durable when this returns, and replaces one of the same batch and gate."""
        number = record.batch // _BATCHES_PER_FILE
        if self._block is None or self._block[0] != number:
            self._fs.create_dir(self.location, recursive=True)
            there = self._read(_name(number)) if self._has(_name(number)) else []
            self._block = number, {(one.batch, one.gate): one for one in there}
        records = self._block[1]
        if records.get((record.batch, record.gate)) != record:
            records[record.batch, record.gate] = record
            self._write(_name(number), seal(asdict(one) for _, one in sorted(records.items())))

    def read(self) -> Iterator[ShedRecord]:
        """Yield all records, oldest first.

        Raises
        ------
        PenstockError
            If there is no log, or a file of it is damaged.
        """
        if not self.exists():
            raise PenstockError(f"there is no log of shed rows in {self.location}: give the gate shed_to='offsets'")
        infos = self._fs.get_file_info(fs.FileSelector(self.location))
        for name in sorted(info.base_name for info in infos if info.base_name.endswith(".json") and info.base_name[0] != "."):
            yield from self._read(name)

    def _read(self, name: str) -> list[ShedRecord]:
        with self._fs.open_input_stream(f"{self.location}/{name}") as stream:
            content = stream.read()
        try:
            return [ShedRecord.decode(line) for line in unseal(content)]
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(f"{self.location}/{name} is damaged: {error}") from None

    def _has(self, name: str) -> bool:
        return bool(self._fs.get_file_info(f"{self.location}/{name}").type == fs.FileType.File)

    def _write(self, name: str, content: bytes) -> None:
        path = f"{self.location}/{name}"
        if isinstance(self._fs, fs.LocalFileSystem):
            write_atomically(Path(path), content, durable=True)
            return
        temporary = f"{self.location}/.{name}.tmp"
        with self._fs.open_output_stream(temporary) as stream:
            stream.write(content)
        self._fs.move(temporary, path)


def _name(block: int) -> str:
    return f"{block:012d}.json"
