"""What a client of Spark Connect knows of a running query: its reports, and a checkpoint that it sees itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

from penstock.decision import BatchPlanned
from penstock.errors import PenstockError
from penstock.filesystem import resolve
from penstock.spark.batch_sizes import NO_SIZE, OffsetSizes
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.offsets import read_rows_per_s
from penstock.spark.progress import Progress

__all__ = ["ReportedQuery"]


class ReportedQuery:
    """Describes batches that are about to run, as far as they are known without the JVM.

    To ``OffsetSizes`` it is what a ``RunningQuery`` is in a classic session.

    Parameters
    ----------
    checkpoint
        The query's.
    is_paced
        Whether batches wait for an interval to pass.
    warn
        Told, in one line, why the size of a batch is not known; without it nobody decides by the size.
    """

    def __init__(self, checkpoint: Checkpoint, *, is_paced: bool = False, warn: Callable[[str], None] | None = None) -> None:
        self._checkpoint = checkpoint
        self._is_paced = is_paced
        self._warn = warn
        self._sizes = OffsetSizes(self)
        self._progress: Progress | None = None
        self._descriptions: tuple[str, ...] = ()
        self._batch_id = -1

    def continue_from(self, rows_per_byte: Mapping[str, float] = MappingProxyType({})) -> None:
        """Remember what batches of files had in an earlier run."""
        self._sizes = OffsetSizes(self, None if self._warn is None else self._warn_of_size, rows_per_byte)

    def describe(self, batch_id: int, now_s: float, rows: Mapping[str, int] | None) -> BatchPlanned:
        """Return what is known of a batch whose offsets are logged."""
        progress = self.progress(batch_id - 1)
        return BatchPlanned(
            batch_id,
            now_s,
            rows,
            self._sizes.rows_per_byte,
            previous=None if progress is None else progress.times,
            backlog_rows={} if progress is None else progress.backlog_rows,
            left_rows={} if progress is None else progress.left_rows,
            is_paced=self._is_paced,
        )

    def count_rows(self, batch_id: int) -> Mapping[str, int] | None:
        """Return the rows of a batch by source, from its offsets; ``None`` where a source can't tell."""
        return self._sizes.read(self._checkpoint, batch_id)

    def _warn_of_size(self, reason: str) -> None:
        assert self._warn is not None  # noqa: S101 - see continue_from
        if reason != NO_SIZE:
            self._warn(reason)
        elif self._progress is not None:  # reports tell what makes up rows, and how many
            self._warn(reason.partition(", or start the query")[0])  # no gate is bounded here

    def take(self, progress: Progress, text: str) -> None:
        """Take the report of a batch."""
        self._progress = progress
        self._descriptions = tuple(str(source.get("description")) for source in json.loads(text).get("sources", []))

    def progress(self, batch_id: int) -> Progress | None:
        """Return the report of a batch, if it is the last one that came."""
        return self._progress if self._progress is not None and self._progress.batch_id == batch_id else None

    def offsets(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the end of a batch, as JSON."""
        self._batch_id = batch_id
        return self._checkpoint.offsets(batch_id)

    @property
    def rows_per_s(self) -> list[int | None]:
        """How many rows each source makes per second, for those of Spark's that make up rows, once a report has come."""
        sources = len(self._checkpoint.offsets(self._batch_id))
        known = [read_rows_per_s(description) for description in self._descriptions]
        return known if len(known) == sources else [None] * sources

    def earliest_offsets(self) -> Mapping[str, str]:
        """Return nothing: brokers can't be asked, so rows that retention has removed count."""
        return {}

    def file_bytes(self) -> list[int | None]:
        """Return how many bytes the files have that the batch takes from each source; ``None`` for one without files."""
        names = [str(number) for number in range(len(self._checkpoint.offsets(self._batch_id)))]
        sizes = self._checkpoint.count_rows(self._batch_id, names, _read_size)
        offsets = self._checkpoint.offsets(self._batch_id)
        return [sizes[name] if "logOffset" in (offset or "") else None for name, offset in zip(names, offsets, strict=True)]


def _read_size(path: str) -> int | None:
    """Return the bytes of a file, if this process sees it; Spark logs addresses in which characters are escaped."""
    try:
        _, local = resolve(unquote(path), "a file")
        return Path(local).stat().st_size
    except (OSError, PenstockError):
        return None
