"""The half of load-aware shedding that runs on the workers: it times the user's function where it runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from penstock.drop.shares import WorkReading
from penstock.las.countmin import CostSketch
from penstock.las.micro_batch_las import ClockReading, Executed
from penstock.spark.gates.clock_filter import CLOCK_COLUMN, HASH_COLUMN
from penstock.spark.worker_delay import PADDING

__all__ = [
    "BUCKET_COLUMN",
    "BucketTimes",
    "FunctionKind",
    "Recorder",
    "SketchTimes",
    "TimedFunction",
]

FunctionKind = Literal["row", "pandas", "arrow", "map_in_arrow", "native"]

BUCKET_COLUMN = "__penstock_bucket"
_PARTS = 4


class Recorder(ABC):
    """Keeps the times of one task's rows, by the column that says which rows cost alike."""

    columns: tuple[str, ...]
    """The columns that are for it alone; the first one says which rows cost alike."""

    @abstractmethod
    def start(self) -> Recorder:
        """Return a recorder for a new task."""

    def split(self, batch: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
        """Return which rows cost alike, and the batch without the columns that say so. Its rows are about to run."""
        alike: np.ndarray = batch.column(self.columns[0]).to_numpy(zero_copy_only=False)
        return alike, batch.drop_columns(list(self.columns))

    @abstractmethod
    def group(self, alike: np.ndarray) -> np.ndarray:
        """Return for each row one of a few groups, at random: calls that mix rows differently show what each costs."""

    @abstractmethod
    def add_rows(self, alike: np.ndarray, seconds: np.ndarray) -> None:
        """Add rows that were timed one by one."""

    @abstractmethod
    def add_call(self, alike: np.ndarray, seconds: float) -> None:
        """Add rows that were timed together."""

    @abstractmethod
    def send(self) -> None:
        """Report to the driver."""


class BucketTimes(Recorder):
    """Times by bucket, for the knapsack."""

    columns = (BUCKET_COLUMN,)

    def __init__(self, work: Accumulator[WorkReading | None], buckets: int) -> None:
        self._work, self._buckets = work, buckets
        self._measured = WorkReading(np.zeros(buckets), np.zeros(buckets), [])

    def start(self) -> BucketTimes:
        """Return a recorder for a new task."""
        return BucketTimes(self._work, self._buckets)

    def group(self, alike: np.ndarray) -> np.ndarray:
        """Divide the buckets at random."""
        groups: np.ndarray = np.random.default_rng().integers(0, _PARTS, self._buckets)[alike]
        return groups

    def add_rows(self, alike: np.ndarray, seconds: np.ndarray) -> None:
        """Add rows and seconds by bucket."""
        np.add.at(self._measured.rows, alike, 1.0)
        np.add.at(self._measured.seconds, alike, np.maximum(seconds, 0.0))

    def add_call(self, alike: np.ndarray, seconds: float) -> None:
        """Add rows by bucket, and the seconds of all."""
        present, counts = np.unique(alike, return_counts=True)
        np.add.at(self._measured.rows, present, counts)
        self._measured.totals.append((present, counts.astype(np.float64), max(0.0, seconds)))

    def send(self) -> None:
        """Report to the driver."""
        self._work.add(self._measured)


class SketchTimes(Recorder):
    """The operator's side of LAS in one task: F and W by key, and by how much later than expected it began.

    Rows that are timed together count with the mean of their call, so their matrices tell keys apart less well.
    """

    columns = (HASH_COLUMN, CLOCK_COLUMN)

    def __init__(self, readings: Accumulator[ClockReading | None], sketch: CostSketch, window: int) -> None:
        self._readings, self._sketch, self._window = readings, sketch, window
        self._parts: list[Executed] = []
        self._delta_s: float | None = None

    def start(self) -> SketchTimes:
        """Return a recorder for a new task."""
        return SketchTimes(self._readings, self._sketch, self._window)

    def split(self, batch: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
        """Compare the clock with what the shedder expected for the first row, as LAS, listing III.1, lines 11 to 14."""
        if self._delta_s is None and batch.num_rows:
            self._delta_s = time.time() - batch.column(CLOCK_COLUMN)[0].as_py()
        return super().split(batch)

    def group(self, alike: np.ndarray) -> np.ndarray:
        """Divide the keys at random."""
        multiplier = int(np.random.default_rng().integers(1, 1 << 62)) | 1
        mixed = alike.view(np.uint64) * np.uint64(multiplier)
        return (mixed >> np.uint64(61)).astype(np.int64) % _PARTS

    def add_rows(self, alike: np.ndarray, seconds: np.ndarray) -> None:
        """Fill F and W, new ones after every window of N rows."""
        valid_s = np.maximum(seconds, 0.0)
        for first in range(0, alike.size, self._window):
            keys, durations_s = alike[first : first + self._window], valid_s[first : first + self._window]
            sketch = self._sketch.copy()
            sketch.add(keys, durations_s)
            self._parts.append(Executed(sketch.frequency, sketch.duration, keys.size, float(durations_s.sum())))

    def add_call(self, alike: np.ndarray, seconds: float) -> None:
        """Fill F and W with the mean of the call."""
        if alike.size:
            self.add_rows(alike, np.full(alike.size, max(0.0, seconds) / alike.size))

    def send(self) -> None:
        """Report to the driver."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        self._readings.add(ClockReading(self._parts, {} if self._delta_s is None else {partition: self._delta_s}))


class TimedFunction:
    """What runs on the workers: the user's function, timed. Whatever it raises passes through."""

    def __init__(
        self,
        function: Callable[..., Any],
        kind: FunctionKind,
        recorder: Recorder,
        *,
        columns: tuple[str, ...],
        output: str,
        output_type: pa.DataType | None,
        names: tuple[str, ...],
    ) -> None:
        self._function, self._kind, self._recorder, self._names = function, kind, recorder, names
        self._columns, self._output, self._output_type = columns, output, output_type
        self._padding = PADDING  # it travels along

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the batches of one task; their columns get back the names they have at the gate."""
        batches = (batch.rename_columns(list(self._names)) for batch in batches)
        times = self._recorder.start()
        try:
            if self._kind == "row":
                yield from self._call_rows(batches, times)
            elif self._kind == "map_in_arrow":
                yield from self._function(self._watch(batches, times))
            else:
                yield from self._call_vectors(batches, times)
        finally:
            times.send()

    def _call_rows(self, batches: Iterator[pa.RecordBatch], times: Recorder) -> Iterator[pa.RecordBatch]:
        clock, function = time.perf_counter, self._function
        for batch in batches:
            alike, rest = times.split(batch)
            results: list[Any] = []
            marks = [clock()]
            try:
                # One reading of the clock per row: where a call ends, the next one begins.
                for values in zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True):
                    results.append(function(*values))
                    marks.append(clock())
            finally:
                times.add_rows(alike[: len(results)], np.diff(marks))
            yield rest.append_column(self._output, pa.array(results, self._output_type))

    def _call_vectors(self, batches: Iterator[pa.RecordBatch], times: Recorder) -> Iterator[pa.RecordBatch]:
        is_pandas = self._kind == "pandas"
        for batch in batches:
            alike, rest = times.split(batch)
            results, order = [], []
            for chosen in _parts(times.group(alike)):
                inputs = [batch.column(name).take(chosen) for name in self._columns]
                begun_s = time.perf_counter()
                result = self._function(*([vector.to_pandas() for vector in inputs] if is_pandas else inputs))
                times.add_call(alike[chosen], time.perf_counter() - begun_s)
                results.append(
                    pa.Array.from_pandas(result, type=self._output_type) if is_pandas else result.cast(self._output_type)
                )
                order.append(chosen)
            if results:
                back = np.argsort(np.concatenate(order), kind="stable")
                yield rest.append_column(self._output, pa.concat_arrays(results).take(pa.array(back)))

    def _watch(self, batches: Iterator[pa.RecordBatch], times: Recorder) -> Iterator[pa.RecordBatch]:
        """Between two batches that the function takes, it worked on the first of them."""
        for batch in batches:
            alike, rest = times.split(batch)
            for chosen in _parts(times.group(alike)):
                part = rest.take(chosen)
                begun_s = time.perf_counter()
                yield part
                times.add_call(alike[chosen], time.perf_counter() - begun_s)


def _parts(group: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each group that has some."""
    return [np.flatnonzero(group == number) for number in range(_PARTS) if np.any(group == number)]
