"""The rows of a replay: a pure function of their numbers, t0 and the options."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from penstock.simulation.keys import costs_of_keys, splitmix64, uniform_keys, zipf_keys
from penstock.spark.replay.options import KeyOptions, ReplayOptions
from penstock.spark.replay.replayed_trace import Events

__all__ = ["RowRange", "build_batch"]

# Separate streams of random words, so that the key, the cost and the payload of a row are independent.
_KEY_STREAM, _COST_STREAM, _PAYLOAD_STREAM = 1 << 40, 2 << 40, 3 << 40


@dataclass
class RowRange(InputPartition):
    """The rows from ``first`` up to, but not including, ``last``."""

    first: int
    last: int
    t0_us: int


def build_batch(options: ReplayOptions, events: Events, schema: pa.Schema, rows: RowRange) -> pa.RecordBatch:
    """Return the rows of a range."""
    seq = np.arange(rows.first, rows.last, dtype=np.int64)
    laps, index = np.divmod(seq // options.repeat, events.t.size)
    # Rounding never dates a row after the moment at which it became due: that moment is a whole microsecond too.
    after_us = np.rint((events.t[index] + laps * events.lap_s) * (1e6 / options.speed)).astype(np.int64)
    columns: dict[str, pa.Array] = {
        "arrival": pa.array(rows.t0_us + after_us).cast(pa.timestamp("us", tz="UTC")),
        "seq": pa.array(seq),
    }
    if events.columns is None:
        keys = _draw_keys(options.keys, seq, options.seed)
        columns["key"] = pa.array(keys)
        columns["cost_s"] = pa.array(costs_of_keys(keys, options.costs_s, options.seed + _COST_STREAM))
        columns["payload"] = _draw_payload(seq, options.payload_bytes, options.seed)
    else:
        is_contiguous = index[-1] - index[0] == seq.size - 1
        part = events.columns.slice(index[0], seq.size) if is_contiguous else events.columns.take(pa.array(index))
        columns |= {name: part.column(name).combine_chunks() for name in part.column_names}
        if "key" in schema.names and "key" not in columns:
            columns["key"] = pa.array(_draw_keys(options.keys, seq, options.seed))
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _draw_keys(keys: KeyOptions, seq: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    if keys.distribution == "zipf":
        return zipf_keys(seq, keys.count, keys.exponent, seed + _KEY_STREAM)
    return uniform_keys(seq, keys.count, seed + _KEY_STREAM)


def _draw_payload(seq: NDArray[np.int64], size: int, seed: int) -> pa.Array:
    words = max(-(-size // 8), 1)
    data = splitmix64(seq[:, None] * words + np.arange(words), seed + _PAYLOAD_STREAM).astype("<u8", copy=False)
    body = np.ascontiguousarray(data.view(np.uint8).reshape(seq.size, words * 8)[:, :size])
    ends = np.arange(seq.size + 1, dtype=np.int32) * np.int32(size)
    return pa.Array.from_buffers(pa.binary(), seq.size, [None, pa.py_buffer(ends), pa.py_buffer(body)])
