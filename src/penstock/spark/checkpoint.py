"""What Penstock reads of a query's checkpoint: whose it is, and what was committed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from pyarrow import fs

from penstock.errors import PenstockError
from penstock.filesystem import resolve
from penstock.spark.offsets import rows_between

__all__ = ["Checkpoint"]


class Checkpoint:
    """A streaming query's checkpoint directory, read only."""

    def __init__(self, location: str | Path) -> None:
        self.filesystem, self.path = resolve(location, "the checkpoint")

    def query_id(self) -> str | None:
        """Return Spark's id of the query; ``None`` before its first start."""
        content = self._read("metadata")
        return None if content is None else str(json.loads(content)["id"])

    def committed(self) -> list[int]:
        """Return the batches that Spark has committed, as far as its log goes back."""
        return self._numbers("commits")

    def planned(self) -> list[int]:
        """Return the batches whose offsets are in the log: those committed, and perhaps one more."""
        return self._numbers("offsets")

    def offsets(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the end of a batch, as JSON."""
        content = self._read(f"offsets/{batch_id}")
        if content is None:
            raise PenstockError(f"the checkpoint {self.path} has no offsets of batch {batch_id}")
        lines = content.splitlines()[2:]  # after the version and the batch's metadata
        return [None if line == "-" else line for line in lines]

    def entry_rows(
        self, batch_id: int, sources: Sequence[str], rows_of_file: Callable[[str], int | None]
    ) -> dict[str, int | None]:
        """Return the rows of a batch by source, where its offsets count rows or its files do; ``None`` for one that doesn't."""
        end = self.offsets(batch_id)
        start = self.offsets(batch_id - 1) if batch_id > 0 else [None] * len(end)
        found: dict[str, int | None] = {}
        for place, (name, before, after) in enumerate(zip(sources, start, end, strict=True)):
            rows = rows_between(before, after)
            if rows is None:
                rows = self._file_rows(place, before, after, rows_of_file)
            found[name] = rows
        return found

    def _file_rows(
        self, source: int, before: str | None, after: str | None, rows_of_file: Callable[[str], int | None]
    ) -> int | None:
        """Add up the files that Spark's file source took from one offset to the next: it logs them before the batch runs."""
        if after is None:
            return 0
        marks = [None if text is None else json.loads(text) for text in (before, after)]
        if not all(mark is None or (isinstance(mark, dict) and "logOffset" in mark) for mark in marks):
            return None
        first, last = (-1 if mark is None else int(mark["logOffset"]) for mark in marks)
        total = 0
        for number in range(first + 1, last + 1):
            content = self._read(f"sources/{source}/{number}") or self._read(f"sources/{source}/{number}.compact")
            for line in (content or "").splitlines()[1:]:
                entry = json.loads(line)
                if int(entry["batchId"]) == number:
                    rows = rows_of_file(str(entry["path"]))
                    if rows is None:
                        return None
                    total += rows
        return total

    def _numbers(self, folder: str) -> list[int]:
        selector = fs.FileSelector(f"{self.path}/{folder}", allow_not_found=True)
        names = (info.base_name for info in self.filesystem.get_file_info(selector))
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, name: str) -> str | None:
        path = f"{self.path}/{name}"
        if self.filesystem.get_file_info(path).type != fs.FileType.File:
            return None
        with self.filesystem.open_input_stream(path) as stream:
            return str(stream.read().decode())
