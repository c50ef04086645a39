"""The half of load-aware shedding that runs on the workers: it times the user's function where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.drop.shares import WorkReading

__all__ = ["BUCKET_COLUMN", "FunctionKind", "TimedFunction", "WorkParam"]

FunctionKind = Literal["row", "pandas", "arrow", "map_in_arrow", "native"]

BUCKET_COLUMN = "__penstock_bucket"
_PARTS = 4


class WorkParam(AccumulatorParam["WorkReading | None"]):
    """Adds up what tasks measured."""

    def zero(self, value: WorkReading | None) -> WorkReading | None:  # noqa: ARG002 - nothing is nothing
        """Return nothing."""
        return None

    def addInPlace(self, value1: WorkReading | None, value2: WorkReading | None) -> WorkReading | None:  # noqa: N802 - PySpark's name
        """Add one to the other."""
        if value1 is None or value2 is None:
            return value2 if value1 is None else value1
        value1.rows += value2.rows
        value1.seconds += value2.seconds
        value1.totals += value2.totals
        return value1


class TimedFunction:
    """What runs on the workers: the user's function, timed. Whatever it raises passes through."""

    def __init__(
        self,
        function: Callable[..., Any],
        kind: FunctionKind,
        work: Accumulator[WorkReading | None],
        *,
        columns: tuple[str, ...],
        output: str,
        output_type: pa.DataType | None,
        buckets: int,
        names: tuple[str, ...],
    ) -> None:
        self._function, self._kind, self._work, self._names = function, kind, work, names
        self._columns, self._output, self._output_type, self._buckets = columns, output, output_type, buckets

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the batches of one task; their columns get back the names they have at the gate."""
        batches = (batch.rename_columns(list(self._names)) for batch in batches)
        measured = WorkReading(np.zeros(self._buckets), np.zeros(self._buckets), [])
        try:
            if self._kind == "row":
                yield from self._call_rows(batches, measured)
            elif self._kind == "map_in_arrow":
                yield from self._function(self._watch(batches, measured))
            else:
                yield from self._call_vectors(batches, measured)
        finally:
            self._work.add(measured)

    def _call_rows(self, batches: Iterator[pa.RecordBatch], measured: WorkReading) -> Iterator[pa.RecordBatch]:
        clock, function = time.perf_counter, self._function
        for batch in batches:
            buckets, rest = _split_bucket(batch)
            results: list[Any] = []
            marks = [clock()]
            try:
                # One reading of the clock per row: where a call ends, the next one begins.
                for values in zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True):
                    results.append(function(*values))
                    marks.append(clock())
            finally:
                done = buckets[: len(results)]
                np.add.at(measured.rows, done, 1.0)
                np.add.at(measured.seconds, done, np.maximum(np.diff(marks), 0.0))
            yield rest.append_column(self._output, pa.array(results, self._output_type))

    def _call_vectors(self, batches: Iterator[pa.RecordBatch], measured: WorkReading) -> Iterator[pa.RecordBatch]:
        is_pandas = self._kind == "pandas"
        for batch in batches:
            buckets, rest = _split_bucket(batch)
            results, order = [], []
            for chosen in self._parts(buckets):
                inputs = [batch.column(name).take(chosen) for name in self._columns]
                begun_s = time.perf_counter()
                result = self._function(*([vector.to_pandas() for vector in inputs] if is_pandas else inputs))
                _add_total(measured, buckets[chosen], time.perf_counter() - begun_s)
                results.append(
                    pa.Array.from_pandas(result, type=self._output_type) if is_pandas else result.cast(self._output_type)
                )
                order.append(chosen)
            if results:
                back = np.argsort(np.concatenate(order), kind="stable")
                yield rest.append_column(self._output, pa.concat_arrays(results).take(pa.array(back)))

    def _watch(self, batches: Iterator[pa.RecordBatch], measured: WorkReading) -> Iterator[pa.RecordBatch]:
        """Between two batches that the function takes, it worked on the first of them."""
        for batch in batches:
            buckets, rest = _split_bucket(batch)
            for chosen in self._parts(buckets):
                part = rest.take(chosen)
                begun_s = time.perf_counter()
                yield part
                _add_total(measured, buckets[chosen], time.perf_counter() - begun_s)

    def _parts(self, buckets: np.ndarray) -> list[np.ndarray]:
        """Divide the rows of a batch by their buckets, at random: calls that mix buckets differently show what each costs."""
        group = np.random.default_rng().integers(0, _PARTS, self._buckets)[buckets]
        return [np.flatnonzero(group == number) for number in range(_PARTS) if np.any(group == number)]


def _split_bucket(batch: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
    return batch.column(BUCKET_COLUMN).to_numpy(zero_copy_only=False), batch.drop_columns([BUCKET_COLUMN])


def _add_total(measured: WorkReading, buckets: np.ndarray, seconds: float) -> None:
    present, counts = np.unique(buckets, return_counts=True)
    np.add.at(measured.rows, present, counts)
    measured.totals.append((present, counts.astype(np.float64), max(0.0, seconds)))
