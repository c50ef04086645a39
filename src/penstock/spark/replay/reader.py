"""What is due by now, and in which ranges Spark reads it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import PenstockError
from penstock.spark.replay.options import ReplayOptions
from penstock.spark.replay.replayed_trace import Events, load_events
from penstock.spark.replay.rows import RowRange, build_batch

__all__ = ["ReplayReader"]

_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024
_NO_CAP = 1 << 60


class ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells Spark how many rows are due, and yields the rows of a range.

    The planner's instance lives as long as the query; the workers' are copies that only read.
    """

    def __init__(self, options: ReplayOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._events: Events | None = None
        self._initial: dict[str, Any] | None = None
        self._due: dict[str, Any] | None = None
        self._until_us: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return row 0 and t0. Spark asks repeatedly until the first batch exists; t0 must not move."""
        if self._initial is None:
            self._load()  # before the clock is read, or the time it takes would count as backlog
            start_s = self._options.start_s
            self._initial = {"n": 0, "t0": (_now_us() if start_s is None else round(start_s * 1e6)) / 1e6}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the cap. Spark hands it back to latestOffset, unless the trigger says to read everything."""
        return ReadAllAvailable() if self._options.max_rows is None else ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop the clock: what becomes due later does not belong to this run."""
        self._until_us = _now_us()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return how far to read: what is due, within the limit. One binary search, because Spark asks 100 times per second."""
        first = int(start["n"])
        due = max(self._count_due(_t0_us(start)), first)  # a clock that is set back takes no row back
        self._due = {"n": due, "t0": start["t0"]}
        if isinstance(limit, ReadMaxRows):
            due = min(due, first + limit.max_rows)
        elif isinstance(limit, ReadMinRows) and due - first < limit.min_rows:
            due = first
        if self._options.max_rows_file is not None:
            due = min(due, first + _read_cap(self._options.max_rows_file))
        return {"n": due, "t0": start["t0"]}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return what was due at the last call of latestOffset, whatever the limit: the progress event shows the backlog."""
        return self._due

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return contiguous ranges of rows of about the same size."""
        first, last = int(start["n"]), int(end["n"])
        count = min(self._options.partitions, last - first)
        if count <= 0:
            return []
        cuts = [first + (last - first) * i // count for i in range(count + 1)]
        # The end's t0: if the very first batch is replayed after a crash, Spark has lost the start's and asked for a new one.
        t0_us = _t0_us(end)
        return [RowRange(low, high, t0_us) for low, high in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; this runs in a worker."""
        if not isinstance(partition, RowRange):
            raise PenstockError(f"partition must be a range of rows, got {partition!r}")
        events = load_events(self._options)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(self._options.payload_bytes, 1)))
        for first in range(partition.first, partition.last, size):
            rows = RowRange(first, min(first + size, partition.last), partition.t0_us)
            yield build_batch(self._options, events, schema, rows)

    def _load(self) -> Events:
        if self._events is None:
            self._events = load_events(self._options)
        return self._events

    def _count_due(self, t0_us: int) -> int:
        now_us = _now_us() if self._until_us is None else self._until_us
        elapsed_s = (now_us - t0_us) * self._options.speed / 1e6
        if elapsed_s < 0:
            return 0
        events = self._load()
        laps = math.floor(elapsed_s / events.lap_s) if self._options.loop else 0
        in_lap = int(np.searchsorted(events.t, elapsed_s - laps * events.lap_s, side="right"))
        return (laps * events.t.size + in_lap) * self._options.repeat


def _now_us() -> int:
    return time.time_ns() // 1000


def _t0_us(offset: Mapping[str, Any]) -> int:
    return round(float(offset["t0"]) * 1e6)


def _read_cap(path: str) -> int:
    """Return how many rows a batch may have, from the file that says so."""
    try:
        return max(1, int(Path(path).read_text()))
    except (OSError, ValueError):  # not there yet, or being written
        return _NO_CAP
