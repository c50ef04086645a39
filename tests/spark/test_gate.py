"""The gate on Spark: the right rows, at the right place in the plan, and no new code for a new table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Priorities
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import SLOT_SHIFT, SLOTS, BatchTable, KeepTable, to_micros
from penstock.errors import PenstockError
from penstock.journal.records import OlderRows
from penstock.las.bucket_keeps import BucketKeeps
from penstock.spark.catalyst import fixed_index
from penstock.spark.gates import Gate, GateSpecification, build_gate
from penstock.spark.gates.specification import Buckets
from penstock.spark.plan_counts import PlanCounter
from penstock.spark.versions import minor_version

from .conftest import to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

BASE_S = 1_700_000_000.0


def rows(spark: SparkSession, count: int = 20_000) -> DataFrame:
    """Rows that arrive every millisecond, in three classes."""
    arrival = F.timestamp_micros(F.col("id") * 1000 + F.lit(int(BASE_S * 1e6)))
    return spark.range(0, count, 1, 2).select("id", arrival.alias("arrival"), (F.col("id") % 3).alias("kind"))


def build(df: DataFrame, *, by_arrival: bool = False, **options: Any) -> tuple[Gate, DataFrame]:
    defaults = {"name": "g", "arrival": "arrival", "identity": ("id",), "is_bounded": False}
    gate, gated = build_gate(df, GateSpecification(**{**defaults, **options}), BASE_S)
    gate.set_how(by_arrival=by_arrival)
    return gate, gated


def set_by_batch(gate: Gate, *entries: float) -> None:
    gate.publish(gate.state.put_in_force(entries))


def ids(df: DataFrame) -> list[int]:
    return sorted(to_arrow(df.select("id"))["id"].to_pylist())


def test_set_by_batch_it_keeps_what_the_twin_keeps(spark: SparkSession) -> None:
    gate, gated = build(rows(spark))
    u = uniform(gate_seed("g"), [pa.array(np.arange(20_000))])
    for keep in (0.0, 0.25, 1.0, 0.7):
        set_by_batch(gate, keep)
        assert ids(gated) == np.flatnonzero(u < keep).tolist()


@pytest.mark.parametrize("is_bounded", [False, None])
def test_by_batch_old_rows_have_entries_of_their_own(spark: SparkSession, is_bounded: bool | None) -> None:
    """With classes and weights, whether or not the gate would be bounded by arrival; the twin is numpy's."""
    count = 9_000
    gate, gated = build(
        rows(spark, count), is_bounded=is_bounded, weight_column="w", priorities=Priorities("kind", {0: 10, 1: 3, 2: 1})
    )
    micros = np.arange(count) * 1000 + int(BASE_S * 1e6)
    older = OlderRows(int(micros[3_000]), (0.2, 0.0, 0.1, 0.0))
    tables = gate.state.put_in_force((0.9, 0.5, 0.3, 0.0), older, int(micros[8_000]))
    gate.publish(tables)
    keep = tables[0].lookup_arrivals(micros, np.arange(count) % 3)
    passes = uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep
    weights = {row["id"]: row["w"] for row in gated.select("id", "w").collect()}
    assert sorted(weights) == np.flatnonzero(passes).tolist()
    assert [weights[one] for one in np.flatnonzero(passes)] == pytest.approx((1 / keep[passes]).tolist())
    reading = gate.take_reading()
    assert reading.kept == passes.sum()
    assert reading.expired == (~passes[:3_000]).sum()
    by_class = [(~passes[:3_000])[first::3].sum() for first in range(3)]
    assert reading.expired_by_class == (*by_class, 0)
    assert reading.mean_expired_arrival_s == pytest.approx(micros[:3_000][~passes[:3_000]].mean() / 1e6, abs=0.002)
    assert reading.mean_arrival_s == pytest.approx(micros[passes].mean() / 1e6, abs=0.002)
    assert reading.from_future == passes[8_001:].sum()


def test_a_table_holds_for_a_plan_that_was_made_before(spark: SparkSession) -> None:
    """Spark plans a batch before it asks for its table, so the optimiser must not evaluate any of it."""
    count = 4_000
    gate, gated = build(rows(spark, count), weight_column="w")
    assert len(gated.collect()) == count
    micros = np.arange(count) * 1000 + int(BASE_S * 1e6)
    tables = gate.state.put_in_force((0.75,), OlderRows(int(micros[1_000]), (0.125,)), int(micros[3_000]))
    gate.take_reading()
    gate.publish(tables)
    keep = tables[0].lookup_arrivals(micros)
    passes = uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep
    weights = {row["id"]: row["w"] for row in gated.collect()}
    assert sorted(weights) == np.flatnonzero(passes).tolist()
    assert set(weights.values()) == {1 / 0.125, 1 / 0.75}
    reading = gate.take_reading()
    assert reading.expired == (~passes[:1_000]).sum()
    assert reading.from_future == passes[3_001:].sum()


@pytest.mark.parametrize("by_arrival", [False, True])
def test_its_code_is_as_short_as_in_a_session_without_checks(spark: SparkSession, by_arrival: bool) -> None:
    """In ANSI mode Spark checks each operation, and keeps a stack trace for each expression that it sends to executors."""
    # Before 4.3 a remainder is checked too, and Spark computes it again at each place that needs it.
    df = rows(spark).withColumn("kind", F.col("id").bitwiseAND(F.lit(1)))
    for options in ({"is_bounded": None}, {"priorities": Priorities("kind", {0: 10, 1: 3, 2: 1})}):
        _, gated = build(df, by_arrival=by_arrival, **options)
        debug: Any = getattr(spark._jvm.org.apache.spark.sql.execution.debug, "package")  # type: ignore[union-attr]  # noqa: B009
        plain, ours = (debug.codegenString(each._jdf.queryExecution().executedPlan()).count("errCtx") for each in (df, gated))
        assert ours == plain
        if minor_version(spark.version) >= (4, 0):  # older ones note no call sites
            assert len(call_sites(gated)) <= len(call_sites(df)) + 1


def call_sites(df: DataFrame) -> set[str]:
    """The stack traces that come with the plan of a DataFrame."""
    sites = set()
    nodes = [df._jdf.queryExecution().executedPlan()]
    while nodes:
        node = nodes.pop()
        if node.getClass().getName().endswith("Exec"):
            inner = node.expressions()
            nodes += [inner.apply(number) for number in range(inner.size())]
        trace = node.origin().stackTrace()
        if trace.isDefined():
            sites.add(str([str(frame) for frame in trace.get()]))
        inner = node.children()
        nodes += [inner.apply(number) for number in range(inner.size())]
    return sites


def test_a_fixed_index_is_the_same_in_every_partition(spark: SparkSession) -> None:
    """And the optimiser can't evaluate it, or an entry would be replaced by its value."""
    numbers = range(20)
    columns = [fixed_index(number).alias(str(number)) for number in numbers]
    df = spark.range(0, 40, 1, 20).select(*columns)
    assert {tuple(row) for row in df.collect()} == {tuple(numbers)}
    plan = df._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("SPARK_PARTITION_ID()") == len(numbers)


def test_by_batch_strange_arrival_times_lose_nothing(spark: SparkSession) -> None:
    """Null, the epoch, before it, the last microsecond of the year 9999: none breaks a sum, and no null is old."""
    times = [None, 0, -5, -62_135_596_800_000_000, 253_402_300_799_999_999, int(BASE_S * 1e6), int(BASE_S * 1e6) + 5]
    df = spark.createDataFrame([(number, micros) for number, micros in enumerate(times)], "id bigint, micros bigint")
    df = df.select("id", F.timestamp_micros("micros").alias("arrival")).coalesce(1)
    gate, gated = build(df)
    set_by_batch(gate, 1.0)
    assert ids(gated) == list(range(len(times)))
    reading = gate.take_reading()
    assert (reading.kept, reading.null_arrivals, reading.expired) == (6, 1, 0)
    gate.publish(gate.state.put_in_force((1.0,), OlderRows(to_micros(BASE_S), (0.0,)), to_micros(BASE_S)))
    assert ids(gated) == [0, 4, 5, 6]
    reading = gate.take_reading()
    assert (reading.kept, reading.null_arrivals, reading.expired, reading.from_future) == (3, 1, 3, 2)
    gate.publish((BatchTable.of((0.0,), older=(0.0,), line=to_micros(BASE_S)),))
    assert ids(gated) == [], "by batch, a row without an arrival is as new as any"


def test_the_mean_arrival_is_right_although_the_sum_overflows(spark: SparkSession) -> None:
    """2^63 ticks are 5.6 million arrivals of today; a batch has them, and so has a query after a while."""
    count = 6_000_000
    times = F.timestamp_micros(F.col("id") % 1_000 + int(BASE_S * 1e6))
    gate, gated = build(spark.range(0, count, 1, 2).withColumn("arrival", times))
    set_by_batch(gate, 1.0)
    for _ in range(2):
        assert gated.agg(F.count("*")).first()[0] == count  # type: ignore[index]
        assert gate.take_reading().mean_arrival_s == pytest.approx(BASE_S, abs=0.002)


@pytest.mark.parametrize("by_arrival", [False, True])
def test_kafkas_mark_for_no_timestamp_is_no_arrival(spark: SparkSession, by_arrival: bool) -> None:
    """-1 ms is as good as null, and a microsecond beside it is a time."""
    times = [None, -1_000, -999, int(BASE_S * 1e6)]
    df = spark.createDataFrame([(number, micros) for number, micros in enumerate(times)], "id bigint, micros bigint")
    df = df.select("id", F.timestamp_micros("micros").alias("arrival")).coalesce(1)
    gate, gated = build(df, by_arrival=by_arrival)
    if by_arrival:
        gate.state.ring.decide(-1_000_000, [0.0])
        gate.publish(gate.state.tables())
        assert ids(gated) == [0, 1], "always kept"
    else:
        gate.publish(gate.state.put_in_force((1.0,), OlderRows(to_micros(BASE_S), (0.0,)), to_micros(BASE_S)))
        assert ids(gated) == [0, 1, 3], "as new as any"
    assert gate.take_reading().null_arrivals == 2


def test_set_by_arrival_it_keeps_what_the_twin_keeps(spark: SparkSession) -> None:
    count = 20_000
    gate, gated = build(rows(spark, count), by_arrival=True)
    slots = (np.arange(count) * 1000 + int(BASE_S * 1e6)) >> SLOT_SHIFT
    for place, keep in enumerate((0.5, 0.1, 0.9)):
        gate.state.ring.decide(int(slots[0]) + 20 + 40 * place, [keep])
    gate.publish(gate.state.tables())
    keep = gate.state.ring.table().lookup(slots)
    assert len(set(keep.tolist())) == 4
    assert ids(gated) == np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep).tolist()


@pytest.mark.parametrize("is_bounded", [False, True])
def test_slots_share_entries_where_a_gate_has_many_buckets(spark: SparkSession, is_bounded: bool | None) -> None:
    """The numbers of a decision are in the table once, not once per slot; the twin is numpy's."""
    count, buckets = 20_000, 500
    df = rows(spark, count).withColumn("bucket", (F.col("id") % buckets).cast("int"))
    model = Buckets("bucket", BucketKeeps(buckets), is_counted=True)
    gate, gated = build(df, by_arrival=True, weight_column="w", is_bounded=is_bounded, buckets=model)
    assert len(ids(gated)) == count
    assert gate.take_reading().older_than_ring == 0, "nothing is decided yet"
    slots = (np.arange(count) * 1000 + int(BASE_S * 1e6)) >> SLOT_SHIFT
    generator, oldest = np.random.default_rng(7), int(slots[0]) + 10
    for slot in (oldest - 20, oldest, oldest + 1, oldest + 40, oldest + SLOTS - 1):
        keeps = np.where(generator.random(buckets) < 0.2, 0.0, generator.random(buckets))
        gate.state.ring.decide(slot, (*keeps, *((3_000.0,) if gate.state.is_bounded else ())))
    (table,) = gate.state.tables()
    gate.publish((table,))
    assert (table.oldest, len(table.keeps)) == (oldest, 4)
    ranks = np.arange(count) % (count // 2) if gate.state.is_bounded else None
    keep = table.lookup(slots, np.arange(count) % buckets, ranks)
    passes = uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep
    weights = {row["id"]: row["w"] for row in gated.select("id", "w").collect()}
    assert sorted(weights) == np.flatnonzero(passes).tolist()
    assert [weights[one] for one in np.flatnonzero(passes)] == pytest.approx((1 / keep[passes]).tolist())
    reading = gate.take_reading()
    assert reading.older_than_ring == passes[slots <= oldest].sum()
    assert reading.offered_by_class == (count // buckets,) * buckets


def test_rows_older_than_the_table_take_its_oldest_entry_and_are_counted(spark: SparkSession) -> None:
    count = 1000
    gate, gated = build(rows(spark, count), by_arrival=True)
    gate.state.ring.decide(((int(BASE_S * 1e6)) >> SLOT_SHIFT) - 5, [0.5])
    gate.state.ring.decide((int(BASE_S * 1e6) >> SLOT_SHIFT) + 3 * SLOTS, [0.0])
    gate.publish(gate.state.tables())
    expected = np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(count))]) < 0.5).tolist()
    assert ids(gated) == expected
    assert gate.take_reading().older_than_ring == len(expected)


def test_classes_have_a_keep_each_and_the_unnamed_share_one(spark: SparkSession) -> None:
    count = 9_000
    gate, gated = build(rows(spark, count), priorities=Priorities("kind", {0: 10, 2: 1}))
    assert gate.state.class_names == ("0", "2", "(other)")
    set_by_batch(gate, 0.9, 0.2, 0.5)
    keep = np.array([0.9, 0.5, 0.2])[np.arange(count) % 3]
    assert ids(gated) == np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep).tolist()
    assert gate.take_reading().offered_by_class == (3000, 3000, 3000)


def test_classes_may_be_an_expression_and_set_by_arrival(spark: SparkSession) -> None:
    count = 9_000
    big = F.when(F.col("id") >= 4_000, "big").otherwise("small")
    gate, gated = build(rows(spark, count), by_arrival=True, priorities=Priorities(big, {"big": 2, "small": 1}))
    slots = (np.arange(count) * 1000 + int(BASE_S * 1e6)) >> SLOT_SHIFT
    gate.state.ring.decide(int(slots[0]) + 10, [0.8, 0.1, 0.0])
    gate.publish(gate.state.tables())
    keep = gate.state.ring.table().lookup(slots, (np.arange(count) < 4_000).astype(int))
    assert ids(gated) == np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep).tolist()


def test_a_bounded_gate_keeps_what_the_twin_keeps(spark: SparkSession) -> None:
    """Two partitions of ten thousand rows; in full are first all, then 1,000, then 3,000 of each."""
    count = 20_000
    gate, gated = build(rows(spark, count), by_arrival=True, is_bounded=True, weight_column="w")
    assert gated.columns == ["id", "arrival", "kind", "w"]
    slots = (np.arange(count) * 1000 + int(BASE_S * 1e6)) >> SLOT_SHIFT
    gate.state.ring.decide(int(slots[0]) + 20, [0.8, 1_000.0])
    gate.state.ring.decide(int(slots[0]) + 100, [0.5, 3_000.0])
    gate.publish(gate.state.tables())
    keep = gate.state.ring.table().lookup(slots, ranks=np.arange(count) % 10_000)
    assert keep.min() == pytest.approx(0.8 * 0.1**4)
    expected = np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(count))]) < keep)
    found = {row["id"]: row["w"] for row in gated.select("id", "w").collect()}
    assert sorted(found) == expected.tolist()
    assert [found[place] for place in expected] == pytest.approx((1 / keep[expected]).tolist())
    assert gate.take_reading().kept >= len(expected)


def test_set_by_batch_a_bounded_gate_has_no_bound(spark: SparkSession) -> None:
    gate, gated = build(rows(spark), is_bounded=True)
    gate.publish(gate.state.put_in_force(gate.state.entries(0.4, full_rows=10.0)))
    assert ids(gated) == np.flatnonzero(uniform(gate_seed("g"), [pa.array(np.arange(20_000))]) < 0.4).tolist()


def test_a_bound_needs_an_arrival_column(spark: SparkSession) -> None:
    with pytest.raises(PenstockError, match=r"gate .g.: bounded=True needs arrival="):
        build(rows(spark), is_bounded=True, arrival=None)


def test_weights_undo_the_drop(spark: SparkSession) -> None:
    gate, gated = build(rows(spark), priorities=Priorities("kind", {0: 4, 1: 1}), weight_column="w")
    set_by_batch(gate, 1.0, 0.25, 0.5)
    by_kind = {row["kind"]: row for row in gated.groupBy("kind").agg(F.first("w").alias("w"), F.sum("w").alias("n")).collect()}
    assert {kind: row["w"] for kind, row in by_kind.items()} == {0: 1.0, 1: 4.0, 2: 2.0}
    for row in by_kind.values():
        assert row["n"] == pytest.approx(20_000 / 3, rel=0.1)


def test_by_arrival_rows_without_arrival_are_kept_and_counted(spark: SparkSession) -> None:
    df = rows(spark, 1000).withColumn("arrival", F.when(F.col("id") % 4 != 0, F.col("arrival")))
    gate, gated = build(df, by_arrival=True, weight_column="w")
    gate.state.ring.decide(0, [0.0])
    gate.publish(gate.state.tables())
    assert ids(gated) == list(range(0, 1000, 4))
    assert gate.take_reading().null_arrivals == 250
    assert {row["w"] for row in gated.select("w").distinct().collect()} == {1.0}


def test_the_mean_arrival_is_that_of_the_rows_kept(spark: SparkSession) -> None:
    gate, gated = build(rows(spark, 10_000))
    set_by_batch(gate, 0.3)
    kept = np.array(ids(gated))
    reading = gate.take_reading()
    assert reading.kept == len(kept)
    assert reading.mean_arrival_s == pytest.approx(BASE_S + kept.mean() / 1000, abs=0.002)


def test_it_stands_where_it_was_put(spark: SparkSession) -> None:
    """Neither merged with the user's filters nor pushed through a join or an aggregation: its counts are its own."""
    gate, gated = build(rows(spark, 3_000).where("id >= 600").join(spark.range(0, 3_000, 2), "id"))
    set_by_batch(gate, 0.5)
    result = gated.where("kind = 1").groupBy("kind").count()
    plan = result._jdf.queryExecution().executedPlan()
    result.collect()
    counts = PlanCounter([gate]).read(plan)["g"]
    after_join = np.arange(600, 3_000, 2)
    assert counts.offered == len(after_join)
    assert counts.kept == (uniform(gate_seed("g"), [pa.array(after_join)]) < 0.5).sum()


def test_gates_upstream_of_python_functions_shed_their_work(spark: SparkSession) -> None:
    gate, gated = build(rows(spark, 4_000))
    set_by_batch(gate, 0.25)

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    result = gated.mapInArrow(passing, gated.schema)
    assert len(ids(result)) == (uniform(gate_seed("g"), [pa.array(np.arange(4_000))]) < 0.25).sum()


def test_several_gates_in_one_plan(spark: SparkSession) -> None:
    left, one = build(rows(spark, 4_000))
    right, two = build(rows(spark, 4_000).select("id", F.col("arrival").alias("at")), name="h", arrival="at")
    set_by_batch(left, 0.5)
    set_by_batch(right, 0.2)
    joined = one.join(two, "id")
    all_ids = [pa.array(np.arange(4_000))]
    both = (uniform(gate_seed("g"), all_ids) < 0.5) & (uniform(gate_seed("h"), all_ids) < 0.2)
    assert ids(joined) == np.flatnonzero(both).tolist()


def compilations(spark: SparkSession) -> int:
    return int(spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())


@pytest.mark.parametrize("by_arrival", [False, True])
def test_a_new_table_needs_no_new_code(spark: SparkSession, tmp_path: Path, by_arrival: bool) -> None:
    """Spark counts its compilations: a running query with a changing table has none."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2_000).option("numPartitions", 2).load()
    gate, gated = build(source, by_arrival=by_arrival, arrival="timestamp", identity=("value",), weight_column="w")
    kept: list[int] = []
    compiled: list[int] = []

    def batch(df: DataFrame, number: int) -> None:
        keep = (number % 9 + 1) / 10
        if by_arrival:
            gate.publish((KeepTable(10**9 + number, np.full((SLOTS, 1), keep)),))
        else:
            set_by_batch(gate, keep)
        df.write.format("noop").mode("overwrite").save()
        kept.append(gate.take_reading().kept)
        compiled.append(compilations(spark))

    counted = gated.groupBy((F.col("value") % 7).alias("k")).agg(F.sum("w"))
    writer = counted.writeStream.foreachBatch(batch).outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        deadline = time.monotonic() + 60
        while len(kept) < 12 and time.monotonic() < deadline and query.exception() is None:
            time.sleep(0.05)
    finally:
        query.stop()
    assert len(kept) >= 12, query.exception()
    for number in range(12):
        first = 2_000 * number
        u = uniform(gate_seed("g"), [pa.array(np.arange(first, first + 2_000))])
        assert kept[number] == (u < (number % 9 + 1) / 10).sum()
    # The first batches have the plan compiled; after them nothing is.
    assert compiled[11] == compiled[2]
