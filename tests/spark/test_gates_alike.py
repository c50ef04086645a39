"""The gate over public functions keeps the rows that the classic gate keeps, gives them the same weights, and counts the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from penstock import Priorities, WholeKeys
from penstock.drop.tables import SLOT_SHIFT, SLOTS
from penstock.journal.records import OlderRows
from penstock.spark.connect.batch_tables import BatchTables, place_of
from penstock.spark.connect.connect_gate import ConnectGate
from penstock.spark.gates import GateSpecification, build_gate

from .conftest import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not hasattr(DataFrame, "scalar"), reason="a gate over public functions needs Spark 4.0"),
]

ROWS = 3_000
BASE_S = 1_700_000_000.0
FIRST = int(BASE_S * 1e6) >> SLOT_SHIFT
"""A slot."""
DECISIONS = (
    (FIRST - 2 * SLOTS, (0.9, 0.5, 0.1)),
    (FIRST, (0.2, 0.6, 0.0)),
    (FIRST + 1, (0.7, 1.0, 0.3)),
    (FIRST + 40, (0.5, 0.4, 0.8)),
)


def arrivals(generator: np.random.Generator) -> pa.Array:
    """Times at the ends of slots, of the ring and of time, null, and what Kafka writes for none."""
    oldest, last = FIRST + 40 - SLOTS + 1, FIRST + 40
    edges = [slot << SLOT_SHIFT for slot in (oldest - 1, oldest, oldest + 1, FIRST, FIRST + 1, last, last + 1)]
    times = [edge + step for edge in edges for step in (-1, 0, 1)] + [0, -1, -999, -1000, -1001, -(2**40)]
    times += [-62_135_596_800_000_000, 253_402_300_799_999_999]  # the years 1 and 9999
    drawn = np.where(
        generator.random(ROWS) < 0.5,
        generator.choice(np.array(times), ROWS),
        generator.integers(oldest << SLOT_SHIFT, (last + 2) << SLOT_SHIFT, ROWS),
    )
    return pa.array(drawn, mask=generator.random(ROWS) < 0.05).cast(pa.timestamp("us", tz="UTC"))


def sprinkle(generator: np.random.Generator, values: Any, kind: Any) -> pa.Array:
    """Some of the values are null, and most of them come several times."""
    picked = [values[number % len(values)] for number in generator.integers(0, 10 * len(values), ROWS)]
    return pa.array([None if gone else value for value, gone in zip(picked, generator.random(ROWS) < 0.1, strict=True)], kind)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """A column of every kind that a row or a key can be told apart by, and one of a kind that it can't."""
    generator = np.random.default_rng(18)
    floats = [0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300]
    table = pa.table(
        {
            "number": np.arange(ROWS),
            "arrival": arrivals(generator),
            "kind": sprinkle(generator, ["a", "b", "c", ""], pa.string()),
            "byte": sprinkle(generator, [-128, 0, 127], pa.int8()),
            "short": sprinkle(generator, [-(2**15), 7], pa.int16()),
            "int": sprinkle(generator, [-(2**31), 2**31 - 1, 0], pa.int32()),
            "long": sprinkle(generator, [-(2**63), 2**63 - 1, 1], pa.int64()),
            "truth": sprinkle(generator, [True, False], pa.bool_()),
            "text": sprinkle(generator, ["", "ä", "x" * 70, "\U0001f6b0"], pa.string()),
            "bytes": sprinkle(generator, [b"", b"\0", b"y" * 40], pa.binary()),
            "date": sprinkle(generator, [0, -1, 20_000], pa.date32()),
            "double": sprinkle(generator, floats, pa.float64()),
            "float": sprinkle(generator, [value if abs(value) < 1e30 else 2.0 for value in floats], pa.float32()),
            "decimal": sprinkle(generator, [1, -5], pa.decimal128(12, 3)),
            "wide": sprinkle(generator, [10**20, -3], pa.decimal128(38, 2)),
        }
    )
    df = from_arrow(spark, table).repartition(2)
    nested = (F.struct("int", "text").alias("struct"), F.array("long", F.lit(None)).alias("array"))
    return df.select("*", *nested, F.create_map(F.lit("k"), "int").alias("map")).cache()


SPECIFICATIONS: dict[str, Any] = {
    "rows by all columns": {},
    "rows by one column": {"identity": ("number",), "weight_column": "w"},
    "rows by two columns": {"identity": ("text", "struct")},
    "rows with classes": {"priorities": Priorities("kind", {"a": 10, "b": 3}), "weight_column": "w"},
    "rows with another seed": {"seed_name": "another", "identity": ("number", "double")},
    "whole keys": {"unit": WholeKeys("int")},
    "whole keys of all kinds": {
        "unit": WholeKeys("byte", "short", "long", "truth", "text", "bytes", "date", "double", "float", "decimal", "wide"),
        "weight_column": "w",
    },
    "keys with classes": lambda: {"unit": WholeKeys("array"), "priorities": Priorities(F.upper("kind"), {"A": 2, "B": 1})},
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_both_gates_keep_and_count_the_same(name: str, spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    options = SPECIFICATIONS[name]
    options = options() if callable(options) else options
    if name == "whole keys":  # and a column of times that can't be null
        rows = rows.withColumn("arrival", F.coalesce("arrival", F.lit(datetime(2023, 11, 14, tzinfo=UTC))))
        assert not rows.schema["arrival"].nullable
    specification = GateSpecification("g", "arrival", is_bounded=False, **options)
    classic, gated = build_gate(rows, specification, BASE_S)
    public = ConnectGate(spark, specification, rows.schema, str(tmp_path))
    columns = ["number", *(["w"] if specification.weight_column else [])]
    classic.set_how(by_arrival=True)
    for changes in ((), DECISIONS[:1], DECISIONS) if name == "rows by one column" else (DECISIONS,):
        for gate in (classic, public):
            entries = [(slot, keeps[: gate.state.shares.count]) for slot, keeps in changes]
            gate.publish(gate.state.restore_slots(entries))
        classic.take_reading()
        kept = to_arrow(gated.select(columns)).sort_by("number")
        reading = classic.take_reading()
        assert to_arrow(public.apply(rows).select(columns)).sort_by("number") == kept
        assert (kept.num_rows == ROWS) == (not changes), "some are shed as soon as something is decided"
        assert replace(count_public(public, rows), mean_arrival_s=None) == replace(reading, mean_arrival_s=None)


NOW = ((FIRST + 40) << SLOT_SHIFT) + 5
"""A moment among the arrivals, in microseconds."""
BATCHES = (
    ((0.5, 0.4, 0.8), None),
    ((0.7, 1.0, 0.3), OlderRows(FIRST << SLOT_SHIFT, (0.0, 0.0, 0.0))),
    ((1.0, 0.2, 0.0), OlderRows((FIRST << SLOT_SHIFT) + 1, (0.2, 0.6, 0.1))),
)
"""Keeps by class, and other keeps for older rows."""


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_by_batch_too(name: str, spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    options = SPECIFICATIONS[name]
    options = options() if callable(options) else options
    if name == "whole keys":  # and a column of times that can't be null
        rows = rows.withColumn("arrival", F.coalesce("arrival", F.lit(datetime(2023, 11, 14, tzinfo=UTC))))
    specification = GateSpecification("g", "arrival", is_bounded=False, **options)
    classic, gated = build_gate(rows, specification, BASE_S)
    public = ConnectGate(spark, specification, rows.schema, str(tmp_path))
    place = place_of(tmp_path / "batches", "g")
    public.read_batches_from(place)
    public.set_how(by_arrival=False)
    files = BatchTables(tmp_path / "batches", tmp_path / "offsets")
    files.prepare({"g": place}, {}, 0)
    (tmp_path / "offsets").mkdir()
    columns = ["number", *(["w"] if specification.weight_column else [])]
    classic.set_how(by_arrival=False)
    for batch_id, (keeps, older) in enumerate(BATCHES if name == "rows by one column" else BATCHES[1:2]):
        classes = public.state.shares.count
        aged = None if older is None else OlderRows(older.line, older.entries[:classes])
        tables = public.state.put_in_force(keeps[:classes], aged, NOW)
        classic.publish(classic.state.put_in_force(keeps[:classes], aged, NOW))
        (tmp_path / "offsets" / str(batch_id)).touch()
        assert files.offer(batch_id, {"g": tables[0]}, batch_id)
        classic.take_reading()
        kept = to_arrow(gated.select(columns)).sort_by("number")
        reading = classic.take_reading()
        assert to_arrow(public.apply(rows).select(columns)).sort_by("number") == kept
        assert 0 < kept.num_rows < ROWS
        seen = count_public(public, rows)
        assert public.unread == 0
        # Few numbers are counted here, and the classic gate sums in ticks of a millisecond.
        same = {"mean_arrival_s": None, "mean_expired_arrival_s": None, "expired_by_class": None}
        assert replace(seen, **same) == replace(reading, **same)
        for one, other in [(seen.mean_arrival_s, reading.mean_arrival_s)] * (name == "whole keys"):
            assert one == pytest.approx(other, abs=0.01)


def test_a_batch_without_a_table_keeps_everything_and_says_so(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    specification = GateSpecification("g", "arrival", identity=("number",), is_bounded=False)
    public = ConnectGate(spark, specification, rows.schema, str(tmp_path))
    public.read_batches_from(tmp_path / "nowhere")
    public.set_how(by_arrival=False)
    reading = count_public(public, rows)
    assert public.unread == ROWS
    assert reading.from_future == 0
    assert reading.expired == 0


def count_public(gate: ConnectGate, rows: DataFrame) -> Any:
    """Return what its observations count."""
    named = {name: Observation(name) for name in (gate._filter.offered_name, gate._filter.kept_name)}
    observe = type(rows).observe
    with mock.patch.object(type(rows), "observe", lambda df, name, *columns: observe(df, named[name], *columns)):
        gate.apply(rows).write.format("noop").mode("overwrite").save()
    gate.see({name: one.get for name, one in named.items()})
    counted = gate.count()
    assert counted is not None
    assert counted.offered == ROWS
    return gate.take_reading()
