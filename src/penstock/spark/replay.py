"""The replay source: play an arrival process or a recorded trace against the wall clock, to sub-second truth.

``spark.readStream.format("penstock-replay")`` after :func:`register_replay`. Row n is always the same row, with arrival
``t0 + t[n] / speed``; it exists from that moment on and not before. The offset ``{"n": rows, "t0": epoch seconds}`` carries
t0 through the checkpoint, so a restarted query reads on where it stopped, finds what became due meanwhile as its backlog, and
replays a half-done batch with the same rows.

Where it fails: the arrival times are held in memory (8 bytes each) by the planner and by every Python worker, and a worker
makes them on its first batch, which is late by as much. Keep the trace short and use ``loop``, ``repeat`` or ``speed`` for
more. A file that changes, or other options, under an old checkpoint make other rows of the old numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, DoubleType, LongType, StructField, StructType, TimestampType

from penstock.duration import parse_duration
from penstock.errors import PenstockError
from penstock.simulation.keys import costs_of_keys, splitmix64, uniform_keys, zipf_keys
from penstock.simulation.trace import load_trace
from penstock.simulation.traffic import Traffic, option_names, traffic_from_options
from penstock.spark.worker_python import check_worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ReplaySource", "register_replay"]

_BATCH_ROWS = 65_536
_BATCH_BYTES = 16 * 1024 * 1024
# Own streams of random words, so that payload, key and class of a row have nothing to do with each other.
_KEY_STREAM, _COST_STREAM, _PAYLOAD_STREAM = 1 << 40, 2 << 40, 3 << 40

_COMMON = ("path", "seed", "speed", "repeat", "skip", "loop", "start", "partitions", "max_rows_per_batch", "max_rows_file")
_KEYS = ("keys", "key_count", "key_exponent")
_GENERATED = ("generator", "cost_classes", "payload_bytes")


def register_replay(spark: SparkSession) -> None:
    """Make the format ``penstock-replay`` known to a session; a second time does no harm."""
    check_worker_python(spark, "the replay source")
    spark.dataSource.register(ReplaySource)


# ---------------------------------------------------------------- options


@dataclass(frozen=True, slots=True)
class _Keys:
    law: str = "uniform"
    count: int = 1000
    exponent: float = 1.0

    def of(self, seq: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        if self.law == "zipf":
            return zipf_keys(seq, self.count, self.exponent, seed + _KEY_STREAM)
        return uniform_keys(seq, self.count, seed + _KEY_STREAM)


@dataclass(frozen=True, slots=True)
class _Play:
    """What to play, parsed and checked once; small and hashable, because it travels to the workers."""

    source: Traffic | str  # a generator, or the path of a trace
    seed: int
    speed: float
    repeat: int
    skip_s: float
    loop: bool
    start_s: float | None
    partitions: int
    max_rows: int | None
    max_rows_file: str | None
    keys: _Keys
    costs_s: tuple[float, ...]
    payload_bytes: int


class _Options:
    """Spark's options: strings under lower-case names; every error names option and value."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {name.lower(): value for name, value in options.items()}

    def whole(self, name: str, default: int, low: int, high: int = 2**31 - 1) -> int:
        text = self.given.get(name, str(default))
        try:
            value = int(text)
        except ValueError:
            raise PenstockError(f"option {name} must be a whole number, got {text!r}") from None
        if not low <= value <= high:
            raise PenstockError(f"option {name} must be from {low:,} to {high:,}, got {text}")
        return value

    def real(self, name: str, default: float, *, zero: bool = False) -> float:
        text = self.given.get(name, str(default))
        try:
            value = float(text)
        except ValueError:
            raise PenstockError(f"option {name} must be a number, got {text!r}") from None
        if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
            raise PenstockError(f"option {name} must be {'at least 0' if zero else 'positive'}, got {text}")
        return value

    def seconds(self, name: str, text: str) -> float:
        return 0.0 if text.strip() in {"0", "0s", "0.0"} else parse_duration(text, f"option {name}")

    def flag(self, name: str) -> bool:
        text = self.given.get(name, "false").strip().lower()
        if text not in {"true", "false"}:
            raise PenstockError(f"option {name} must be true or false, got {text!r}")
        return text == "true"

    def choice(self, name: str, known: Sequence[str]) -> str:
        text = self.given.get(name, known[0]).strip().lower()
        if text not in known:
            raise PenstockError(f"option {name} must be one of {', '.join(known)}, got {text!r}")
        return text

    def play(self) -> _Play:
        given = self.given
        if ("path" in given) == ("generator" in given):
            what = "both" if "path" in given else "neither"
            raise PenstockError(f"penstock-replay needs either the option generator or the option path, got {what}")
        traffic_options = option_names(given["generator"]) if "generator" in given else ()
        known = {*_COMMON, *_KEYS, *traffic_options, *(_GENERATED if "generator" in given else ())}
        for name in given:
            if name not in known:
                what = f"the generator {given['generator']}" if "generator" in given else "a trace file"
                raise PenstockError(f"unknown option {name}; with {what} there are: {', '.join(sorted(known))}")
        source: Traffic | str = given.get("path", "")
        if "generator" in given:
            named = {name: given[name] for name in ("generator", *traffic_options) if name in given}
            source = traffic_from_options(named)
        costs = [text for text in given.get("cost_classes", "").split(",") if text.strip()]
        return _Play(
            source=source,
            seed=self.whole("seed", 0, 0),
            speed=self.real("speed", 1.0),
            repeat=self.whole("repeat", 1, 1, 1_000_000),
            skip_s=self.seconds("skip", given.get("skip", "0")),
            loop=self.flag("loop"),
            start_s=self.real("start", 0.0, zero=True) if "start" in given else None,
            partitions=self.whole("partitions", 2, 1, 10_000),
            max_rows=self.whole("max_rows_per_batch", 1, 1, 2**53) if "max_rows_per_batch" in given else None,
            max_rows_file=given.get("max_rows_file"),
            keys=_Keys(
                law=self.choice("keys", ("uniform", "zipf")),
                count=self.whole("key_count", 1000, 1, 10_000_000),
                exponent=self.real("key_exponent", 1.0, zero=True),
            ),
            costs_s=tuple(self.seconds("cost_classes", text) for text in costs) or (0.0,),
            payload_bytes=self.whole("payload_bytes", 16, 0, 1024 * 1024),
        )


# ---------------------------------------------------------------- the events, once a process


@dataclass(frozen=True, slots=True, eq=False)
class _Events:
    """The arrival times of one lap, how long the lap is, and for files the columns, in Spark's Arrow types."""

    t: NDArray[np.float64]
    lap_s: float
    columns: pa.Table | None
    spark_columns: tuple[StructField, ...]


def _events(play: _Play) -> _Events:
    """Return the events from the process's cache; Python workers are reused, so this is made once and not once a batch."""
    if isinstance(play.source, Traffic):
        return _cached_events(play.source, play.skip_s, play.loop, 0, 0)
    # A file is known by its size and time too: a worker outlives the query, and the file may be another one by then.
    path = Path(play.source)
    stat = path.stat() if path.is_file() else None
    return _cached_events(play.source, play.skip_s, play.loop, stat.st_size if stat else 0, stat.st_mtime_ns if stat else 0)


@lru_cache(maxsize=4)
def _cached_events(source: Traffic | str, skip_s: float, loop: bool, _size: int, _mtime_ns: int) -> _Events:
    columns: pa.Table | None = None
    fields: tuple[StructField, ...] = ()
    if isinstance(source, Traffic):
        t, end_s = source.arrivals(), source.duration_s
    else:
        trace = load_trace(source)
        t = trace.t
        columns, fields = _for_spark(source, trace.columns)
        # A file does not say when it ends; one mean gap after the last event, so that laps join without a hole or a heap.
        end_s = float(t[-1] + (t[-1] - t[0]) / max(t.size - 1, 1))
    if skip_s:
        first = int(np.searchsorted(t, skip_s, side="left"))
        t = t[first:] - skip_s
        columns = columns.slice(first) if columns is not None else None
    lap_s = end_s - skip_s
    if t.size == 0:
        raise PenstockError(f"nothing to play: {skip_s:g} s skipped of {end_s:g} s")
    if loop and lap_s <= 0:
        raise PenstockError("option loop needs events at two different times at least")
    t.setflags(write=False)
    return _Events(t, lap_s, columns, fields)


def _for_spark(path: str, table: pa.Table) -> tuple[pa.Table, tuple[StructField, ...]]:
    """Return the columns in the very types that Spark expects; it compares the schemas and takes nothing else."""
    names = [name.lower() for name in table.column_names]
    for name in names:
        if name in {"arrival", "seq"} or names.count(name) > 1:
            raise PenstockError(f"{path}: rename the column {name}: each row has one already")
    fields = []
    for field in table.schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        # A CSV column without any value has no type; text is the one that can hold nothing.
        fields.append(pa.field(field.name, pa.string() if pa.types.is_null(kind) else kind))
    try:
        spark_schema = from_arrow_schema(pa.schema(fields))
        # Unsafe lets go of the nanoseconds, which Spark has not; no other type loses anything here.
        table = table.cast(to_arrow_schema(spark_schema, timezone="UTC"), safe=False)
    except (pa.ArrowException, PySparkException) as error:
        raise PenstockError(f"{path}: Spark has no type for a column: {' '.join(str(error).split())}") from error
    return table, tuple(spark_schema.fields)


def _schema(play: _Play) -> StructType:
    head = [StructField("arrival", TimestampType()), StructField("seq", LongType())]
    key = [StructField("key", LongType())]
    if isinstance(play.source, Traffic):
        return StructType([*head, *key, StructField("cost_s", DoubleType()), StructField("payload", BinaryType())])
    columns = _events(play).spark_columns
    has_key = any(field.name.lower() == "key" for field in columns)
    return StructType([*head, *([] if has_key else key), *columns])


# ---------------------------------------------------------------- rows of a range


@dataclass
class _Range(InputPartition):
    first: int
    last: int
    t0_us: int


def _payload(seq: NDArray[np.int64], size: int, seed: int) -> pa.Array:
    words = max(-(-size // 8), 1)
    data = splitmix64(seq[:, None] * words + np.arange(words), seed + _PAYLOAD_STREAM).astype("<u8", copy=False)
    body = np.ascontiguousarray(data.view(np.uint8).reshape(seq.size, words * 8)[:, :size])
    ends = np.arange(seq.size + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), seq.size, [None, pa.py_buffer(ends), pa.py_buffer(body)])


def _batch(play: _Play, events: _Events, schema: pa.Schema, rows: _Range) -> pa.RecordBatch:
    """Return the rows of a range: a pure function of their numbers, t0 and the options."""
    seq = np.arange(rows.first, rows.last, dtype=np.int64)
    laps, index = np.divmod(seq // play.repeat, events.t.size)
    # Rounding never dates a row after the moment at which it was found due: that moment is a whole microsecond too.
    after_us = np.rint((events.t[index] + laps * events.lap_s) * (1e6 / play.speed)).astype(np.int64)
    made: dict[str, pa.Array] = {
        "arrival": pa.array(rows.t0_us + after_us).cast(pa.timestamp("us", tz="UTC")),
        "seq": pa.array(seq),
    }
    if events.columns is None:
        keys = play.keys.of(seq, play.seed)
        made["key"] = pa.array(keys)
        made["cost_s"] = pa.array(costs_of_keys(keys, play.costs_s, play.seed + _COST_STREAM))
        made["payload"] = _payload(seq, play.payload_bytes, play.seed)
    else:
        in_order = index[-1] - index[0] == seq.size - 1
        part = events.columns.slice(index[0], seq.size) if in_order else events.columns.take(pa.array(index))
        made |= {name: part.column(name).combine_chunks() for name in part.column_names}
        if "key" in schema.names and "key" not in made:
            made["key"] = pa.array(play.keys.of(seq, play.seed))
    return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


# ---------------------------------------------------------------- Spark's side


def _now_us() -> int:
    return time.time_ns() // 1000


def _t0_us(offset: Mapping[str, Any]) -> int:
    return round(float(offset["t0"]) * 1e6)


def _limit_in(path: str) -> int:
    """The most rows of a batch, by the file of that name."""
    try:
        return max(1, int(Path(path).read_text()))
    except (OSError, ValueError):  # not there yet, or being written
        return 1 << 60


class _ReplayReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is due by now, and the rows of a range. The planner's instance lives as long as the query."""

    def __init__(self, play: _Play, schema: StructType) -> None:
        self._play = play
        self._schema = schema
        self._events: _Events | None = None
        self._initial: dict[str, Any] | None = None
        self._due: dict[str, Any] | None = None
        self._until_us: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return row 0 and t0. Spark asks again and again until the first batch exists; t0 must not move."""
        if self._initial is None:
            self._ready()  # before the clock is read, or the making would count as backlog
            start_s = self._play.start_s
            self._initial = {"n": 0, "t0": (_now_us() if start_s is None else round(start_s * 1e6)) / 1e6}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the cap; Spark hands it back to latestOffset, except where the trigger says to read everything."""
        return ReadAllAvailable() if self._play.max_rows is None else ReadMaxRows(self._play.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Stop time: what is due later does not belong to this run."""
        self._until_us = _now_us()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return how far to read: what is due, within the limit. One binary search, as Spark asks 100 times a second."""
        first = int(start["n"])
        due = max(self._rows_due(_t0_us(start)), first)  # a clock that was set back takes no row back
        self._due = {"n": due, "t0": start["t0"]}
        if isinstance(limit, ReadMaxRows):
            due = min(due, first + limit.max_rows)
        elif isinstance(limit, ReadMinRows) and due - first < limit.min_rows:
            due = first
        if self._play.max_rows_file is not None:
            due = min(due, first + _limit_in(self._play.max_rows_file))
        return {"n": due, "t0": start["t0"]}

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return what was due at the last look, whatever the limit: the progress event shows the backlog."""
        return self._due

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return contiguous ranges of rows of about the same size."""
        first, last = int(start["n"]), int(end["n"])
        count = min(self._play.partitions, last - first)
        if count <= 0:
            return []
        cuts = [first + (last - first) * i // count for i in range(count + 1)]
        # The end's t0: if the very first batch is done again after a crash, Spark has lost the start's and asked for a new one.
        t0_us = _t0_us(end)
        return [_Range(low, high, t0_us) for low, high in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range; this runs in a worker."""
        if not isinstance(partition, _Range):
            raise PenstockError(f"partition must be a range of rows, got {partition!r}")
        events = _events(self._play)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(self._play.payload_bytes, 1)))
        for first in range(partition.first, partition.last, size):
            rows = _Range(first, min(first + size, partition.last), partition.t0_us)
            yield _batch(self._play, events, schema, rows)

    def _ready(self) -> _Events:
        if self._events is None:
            self._events = _events(self._play)
        return self._events

    def _rows_due(self, t0_us: int) -> int:
        now_us = _now_us() if self._until_us is None else self._until_us
        passed_s = (now_us - t0_us) * self._play.speed / 1e6
        if passed_s < 0:
            return 0
        events = self._ready()
        laps = math.floor(passed_s / events.lap_s) if self._play.loop else 0
        lap = int(np.searchsorted(events.t, passed_s - laps * events.lap_s, side="right"))
        return (laps * events.t.size + lap) * self._play.repeat


class ReplaySource(DataSource):
    """Which rows come when? Played from a generator or a file, against the wall clock, the same rows every time.

    Rows of a generator: ``arrival timestamp, seq bigint, key bigint, cost_s double, payload binary``; of a file:
    ``arrival, seq``, then ``key`` unless the file has one, then the file's columns without ``t``.

    ====================  ==========================================================================================
    option                meaning
    ====================  ==========================================================================================
    generator             constant, step, ramp, sine, exponential, pareto, b-model, on-off; with their own options:
                          rate, duration (``60s``), and so on, see ``penstock.simulation.traffic``
    path                  instead: a .csv, .csv.gz or .parquet file with a column ``t`` of seconds
    seed                  of arrivals, keys, costs and payload (0)
    speed                 time compression: 10 plays an hour in six minutes (1)
    repeat                copies of each event, each with its own seq (and generated key) (1)
    skip                  seconds at the beginning that are not played (0)
    loop                  start again at the end; without it the stream stays idle there (false)
    start                 epoch seconds of t = 0; in the past it makes a backlog (when the stream is first started)
    partitions            tasks a batch (2)
    max_rows_per_batch    admission control: a batch takes no more (no cap)
    max_rows_file         the same, from a file that is read for every batch: backpressure from outside (no cap while
                          there is no number in it)
    keys                  uniform or zipf (uniform); key_count of them (1000), key_exponent for zipf (1.0)
    cost_classes          costs such as ``100us,1ms``: each key has one, for good (0)
    payload_bytes         size of the payload, random bytes (16)
    ====================  ==========================================================================================

    >>> ReplaySource({"generator": "constant", "rate": "5", "duration": "60s"}).schema().fieldNames()
    ['arrival', 'seq', 'key', 'cost_s', 'payload']
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._play = _Options(options).play()

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock-replay"

    def schema(self) -> StructType:
        """Return the schema of the rows; a file is read and checked here."""
        return _schema(self._play)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return _ReplayReader(self._play, schema)
