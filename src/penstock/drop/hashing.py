"""The numpy twin of the gate's random number: the same value for the same row, without Spark.

Spark's ``xxhash64`` applies XXH64 to one column after the other. The hash of each column is the seed for the next; a null leaves
it unchanged. The number of bytes hashed depends on the Spark type: 4 for boolean, byte, short, int, date and float; 8 for long,
timestamp, double and decimals of up to 18 digits; all bytes of strings and binary values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.errors import PenstockError

__all__ = ["gate_seed", "seed_value", "uniform", "xxhash64"]

_SPARK_SEED = 42
_MASK = (1 << 64) - 1
_FOUR_BYTES = (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.date32())

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(p) for p in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)


def gate_seed(name: str) -> int:
    """Return the seed of a gate, a signed 64-bit number that depends only on its name.

    >>> gate_seed("packets") == gate_seed("packets") != gate_seed("flows")
    True
    """
    return int(np.uint64(xxhash.xxh64_intdigest(name.encode())).astype(np.int64))


def seed_value(seed: int) -> int:
    """Return the long whose hash, with Spark's own seed, is a given seed.

    Spark's public ``xxhash64`` always begins with 42. The hash of a first column is the seed of the next, and for 8 bytes every
    step of it can be undone. So with this number as its first column, the public function gives what the seeded one gives.

    >>> import pyarrow as pa
    >>> seed = gate_seed("packets")
    >>> int(xxhash64(42, [pa.array([seed_value(seed)])]).view(np.int64)[0]) == seed
    True
    """
    h = seed & _MASK
    h ^= h >> 32
    h = h * pow(int(_P3), -1, 1 << 64) & _MASK
    h = _undo_shift(h, 29)
    h = h * pow(int(_P2), -1, 1 << 64) & _MASK
    h = _undo_shift(h, 33)
    h = _turn((h - int(_P4)) * pow(int(_P1), -1, 1 << 64) & _MASK, 64 - 27)
    h ^= _SPARK_SEED + int(_P5) + 8 & _MASK
    h = _turn(h * pow(int(_P1), -1, 1 << 64) & _MASK, 64 - 31)
    value = h * pow(int(_P2), -1, 1 << 64) & _MASK
    return value - (1 << 64) if value >> 63 else value


def _undo_shift(h: int, bits: int) -> int:
    """Undo ``h ^= h >> bits``, for a shift of at most half of the bits but one."""
    return h ^ (h >> bits) ^ (h >> 2 * bits)


def _turn(h: int, bits: int) -> int:
    return (h << bits | h >> (64 - bits)) & _MASK


def uniform(seed: int, columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray:
    """Return the gate's number in [0, 1) for each row: the top 53 bits of the hash.

    >>> import pyarrow as pa
    >>> u = uniform(gate_seed("packets"), [pa.array([1, 2, 3])])
    >>> bool(((u >= 0) & (u < 1)).all())
    True
    """
    return (xxhash64(seed, columns) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def xxhash64(seed: int, columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray:
    """Return Spark's ``xxhash64`` of the columns with a given seed, as unsigned 64-bit numbers.

    Raises
    ------
    PenstockError
        If there is no column, or a column has a type that this twin does not support.
    """
    if not columns:
        raise PenstockError("xxhash64 needs at least one column")
    state = np.full(len(columns[0]), seed, dtype=np.int64).view(np.uint64)
    for column in columns:
        state = _fold(state, column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    return state


def _fold(state: np.ndarray, column: pa.Array) -> np.ndarray:
    valid = np.asarray(column.is_valid())
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _fold_bytes(state, column.cast(pa.large_binary()))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _fold_bytes(state, column)
    if pa.types.is_decimal(kind):
        if kind.precision > 18:
            raise PenstockError(f"the numpy twin supports decimals of up to 18 digits, got {kind}")
        unscaled = [0 if value is None else int(value.scaleb(kind.scale)) for value in column.to_pylist()]
        hashed = _hash_long(np.array(unscaled, dtype=np.int64).view(np.uint64), state)
    elif kind in _FOUR_BYTES:
        hashed = _hash_int(_fill_nulls(column.cast(pa.int32()), 0).to_numpy(), state)
    elif pa.types.is_int64(kind):
        hashed = _hash_long(_fill_nulls(column, 0).to_numpy().view(np.uint64), state)
    elif pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", tz=kind.tz)).cast(pa.int64())
        hashed = _hash_long(_fill_nulls(micros, 0).to_numpy().view(np.uint64), state)
    elif pa.types.is_float64(kind):
        hashed = _hash_long(_canonicalize(_fill_nulls(column, 0.0).to_numpy()).view(np.uint64), state)
    elif pa.types.is_float32(kind):
        hashed = _hash_int(_canonicalize(_fill_nulls(column, 0.0).to_numpy()).view(np.int32), state)
    else:
        raise PenstockError(f"the numpy twin can't hash a column of type {kind}")
    return np.where(valid, hashed, state)


def _fill_nulls(column: pa.Array, value: float) -> pa.Array:
    return pc.fill_null(column, pa.scalar(value, type=column.type)) if column.null_count else column


def _canonicalize(values: np.ndarray) -> np.ndarray:
    """Give every NaN the same bits, and -0.0 the bits of 0.0, as Java does."""
    out = np.where(values == 0, np.zeros_like(values), values)
    return np.where(np.isnan(out), np.full_like(out, np.nan), out)


def _fold_bytes(state: np.ndarray, column: pa.Array) -> np.ndarray:
    pairs = zip(column.to_pylist(), state.tolist(), strict=True)
    digest = xxhash.xxh64_intdigest
    return np.array([seed if value is None else digest(value, seed) for value, seed in pairs], dtype=np.uint64)


# XXH64 of exactly 8 and exactly 4 bytes, for whole columns at once. The xxhash package hashes one value per call, which is a
# hundred times slower. A test compares the two.


def _rotate(x: np.ndarray, bits: int) -> np.ndarray:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def _avalanche(h: np.ndarray) -> np.ndarray:
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    avalanched: np.ndarray = h ^ (h >> np.uint64(32))
    return avalanched


def _hash_long(value: np.ndarray, seed: np.ndarray) -> np.ndarray:
    h = seed + _P5 + np.uint64(8)
    h = h ^ (_rotate(value * _P2, 31) * _P1)
    return _avalanche(_rotate(h, 27) * _P1 + _P4)


def _hash_int(value: np.ndarray, seed: np.ndarray) -> np.ndarray:
    h = seed + _P5 + np.uint64(4)
    h = h ^ (value.astype(np.int32).view(np.uint32).astype(np.uint64) * _P1)
    return _avalanche(_rotate(h, 23) * _P2 + _P3)
