"""The tables of a query's batches as the client writes them: a file each, which Spark's workers read (``batch_lookup``)."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.drop.tables import ALWAYS, SCALE, SLOT_SHIFT, BatchTable, KeepTable, round_up
from penstock.errors import PenstockError
from penstock.filesystem import resolve, write_atomically
from penstock.spark.connect.batch_lookup import FIRST, RETAINED, create_once, file_of, find_stand_in, list_numbers, read_file

__all__ = ["BatchFile", "BatchTables", "directory_of", "place_of", "to_fields"]


_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class BatchFile:
    """What the file of a batch says."""

    decided_for: int | None
    """The batch whose decision it has; ``None`` where slots judge, or nothing was decided yet."""
    is_stand_in: bool
    """Whether a worker wrote it, because no decision came."""


class BatchTables:
    """The files of one query.

    Parameters
    ----------
    directory
        Where they lie: both this process and Spark's Python workers see it.
    offsets
        Spark's offset log, which both see too.

    Raises
    ------
    PenstockError
        If they can't be written.
    """

    def __init__(self, directory: Path, offsets: Path) -> None:
        self._directory, self._offsets = directory, offsets
        self._open: Mapping[str, KeepTable] = {}
        self._looked_s = 0.0
        with self._writing(directory):
            directory.mkdir(parents=True, exist_ok=True)

    def prepare(self, places: Mapping[str, Path], tables: Mapping[str, KeepTable], next_batch: int) -> None:
        """Before the query starts: say where everything is, and what holds until the first decision.

        Files of batches that Spark has yet to plan are of a checkpoint that is gone, or was set back. One that is not whole was
        never read.
        """
        with self._writing(self._directory):
            for number in list_numbers(str(self._directory)):
                old = file_of(str(self._directory), number)
                if number >= next_batch or read_file(old) is None:
                    Path(old).unlink(missing_ok=True)
        self._open = tables
        self.announce()
        for path in places.values():
            self._replace(path, {"offsets": str(self._offsets), "batches": str(self._directory)})

    def announce(self) -> None:
        """Let the next batch wait for its decision again: there is a client."""
        content = {**_describe(self._open, None), "client": uuid.uuid4().hex}
        self._replace(self._directory / FIRST, content)

    def offer(self, batch_id: int, tables: Mapping[str, KeepTable], decided_for: int | None) -> bool:
        """Put the tables of a batch in force; false if its file is there already."""
        path = file_of(str(self._directory), batch_id)
        with self._writing(Path(path)):
            return create_once(path, _describe(tables, decided_for), durable=False)

    def find(self, batch_id: int) -> BatchFile | None:
        """Return what the file of a batch says; ``None`` if there is none."""
        content = read_file(file_of(str(self._directory), batch_id))
        return None if content is None else BatchFile(content["decided_for"], content["is_stand_in"])

    def find_stand_in(self, batch_id: int) -> BatchFile | None:
        """Return what a worker does that finds no file of a batch and can't write one; ``None`` if it finds nothing at all."""
        content = find_stand_in(str(self._directory), batch_id)
        return None if content is None else BatchFile(content["decided_for"], is_stand_in=True)

    def list_batches(self) -> list[int]:
        """Return the batches that have a file."""
        return sorted(list_numbers(str(self._directory)))

    def is_planned(self, batch_id: int) -> bool:
        """Whether Spark has logged the offsets of a batch."""
        return os.path.exists(self._offsets / str(batch_id))  # noqa: PTH110 - a mount that fails for a moment is no error here

    def find_planned(self, expected: int) -> int | None:
        """Return the batch whose offsets Spark has logged: the expected one, or a later one where that has left the log.

        The whole log is looked at once per second.
        """
        if self.is_planned(expected):
            return expected
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_S:
            return None
        self._looked_s = now_s
        planned = list_numbers(str(self._offsets)) if self._offsets.is_dir() else []  # a new query has no log yet
        return max(planned) if planned and max(planned) >= expected else None

    def forget_before(self, batch_id: int) -> None:
        """Remove what no replay needs any more."""
        with contextlib.suppress(OSError):
            for number in list_numbers(str(self._directory)):
                if number < batch_id - RETAINED:
                    Path(file_of(str(self._directory), number)).unlink(missing_ok=True)

    def _replace(self, path: Path, content: Mapping[str, Any]) -> None:
        """Replace a file, unless it says the same: a worker may be about to read it."""
        if read_file(str(path)) == content:
            return
        with self._writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(content, separators=(",", ":")).encode(), durable=True)

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise PenstockError(f"the tables of batches can't be written to {path}: {error.strerror}") from error


def directory_of(directory: str, query: str) -> Path:
    """Return where the tables of a query's batches lie.

    >>> directory_of("file:/shared", "packets").as_posix()
    '/shared/tables/7061636b657473.query'
    """
    _, local = resolve(directory, "the tables of batches")
    return Path(local) / "tables" / f"{query.encode().hex()}.query"


def place_of(directory: Path, gate: str) -> Path:
    """Return the file by which workers find the tables of a gate.

    >>> place_of(directory_of("/shared", "packets"), "in").name
    '696e.gate.json'
    """
    return directory / f"{gate.encode().hex()}.gate.json"


def _describe(tables: Mapping[str, KeepTable], decided_for: int | None) -> dict[str, Any]:
    return {
        "decided_for": decided_for,
        "is_stand_in": False,
        "tables": {gate: to_fields(table) for gate, table in tables.items()},
    }


def to_fields(table: KeepTable) -> list[Any]:
    """Return a table as ``batch_lookup.TABLE_SCHEMA`` has it.

    - ``line``: rows that arrived before it are old, in microseconds; ``latest``: those after it come from the future;
    - ``shift``, ``oldest``, ``newest``: the age of a row is its arrival, shifted, between the two, less the first;
    - ``thresholds``: by age, then by class, what a hash must be below; a last row of them is for rows without an arrival, which
      count as new by batch, and are always kept by slots.

    >>> to_fields(BatchTable.of([0.5], older=[0.25], line=1_000, latest=3_000)) == [
    ...     1_000, 3_000, 0, 999, 1_000, [2**51, 2**52, 2**52]
    ... ]
    True
    """
    is_by_batch = isinstance(table, BatchTable)
    oldest = table.oldest - 1 if is_by_batch else table.oldest
    keeps = np.asarray(table.keeps)
    without_arrival = keeps[-1:] if is_by_batch else np.ones_like(keeps[-1:])
    thresholds = (round_up(np.concatenate([keeps, without_arrival])) * SCALE).astype(np.int64)
    return [
        table.oldest if is_by_batch else ALWAYS,
        table.latest,
        0 if is_by_batch else SLOT_SHIFT,
        oldest,
        oldest + len(keeps) - 1,
        thresholds.ravel().tolist(),
    ]
