"""Load-aware shedding on Spark: calls are timed where they run, and the next batch sheds what costs most."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import StructType

from penstock.control import Controller, Decision, GateCount, Observation, controller_named
from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.las.bucket_keeps import BucketKeeps
from penstock.las.knapsack import How
from penstock.spark.catalyst import seeded_hash
from penstock.spark.gate import Buckets
from penstock.spark.shedder import Shedder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.journal.report import Report

__all__ = ["LoadAware", "load_aware"]

Kind = Literal["row", "pandas", "arrow", "map_in_arrow", "native"]

_BUCKET = "__penstock_bucket"
_SEED = 0x1A5
_UNKNOWN_COST_S = 1e-3
_PARTS = 4


def load_aware(
    function: Callable[..., Any], *, key: str | Column, delay_target: str | float | timedelta, **options: Any
) -> LoadAware:
    """Wrap a function whose cost depends on the row, so that what costs most is shed first; see ``LoadAware``."""
    return LoadAware(function, key=key, delay_target=delay_target, **options)


class LoadAware:
    """Holds a job at its delay target by dropping the rows that cost most, as paper 004 learns it and a knapsack decides it.

    ``function`` is, by ``kind``:

    - ``row``: takes the values of ``columns`` of one row and returns one value of type ``returns``;
    - ``pandas``, ``arrow``: takes them as Series or Arrow arrays, and returns one;
    - ``map_in_arrow``: takes and returns an iterator of record batches of ``schema``, as for ``DataFrame.mapInArrow``;
    - ``native``: takes and returns a DataFrame, without any Python on its rows.

    ``key`` is a column or an expression; keys are hashed into ``buckets``, and null has one of its own. Row functions are timed
    call by call. Others are timed for several rows together: a batch is divided into four by bucket, at random, and what a row
    of each bucket costs is learnt by regression, which takes longer to tell buckets apart. Before a batch runs, the controller
    says how much of the *work* fits, and the cheapest buckets are kept whole (``how="threshold"``), or all in proportion to one
    over the root of their cost (``"root"``), or without looking at the cost (``"uniform"``). ``floor`` of each bucket is kept in
    any case, so that its cost stays known.

    Dear keys lose most. ``weight`` adds a column with one over the row's keep, by which counts and sums stay unbiased.

    What was learnt is part of the journal and survives a restart; a batch that is replayed drops the same rows again.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        key: str | Column,
        delay_target: str | float | timedelta,
        kind: Kind = "row",
        columns: str | Sequence[str] | None = None,
        returns: str | None = None,
        output: str = "result",
        schema: str | StructType | None = None,
        buckets: int | None = None,
        how: How = "threshold",
        floor: float = 0.02,
        controller: str | Controller = "micro-batch",
        journal: str | Path | None = None,
    ) -> None:
        if not callable(function):
            raise PenstockError(f"load_aware() needs a function, got {function!r}")
        if kind not in get_args(Kind):
            raise PenstockError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        if how not in get_args(How):
            raise PenstockError(f"how must be one of {', '.join(get_args(How))}, got {how!r}")
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns or ())
        if kind in ("row", "pandas", "arrow") and not (self._columns and returns):
            raise PenstockError(f"kind {kind!r} needs columns=, what the function takes, and returns=, a type such as 'double'")
        if kind == "map_in_arrow" and schema is None:
            raise PenstockError("kind 'map_in_arrow' needs schema=, what the function returns")
        self._function, self._kind, self._key = function, kind, key
        self._returns, self._output, self._schema = returns, output, schema
        self._buckets = (32 if kind == "native" else 512) if buckets is None else buckets
        delay_target_s = parse_duration(delay_target, "delay_target")
        # One bucket more than hashes reach: null's.
        self.model = BucketKeeps(self._buckets + 1, how=how, floor=floor)
        inner = controller_named(controller, delay_target_s) if isinstance(controller, str) else controller
        self._by_work = _ByWork(inner, self.model, timed=kind != "native")
        self.shedder = Shedder(delay_target_s, controller=self._by_work, journal=journal)

    def __call__(
        self,
        df: DataFrame,
        *,
        name: str = "load_aware",
        arrival: str | None = None,
        identity: str | Sequence[str] | None = None,
        weight: str | None = None,
    ) -> DataFrame:
        """Return the DataFrame with a gate behind it and the function behind the gate."""
        missing = [column for column in self._columns if column not in df.columns]
        if missing:
            raise PenstockError(f"load_aware: there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}")
        if isinstance(self._key, str) and self._key not in df.columns:
            raise PenstockError(f"load_aware: there is no key column {self._key!r}; the columns are {', '.join(df.columns)}")
        key = F.col(f"`{self._key}`") if isinstance(self._key, str) else self._key
        hashed = F.pmod(seeded_hash(df.sparkSession, _SEED, [key]), F.lit(self._buckets)).cast("int")
        bucket = F.when(key.isNull(), F.lit(self._buckets)).otherwise(hashed)
        gated = self.shedder.gate(
            df.withColumn(_BUCKET, bucket),
            name=name,
            arrival=arrival,
            identity=identity if identity is not None else list(df.columns),
            weight=weight,
            buckets=Buckets(_BUCKET, self.model, counted=self._kind == "native"),
        )
        if self._kind == "native":
            made: DataFrame = self._function(gated.drop(_BUCKET))
            return made
        self._by_work.cores = df.sparkSession.sparkContext.defaultParallelism
        return self._mapped(gated)

    def _mapped(self, gated: DataFrame) -> DataFrame:
        self._by_work.notes = gated.sparkSession.sparkContext.accumulator(None, _NotesParam())
        worker = _worker(
            self._function,
            self._kind,
            self._by_work.notes,
            columns=self._columns,
            output=self._output,
            returned=self._type(),
            buckets=self._buckets + 1,
        )
        return gated.mapInArrow(worker, self._out_schema(gated))

    def timed_only(self, df: DataFrame) -> DataFrame:
        """Return the function timed as ever, without a gate: to compare with, or to look at costs before shedding by them."""
        bucket = F.lit(0).cast("int")
        return self._mapped(df.withColumn(_BUCKET, bucket))

    def _out_schema(self, gated: DataFrame) -> str | StructType:
        if self._kind == "map_in_arrow":
            assert self._schema is not None  # noqa: S101 - checked above
            return self._schema
        if self._output in gated.columns:
            raise PenstockError(f"load_aware: there is a column {self._output!r} already; choose another output=")
        fields = [field for field in gated.schema.fields if field.name != _BUCKET]
        return StructType(fields).add(self._output, self._returned())

    def _returned(self) -> Any:
        from pyspark.sql.types import _parse_datatype_string  # noqa: PLC0415 - PySpark's own way to read a type

        try:
            return _parse_datatype_string(str(self._returns))
        except Exception as error:
            raise PenstockError(f"returns= must be a type such as 'double', got {self._returns!r}") from error

    def _type(self) -> pa.DataType | None:
        if self._kind in ("map_in_arrow", "native"):
            return None
        from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - only here

        return to_arrow_type(self._returned())

    def foreach_batch(self, df: DataFrame, function: Callable[[DataFrame, int], Any], **options: Any) -> StreamingQuery:
        """Start a query, as ``Shedder.foreach_batch`` does."""
        return self.shedder.foreach_batch(df, function, **options)

    def write(self, df: DataFrame, format: str, path: str | Path | None = None, **options: Any) -> StreamingQuery:  # noqa: A002
        """Start a query, as ``Shedder.write`` does."""
        return self.shedder.write(df, format, path, **options)

    def report(self) -> Report:
        """What was offered, kept and shed."""
        return self.shedder.report()

    def stop(self) -> None:
        """Stop all queries."""
        self.shedder.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(slots=True)
class _Notes:
    """What tasks measured: rows and seconds by bucket, and times of several rows together."""

    rows: np.ndarray
    seconds: np.ndarray
    together: list[tuple[np.ndarray, np.ndarray, float]]


class _NotesParam(AccumulatorParam["_Notes | None"]):
    """Adds up what tasks measured."""

    def zero(self, value: _Notes | None) -> _Notes | None:  # noqa: ARG002 - nothing is nothing
        return None

    def addInPlace(self, value1: _Notes | None, value2: _Notes | None) -> _Notes | None:  # noqa: N802 - PySpark's name
        if value1 is None or value2 is None:
            return value2 if value1 is None else value1
        value1.rows += value2.rows
        value1.seconds += value2.seconds
        value1.together += value2.together
        return value1


class _ByWork(Controller):
    """Any controller, in units of work: what counts of a row is what it costs, in microseconds."""

    def __init__(self, inner: Controller, model: BucketKeeps, *, timed: bool) -> None:
        super().__init__(inner.delay_target_s)
        self._inner, self._model, self._timed = inner, model, timed
        self.notes: Accumulator[_Notes | None] | None = None
        self.cores = 1

    def __deepcopy__(self, memo: dict[int, Any]) -> _ByWork:
        """A query's own controller, on the one model that its gate reads."""
        found = _ByWork(copy.deepcopy(self._inner, memo), self._model, timed=self._timed)
        found.notes, found.cores = self.notes, self.cores
        return found

    def update(self, observation: Observation) -> Decision:
        """Learn from the batch that was, and ask for a share of the next one's work."""
        kept_s = self._learn(observation)
        mean_s = self._model.mean_s
        row_us = (mean_s if mean_s is not None and mean_s > 0 else _UNKNOWN_COST_S) * 1e6

        def work(rows: int | None) -> int | None:
            return None if rows is None else round(rows * row_us)

        kept_us = observation.kept * row_us if kept_s is None else kept_s * 1e6
        offered_us = max(kept_us, observation.offered * row_us)
        seen = replace(
            observation,
            gates={"work": GateCount(round(offered_us), round(kept_us))},
            upcoming_rows=work(observation.upcoming_rows),
            backlog_rows={name: round(rows * row_us) for name, rows in observation.backlog_rows.items()},
        )
        decision = self._inner.update(seen)
        if decision.keep is None and mean_s is not None and seen.upcoming_rows:
            # Nothing is known of whole batches yet, but of rows: what fits half of the target on all cores is safe to begin with.
            fitting_us = 0.5e6 * self.delay_target_s * self.cores
            return replace(decision, keep=min(1.0, fitting_us / seen.upcoming_rows))
        return decision

    def _learn(self, observation: Observation) -> float | None:
        """Take in what the tasks measured; return the seconds that the kept rows took, if they were timed."""
        model = self._model
        if not self._timed:
            kept = model.keeps * model.rows
            if observation.kept and kept.sum() > 0 and not observation.cold:
                model.update_from_total(kept * observation.kept / kept.sum(), observation.busy_s or observation.period_s)
            return None
        found = self.notes.value if self.notes is not None else None
        if found is None or self.notes is None:
            return None
        self.notes.value = None
        if found.together:
            for places, counts, seconds in found.together:
                rows = np.zeros(model.rows.size)
                rows[places] = counts
                model.update_from_total(rows, seconds)
            model.update_offered(found.rows / np.maximum(model.keeps, 1e-6))
            return float(sum(seconds for _, _, seconds in found.together))
        model.update(found.rows, found.seconds, model.keeps)
        return float(found.seconds.sum())

    def snapshot(self) -> dict[str, Any]:
        """The controller's state and what was learnt."""
        return {"inner": self._inner.snapshot(), "model": self._model.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Take the state of a snapshot and return the controller."""
        self._inner.restore(state["inner"])
        self._model.restore(state["model"])
        return self


def _worker(
    function: Callable[..., Any],
    kind: Kind,
    notes: Accumulator[_Notes | None],
    *,
    columns: tuple[str, ...],
    output: str,
    returned: pa.DataType | None,
    buckets: int,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what runs on the workers: the function, timed. Whatever it raises passes through as it is."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Notes(np.zeros(buckets), np.zeros(buckets), [])
        try:
            if kind == "row":
                yield from _rows(batches, found)
            elif kind == "map_in_arrow":
                yield from function(_watched(batches, found))
            else:
                yield from _vectors(batches, found)
        finally:
            notes.add(found)

    def _rows(batches: Iterator[pa.RecordBatch], found: _Notes) -> Iterator[pa.RecordBatch]:
        clock = time.perf_counter
        for batch in batches:
            places, rest = _without_bucket(batch)
            results: list[Any] = []
            marks = [clock()]
            try:
                # One reading of the clock a row: where a call ends, the next one begins.
                for values in zip(*(batch.column(name).to_pylist() for name in columns), strict=True):
                    results.append(function(*values))
                    marks.append(clock())
            finally:
                done = places[: len(results)]
                np.add.at(found.rows, done, 1.0)
                np.add.at(found.seconds, done, np.maximum(np.diff(marks), 0.0))
            yield rest.append_column(output, pa.array(results, returned))

    def _vectors(batches: Iterator[pa.RecordBatch], found: _Notes) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places, rest = _without_bucket(batch)
            results, order = [], []
            for chosen in _parts(places, buckets):
                inputs = [batch.column(name).take(chosen) for name in columns]
                begun_s = time.perf_counter()
                result = function(*([vector.to_pandas() for vector in inputs] if kind == "pandas" else inputs))
                _note(found, places[chosen], time.perf_counter() - begun_s)
                results.append(pa.Array.from_pandas(result, type=returned) if kind == "pandas" else result.cast(returned))
                order.append(chosen)
            if results:
                back = np.argsort(np.concatenate(order), kind="stable")
                yield rest.append_column(output, pa.concat_arrays(results).take(pa.array(back)))

    def _watched(batches: Iterator[pa.RecordBatch], found: _Notes) -> Iterator[pa.RecordBatch]:
        """Between two batches that the function takes, it worked on the first of them."""
        for batch in batches:
            places, rest = _without_bucket(batch)
            for chosen in _parts(places, buckets):
                part = rest.take(chosen)
                begun_s = time.perf_counter()
                yield part
                _note(found, places[chosen], time.perf_counter() - begun_s)

    return apply


def _without_bucket(batch: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
    return batch.column(_BUCKET).to_numpy(zero_copy_only=False), batch.drop_columns([_BUCKET])


def _parts(places: np.ndarray, buckets: int) -> list[np.ndarray]:
    """Divide the rows of a batch by their buckets, at random: of calls that mix them differently one learns what each costs."""
    group = np.random.default_rng().integers(0, _PARTS, buckets)[places]
    return [np.flatnonzero(group == number) for number in range(_PARTS) if np.any(group == number)]


def _note(found: _Notes, places: np.ndarray, seconds: float) -> None:
    present, counts = np.unique(places, return_counts=True)
    np.add.at(found.rows, present, counts)
    found.together.append((present, counts.astype(np.float64), max(0.0, seconds)))
