"""A gate's table as a file of one row, which a running query reads anew before every batch."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.drop.tables import ALWAYS, SCALE, SLOTS, KeepTable, round_up
from penstock.errors import PenstockError
from penstock.filesystem import FileLock, resolve, write_atomically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TableFile"]

_HELD: dict[Path, tuple[FileLock, int]] = {}
"""The locks of files that queries of this process read, with the number of these."""
_HOLDING = threading.Lock()
_SCHEMA = "oldest bigint, last bigint, thresholds array<bigint>"
_DIGITS = len(f"{SCALE:.0f},")


class TableFile:
    """The table of one gate, in a place that both this process and Spark see.

    Spark lists the file once, when the query starts, and remembers its length. So the content is always padded to the same
    length, and the file is replaced as a whole.

    Parameters
    ----------
    path
        The file.
    columns
        How many numbers a slot has.

    Raises
    ------
    PenstockError
        If the file can't be written.
    """

    def __init__(self, path: str, columns: int) -> None:
        scheme, separator, _ = path.partition("://")
        if separator and scheme.lower() != "file":
            raise PenstockError(f"the tables of gates over Spark Connect must be local files, got {path}: mount the place")
        _, local = resolve(path, "the table of a gate")
        self._path = Path(local)
        self._length = SLOTS * columns * _DIGITS + 100
        self.reached: int | None = None
        """The last slot decided in the table that an earlier process left, ``ALWAYS`` if none was; ``None``: it left no table."""

    def prepare(self, table: KeepTable) -> None:
        """Write a first table; one that is there already may be read by a query that runs, and stays."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self.reached = self._read_last()
            if not self._path.exists():
                self.write(table)
        except OSError as error:
            raise PenstockError(f"the table of a gate can't be written to {self._path}: {error.strerror}") from error

    @contextlib.contextmanager
    def hold(self, gate: str) -> Iterator[None]:
        """Keep the file for the queries of this process.

        Raises
        ------
        PenstockError
            If another process has it: its gate of the same name would read the same table.
        """
        with _HOLDING:
            lock, users = _HELD.get(self._path, (FileLock(self._path.with_suffix(".lock")), 0))
            if not users and not _is_ours(lock):
                raise PenstockError(
                    f"the table of gate {gate!r}, {self._path}, is in use by another job: give the gate another name, "
                    "or each job a journal= of its own"
                )
            _HELD[self._path] = (lock, users + 1)
        try:
            yield
        finally:
            with _HOLDING:
                lock, users = _HELD.pop(self._path)
                if users > 1:
                    _HELD[self._path] = (lock, users - 1)
                else:
                    lock.release()

    def write(self, table: KeepTable) -> None:
        """Replace the table. Queries read it from their next batch on."""
        thresholds = (round_up(table.keeps) * SCALE).astype(np.int64)  # whole numbers, as the classic gate compares them
        fields = {"oldest": table.oldest, "last": len(table.keeps) - 1, "thresholds": thresholds.ravel().tolist()}
        content = json.dumps(fields, separators=(",", ":"))
        write_atomically(self._path, f"{content:<{self._length}}\n".encode(), durable=True)

    def is_whole(self) -> bool:
        """Whether the file is there and holds a table, as far as this process sees it."""
        try:
            return "thresholds" in json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return False

    def _read_last(self) -> int | None:
        try:
            fields = json.loads(self._path.read_bytes())
            return int(fields["oldest"] + fields["last"] if fields["oldest"] > ALWAYS else ALWAYS)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def read(self, spark: SparkSession) -> Column:
        """Return the table as a struct column: the oldest slot, the number of the last one, and all keeps times ``SCALE``."""
        rows = spark.read.schema(_SCHEMA).json(str(self._path))
        return rows.select(F.struct("oldest", "last", "thresholds")).scalar()


def _is_ours(lock: FileLock) -> bool:
    try:
        return lock.acquire()
    except OSError:  # a mount without locks
        return True
