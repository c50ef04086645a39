"""The gate's expression and its numpy twin agree row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.drop.hashing import gate_seed, uniform, xxhash64
from penstock.errors import PenstockError

from .conftest import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

longs = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
micros = st.integers(-(2**40), 2**52)
KINDS: dict[str, tuple[Any, Any]] = {
    "long": (pa.int64(), longs),
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "short": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), texts),
    "binary": (pa.binary(), st.binary(max_size=70)),
    "timestamp": (pa.timestamp("us", tz="UTC"), micros),
    "date": (pa.date32(), st.integers(-100_000, 100_000)),
    "double": (pa.float64(), st.floats(width=64)),
    "float": (pa.float32(), st.floats(width=32)),
    "decimal": (pa.decimal128(12, 3), st.decimals(-(10**8), 10**8, places=3)),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    chosen = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=4))
    columns = {}
    for place, name in enumerate(chosen):
        kind, values = KINDS[name]
        drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
        columns[f"{name}{place}"] = pa.array(drawn, kind)
    return pa.table(columns)


@pytest.mark.spark
@settings(max_examples=40)
@given(table=tables(), seed=longs)
def test_spark_and_numpy_hash_alike(spark: SparkSession, table: pa.Table, seed: int) -> None:
    from pyspark.sql import functions as F

    from penstock.spark.catalyst import seeded_hash

    df = from_arrow(spark, table)
    column = seeded_hash(spark, seed, [F.col(name) for name in table.column_names]).alias("h")
    hashed = to_arrow(df.select(column))["h"]
    twin = xxhash64(seed, table.columns).view(np.int64)
    assert hashed.to_pylist() == twin.tolist()


@given(values=st.lists(longs, min_size=1, max_size=50), seed=st.integers(0, 2**64 - 1))
def test_whole_columns_hash_as_the_package_does(values: list[int], seed: int) -> None:
    signed = int(np.uint64(seed).astype(np.int64))
    eight = [xxhash.xxh64_intdigest(value.to_bytes(8, "little", signed=True), seed) for value in values]
    assert xxhash64(signed, [pa.array(values, pa.int64())]).tolist() == eight
    small = [value >> 32 for value in values]
    four = [xxhash.xxh64_intdigest(value.to_bytes(4, "little", signed=True), seed) for value in small]
    assert xxhash64(signed, [pa.array(small, pa.int32())]).tolist() == four


def test_null_leaves_the_hash_as_it_is() -> None:
    assert xxhash64(7, [pa.array([None], pa.int64())]).tolist() == [7]


def test_numbers_are_uniform() -> None:
    """Kolmogorov-Smirnov by hand: at 200,000 rows the largest gap is below 1.63/sqrt(n) in 99 of 100 cases."""
    rows = 200_000
    u = np.sort(uniform(gate_seed("packets"), [pa.array(np.arange(rows))]))
    gap = np.abs(u - np.arange(rows) / rows).max()
    assert gap < 1.63 / np.sqrt(rows)


def test_gates_are_independent() -> None:
    ids = [pa.array(np.arange(100_000))]
    correlation = np.corrcoef(uniform(gate_seed("a"), ids), uniform(gate_seed("b"), ids))[0, 1]
    assert abs(correlation) < 0.01


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1]]), "can't hash a column of type list"),
        (pa.array([1], pa.decimal128(30, 2)), "decimals of up to 18 digits"),
    ],
)
def test_what_the_twin_cannot_do(column: pa.Array, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        xxhash64(1, [column])
    with pytest.raises(PenstockError, match="at least one column"):
        xxhash64(1, [])
