"""How many rows a batch takes from each source, before it runs."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from penstock.spark.checkpoint import Checkpoint
from penstock.spark.kafka_source import clip_starts
from penstock.spark.offsets import is_kafka, rows_between
from penstock.spark.progress import Progress, source_name

__all__ = ["BatchSizes", "FileSizes", "NO_RATIO", "NO_SIZE", "OffsetSizes", "SizedQuery"]

_REMEMBERED = 5
NO_RATIO = (
    "how many rows its files have is not known before the first batch has run, so nothing limits that batch: "
    "cap it, with maxFilesPerTrigger"
)
NO_SIZE = (
    "a source does not say how many rows a batch has before it runs, so a burst is shed one batch late: cap its batches, "
    "or start the query with by='arrival', whose bounded gates limit batches of any size"
)


class SizedQuery(Protocol):
    """What is known of a query that runs batches."""

    def offsets(self, batch_id: int) -> list[str | None]:
        """Return the offset of each source at the end of a batch, as JSON."""

    def earliest_offsets(self) -> Mapping[str, str]:
        """Return the offsets of the first rows that each Kafka source still has, by its name, as JSON."""

    def progress(self, batch_id: int) -> Progress | None:
        """Return Spark's report of a batch, if it is there."""

    @property
    def rows_per_s(self) -> Sequence[int | None]:
        """How many rows each source makes per second, for those of Spark's that make up rows."""

    def file_bytes(self) -> Sequence[int | None]:
        """Return how many bytes the files have that the batch takes from each source; ``None`` for one without files."""


class BatchSizes(Protocol):
    """Knows how many rows a batch takes from each source, before it runs."""

    @property
    def rows_per_byte(self) -> Mapping[str, float]:
        """What the size of a batch of files is estimated from, by source."""

    def read(self, checkpoint: Checkpoint, batch_id: int) -> Mapping[str, int] | None:
        """Return the rows by source; ``None`` where a source cannot tell."""


class OffsetSizes:
    """The sizes of batches from Spark's offset log; of Kafka, whose offsets have gaps, a close upper bound.

    The offsets of files and Delta tables count no rows. There the bytes of a batch's files tell, once a batch has shown how many
    rows a byte is: an estimate.

    Parameters
    ----------
    running
        The query. Its reports say how dense the offsets of its topics are, and its client which rows are left of the first
        batch of a run.
    warn
        Told, in one line, why the size of a batch is not known. Without it nobody decides by the size, and files, whose bytes are
        several calls to the JVM, are not looked at.
    rows_per_byte
        By source of files, what its batches had in an earlier run.

    """

    def __init__(
        self,
        running: SizedQuery,
        warn: Callable[[str], None] | None = None,
        rows_per_byte: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._running = running
        self._warn = warn
        self._last: tuple[int, list[str | None]] = (-2, [])  # the end of one batch is the start of the next
        self._densities: dict[str, deque[float]] = {}
        self._files = FileSizes(rows_per_byte)

    @property
    def rows_per_byte(self) -> Mapping[str, float]:
        """What the size of a batch of files is estimated from, by source."""
        return self._files.rows_per_byte

    def read(self, checkpoint: Checkpoint, batch_id: int) -> dict[str, int] | None:
        """Return the rows by source; ``None`` where a source can't tell."""
        end = self._running.offsets(batch_id)
        last_id, start = self._last
        if last_id != batch_id - 1:
            start = checkpoint.starts(batch_id)
            if any(is_kafka(offset) for offset in end):
                start = clip_starts(start, self._running.earliest_offsets())
        self._last = batch_id, end
        if len(start) != len(end):
            return None
        progress = self._running.progress(batch_id - 1)
        if progress is not None:
            self._learn(progress)
        counts = [rows_between(*offsets) for offsets in zip(start, end, self._running.rows_per_s, strict=True)]
        rows = {source_name(number): count for number, count in enumerate(counts)}
        if self._warn is not None and any(count is None for count in counts):
            rows = self._count_files(batch_id, rows, self._warn)
        sizes = {name: count for name, count in rows.items() if count is not None}
        if len(sizes) < len(rows):
            return None
        return {name: math.ceil(count * max(self._densities.get(name, (1.0,)))) for name, count in sizes.items()}

    def _learn(self, progress: Progress) -> None:
        """Remember how many rows the offsets of the last batches had. The densest one counts, so that a bound stays one."""
        for name, density in progress.densities.items():
            self._densities.setdefault(name, deque(maxlen=_REMEMBERED)).append(density)
        self._files.learn(progress)

    def _count_files(self, batch_id: int, rows: Mapping[str, int | None], warn: Callable[[str], None]) -> dict[str, int | None]:
        """Return the rows with what is estimated for sources whose offsets don't count them."""
        by_source = zip(rows, self._running.file_bytes(), strict=True)
        sizes = {name: size for name, size in by_source if rows[name] is None}
        estimates = self._files.estimate(batch_id, sizes)
        unknown = [name for name, estimate in estimates.items() if estimate is None]
        if unknown:
            will_be_known = not self._files.has_reports and all(sizes[name] is not None for name in unknown)
            warn(NO_RATIO if will_be_known else NO_SIZE)
        return {**rows, **estimates}


class FileSizes:
    """How many rows the files of a batch have, from their bytes and from what the last batches had: the median ratio counts.

    >>> from penstock.decision.events import BatchTimes
    >>> files = FileSizes()
    >>> files.estimate(0, {"source0": 5_000})
    {'source0': None}
    >>> files.learn(Progress(0, "run", BatchTimes(0.0, 1.0, 1.0), {}, {}, rows={"source0": 1_000}))
    >>> files.estimate(1, {"source0": 20_000})
    {'source0': 4000}

    What an earlier run has shown counts until a batch of this one is reported.

    >>> FileSizes(files.rows_per_byte).estimate(2, {"source0": 500})
    {'source0': 100}
    """

    def __init__(self, rows_per_byte: Mapping[str, float] = MappingProxyType({})) -> None:
        self._last: tuple[int, Mapping[str, int | None]] = (-2, {})
        self._earlier = rows_per_byte
        self._rows_per_byte: dict[str, deque[float]] = {}
        self.has_reports = False
        """Whether a batch of files was reported. Of a query that reads one stream twice, Spark reports no rows."""

    @property
    def rows_per_byte(self) -> Mapping[str, float]:
        """What counts now, by source; of few digits, since it is an estimate."""
        return {**self._earlier, **{name: _round(statistics.median(seen)) for name, seen in self._rows_per_byte.items()}}

    def learn(self, progress: Progress) -> None:
        """Learn from the report of the batch that was estimated last."""
        last_id, sizes = self._last
        for name, size in sizes.items() if progress.batch_id == last_id else ():
            self.has_reports |= bool(size)
            if size and progress.rows.get(name):
                self._rows_per_byte.setdefault(name, deque(maxlen=_REMEMBERED)).append(progress.rows[name] / size)

    def estimate(self, batch_id: int, sizes: Mapping[str, int | None]) -> dict[str, int | None]:
        """Return the rows by source, from bytes by source; ``None`` where either is not known."""
        self._last = batch_id, sizes
        return {name: self._estimate(name, size) for name, size in sizes.items()}

    def _estimate(self, name: str, size: int | None) -> int | None:
        if not size:
            return size
        ratio = self.rows_per_byte.get(name)
        return None if ratio is None else math.ceil(size * ratio)


def _round(number: float) -> float:
    return float(f"{number:.4g}")
