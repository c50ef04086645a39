"""How many rows a batch takes from each source, before it runs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from penstock.spark.checkpoint import Checkpoint
from penstock.spark.kafka_source import clip_starts
from penstock.spark.offsets import is_kafka, rows_between
from penstock.spark.progress import source_name

if TYPE_CHECKING:
    from penstock.spark.batch_driver import RunningQuery

__all__ = ["BatchSizes", "OffsetSizes"]

_REMEMBERED = 5


class BatchSizes(Protocol):
    """Knows how many rows a batch takes from each source, before it runs."""

    def read(self, checkpoint: Checkpoint, batch_id: int) -> Mapping[str, int] | None:
        """Return the rows by source; ``None`` where a source cannot tell."""


class OffsetSizes:
    """The sizes of batches from Spark's offset log; of Kafka, whose offsets have gaps, a close upper bound.

    Parameters
    ----------
    running
        The query. Its reports say how dense the offsets of its topics are, and its client which rows are left of the first
        batch of a run.

    """

    def __init__(self, running: RunningQuery) -> None:
        self._running = running
        self._last: tuple[int, list[str | None]] = (-2, [])  # the end of one batch is the start of the next
        self._densities: dict[str, deque[float]] = {}

    def read(self, checkpoint: Checkpoint, batch_id: int) -> dict[str, int] | None:
        """Return the rows by source; ``None`` where a source's offsets don't count rows."""
        end = self._running.offsets(batch_id)
        last_id, start = self._last
        if last_id != batch_id - 1:
            start = checkpoint.starts(batch_id)
            if any(is_kafka(offset) for offset in end):
                start = clip_starts(start, self._running.topics.earliest())
        self._last = batch_id, end
        if len(start) != len(end):
            return None
        self._learn(batch_id - 1)
        rows = [rows_between(*offsets) for offsets in zip(start, end, self._running.rows_per_s, strict=True)]
        sizes = {source_name(number): count for number, count in enumerate(rows) if count is not None}
        if len(sizes) < len(rows):
            return None
        return {name: math.ceil(count * max(self._densities.get(name, (1.0,)))) for name, count in sizes.items()}

    def _learn(self, batch_id: int) -> None:
        """Remember how many rows the offsets of the last batches had. The densest one counts, so that a bound stays one."""
        progress = self._running.progress(batch_id)
        for name, density in progress.densities.items() if progress is not None else ():
            self._densities.setdefault(name, deque(maxlen=_REMEMBERED)).append(density)
