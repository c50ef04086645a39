"""What must be remembered of a batch to find the rows again that it shed: where they lie, and the table that judged them.

Spark's offset log and the journal have the same, but both forget. This log does not: a line per batch that shed, some dozens of
lines in a file, below the query's checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.journal.files import seal, unseal
from penstock.storage import Store, open_store

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
        The directory of the query's checkpoint: a path, an address, or a store.
    """

    def __init__(self, checkpoint: str | Path | Store) -> None:
        self._store = open_store(checkpoint, "the checkpoint").below(DIRECTORY)
        self._block: tuple[int, dict[tuple[int, str], ShedRecord]] | None = None

    @property
    def location(self) -> str:
        """The directory."""
        return self._store.location

    def exists(self) -> bool:
        """Return whether there is a log."""
        return self._store.exists()

    def add(self, record: ShedRecord) -> None:
        """Write a record; it is durable when this returns, and replaces one of the same batch and gate."""
        number = record.batch // _BATCHES_PER_FILE
        if self._block is None or self._block[0] != number:
            self._store.make()
            there = self._read(_name(number)) if _name(number) in self._store.list_names() else []
            self._block = number, {(one.batch, one.gate): one for one in there}
        records = dict(self._block[1])
        if records.get((record.batch, record.gate)) != record:
            records[record.batch, record.gate] = record
            self._store.replace(_name(number), seal(asdict(one) for _, one in sorted(records.items())))
            self._block = number, records

    def read(self) -> Iterator[ShedRecord]:
        """Yield all records, oldest first.

        Raises
        ------
        PenstockError
            If there is no log, or a file of it is damaged.
        """
        if not self.exists():
            raise PenstockError(f"there is no log of shed rows in {self.location}: give the gate shed_to='offsets'")
        for name in sorted(name for name in self._store.list_names() if name.endswith(".json") and name[0] != "."):
            yield from self._read(name)

    def _read(self, name: str) -> list[ShedRecord]:
        content = self._store.read(name)
        try:
            return [ShedRecord.decode(line) for line in unseal(content)]
        except (ValueError, KeyError, TypeError) as error:
            raise PenstockError(f"{self.location}/{name} is damaged: {error}") from None


def _name(block: int) -> str:
    return f"{block:012d}.json"
