"""What Penstock reads from a query's checkpoint: whose it is, and which batches were planned and committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.spark.offsets import is_kafka, rows_between
from penstock.storage import Store, open_store

__all__ = ["Checkpoint", "find_open_batch", "parse_offsets"]

_NO_TOPIC = "{}"
"""What Spark logs for a pattern that matches no topic yet."""


class Checkpoint:
    """The checkpoint directory of a streaming query; never written to.

    Parameters
    ----------
    location
        The directory: a path, or its store.
    """

    def __init__(self, location: str | Path | Store) -> None:
        self.store = open_store(location, "the checkpoint")

    @property
    def path(self) -> str:
        """The directory."""
        return self.store.location

    def query_id(self) -> str | None:
        """Return the id that Spark gave the query; ``None`` before its first start."""
        content = self._read("metadata")
        return None if content is None else str(json.loads(content)["id"])

    def list_committed(self) -> list[int]:
        """Return the batches that Spark has committed, as far back as its log goes."""
        return self._list_numbers("commits")

    def list_planned(self) -> list[int]:
        """Return the batches whose offsets are logged: the committed ones, and perhaps one more."""
        return self._list_numbers("offsets")

    def find_next(self) -> int:
        """Return the batch that the next run begins with: the one that is planned and not committed, else a new one.

        With asynchronous progress tracking, batches before the open one may have no commit. They don't run again.
        """
        planned, committed = max(self.list_planned(), default=-1), max(self.list_committed(), default=-1)
        return planned if planned > committed else committed + 1

    def last_planned_s(self) -> float | None:
        """Return when Spark had planned its last batch: it has no row that arrived later.

        ``None`` before the first, and where batches were not logged, as asynchronous progress tracking leaves some out.
        """
        planned = self.list_planned()
        is_whole = bool(planned) and planned[-1] - planned[0] == len(planned) - 1
        content = self._read(f"offsets/{planned[-1]}") if is_whole else None
        return None if content is None else parse_planned_s(content)

    def offsets(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the end of a batch, as JSON."""
        content = self._read(f"offsets/{batch_id}")
        if content is None:
            raise PenstockError(f"the checkpoint {self.path} has no offsets for batch {batch_id}")
        return parse_offsets(content)

    def starts(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the start of a batch, as JSON; ``None`` where a source begins at its beginning.

        Where a query that reads Kafka began, Spark has logged as well, whatever ``startingOffsets`` said.
        """
        before = self.offsets(batch_id - 1) if batch_id > 0 else [None] * len(self.offsets(batch_id))
        return [self._first_offset(source) if offset is None else offset for source, offset in enumerate(before)]

    def count_rows(
        self, batch_id: int, sources: Sequence[str], rows_of_file: Callable[[str], int | None]
    ) -> dict[str, int | None]:
        """Return how many rows a batch has from each source, where offsets or files tell; ``None`` for other sources.

        ``sources`` are names for the query's sources in Spark's order; ``rows_of_file`` returns how many rows a file has.
        """
        end, start = self.offsets(batch_id), self.starts(batch_id)
        counts: dict[str, int | None] = {}
        for index, (name, before, after) in enumerate(zip(sources, start, end, strict=True)):
            rows = rows_between(before, after)
            counts[name] = self._count_file_rows(index, before, after, rows_of_file) if rows is None else rows
        return counts

    def _count_file_rows(
        self, source: int, before: str | None, after: str | None, rows_of_file: Callable[[str], int | None]
    ) -> int | None:
        """Add up the rows of the files that Spark's file source read between two offsets: it logs them before the batch runs."""
        if after is None:
            return 0
        offsets = [None if text is None else json.loads(text) for text in (before, after)]
        if not all(offset is None or (isinstance(offset, dict) and "logOffset" in offset) for offset in offsets):
            return None
        first, last = (-1 if offset is None else int(offset["logOffset"]) for offset in offsets)
        total = 0
        for number in range(first + 1, last + 1):
            content = self._read(f"sources/{source}/{number}") or self._read(f"sources/{source}/{number}.compact")
            for path in _list_files(content or "", number):
                rows = rows_of_file(path)
                if rows is None:
                    return None
                total += rows
        return total

    def _first_offset(self, source: int) -> str | None:
        """Return the offsets at which a Kafka source of a new query began."""
        last = ((self._read(f"sources/{source}/0") or "").splitlines() or [""])[-1]
        return last if is_kafka(last) or last == _NO_TOPIC else None

    def _list_numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self.store.list_names(folder) if name.isdigit())

    def _read(self, name: str) -> str | None:
        try:
            return self.store.read(name).decode()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _list_files(content: str, number: int) -> Iterator[str]:
    r"""Yield the files of an entry of a file source's log. They come last: a compacted one has all files that were ever read.

    >>> lines = ['{"path":"a","batchId":8}', '{"path":"b","batchId":9}', '{"path":"c","batchId":9}']
    >>> list(_list_files("v1\n" + "\n".join(lines), 9)), list(_list_files("v1\n" + lines[0] + "\n", 8)), list(_list_files("", 0))
    (['c', 'b'], ['a'], [])
    """
    end = len(content.rstrip())
    while (start := content.rfind("\n", 0, end) + 1) > 0:  # the first line is the version
        entry = json.loads(content[start:end])
        if int(entry["batchId"]) != number:
            return
        yield str(entry["path"])
        end = start - 1


def parse_planned_s(content: str) -> float | None:
    r"""Return when Spark had planned a batch, from its entry of the offset log.

    >>> parse_planned_s('v1\n{"batchWatermarkMs":0,"batchTimestampMs":7500}\n{"n":5}')
    7.5
    """
    _, metadata, *_ = [*content.splitlines(), "", ""]
    planned_ms = json.loads(metadata or "{}").get("batchTimestampMs")
    return None if planned_ms is None else planned_ms / 1e3


def parse_offsets(content: str) -> list[str | None]:
    r"""Return the offset of each source from an entry of Spark's offset log.

    >>> parse_offsets('v1\n{"batchTimestampMs":7}\n{"n":5}\n-')
    ['{"n":5}', None]
    """
    lines = content.splitlines()[2:]  # after the version and the batch's metadata
    return [None if line == "-" else line for line in lines]


def find_open_batch(location: str | Path | Store | None) -> int | None:
    """Return the batch that is planned and not committed, which the next start replays; ``None`` if there is none."""
    if location is None:
        return None
    checkpoint = Checkpoint(location)
    planned = max(checkpoint.list_planned(), default=-1)
    return planned if planned > max(checkpoint.list_committed(), default=-1) else None
