"""Spark's public hash with a number in front is the seeded hash."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop.hashing import gate_seed, seed_value, uniform, xxhash64

LONGS = st.integers(-(2**63), 2**63 - 1)


@given(LONGS)
def test_its_hash_with_sparks_seed_is_the_seed(seed: int) -> None:
    assert int(xxhash64(42, [pa.array([seed_value(seed)])]).view("int64")[0]) == seed


@given(st.text(), st.lists(LONGS, min_size=1))
def test_rows_get_the_same_number_either_way(name: str, values: list[int]) -> None:
    seed, rows = gate_seed(name), pa.array(values, pa.int64())
    in_front = pa.array([seed_value(seed)] * len(values), pa.int64())
    assert (uniform(42, [in_front, rows]) == uniform(seed, [rows])).all()
