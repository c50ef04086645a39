"""Load-aware shedding on Spark: functions timed where they run, the dear keys shed first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Controller, Decision, LoadAware, Observation, PenstockError, load_aware
from penstock.journal import read_journal
from penstock.las.bucket_keeps import BucketKeeps
from penstock.spark import load_aware_worker as worker_module

from .conftest import to_arrow, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]


class Half(Controller):
    """Keeps half of the work."""

    def update(self, observation: Observation) -> Decision:
        self.seen = observation
        return Decision(keep=0.5)


def spend(value: int) -> float:
    """Every tenth key costs twenty times as much."""
    end_s = time.perf_counter() + (2e-3 if value % 10 == 0 else 1e-4)
    while time.perf_counter() < end_s:
        pass
    return value * 0.5


def by_arrow(values: pa.Array) -> pa.Array:
    return pa.array([spend(value) for value in values.to_pylist()])


def by_pandas(values: Any) -> Any:
    return values.map(spend)


def by_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        values = batch.column("value")
        yield pa.RecordBatch.from_arrays([values, by_arrow(values)], names=["value", "result"])


def run(aware: LoadAware, df: DataFrame, place: Path, batches: int = 12) -> dict[int, list[dict[str, Any]]]:
    """Run some batches and return the rows of each."""
    found: dict[int, list[dict[str, Any]]] = {}

    def sink(batch: DataFrame, number: int) -> None:
        found[number] = to_arrow(batch).to_pylist()

    query = aware.foreach_batch(df, sink, checkpoint=place / "cp")
    wait_until(lambda: len(found) >= batches, query, 90.0)
    aware.stop()
    return found


@pytest.mark.parametrize(
    ("kind", "function", "options"),
    [
        ("row", spend, {"columns": "value", "returns": "double"}),
        ("arrow", by_arrow, {"columns": "value", "returns": "double"}),
        ("pandas", by_pandas, {"columns": ["value"], "returns": "double"}),
        ("map_in_arrow", by_batches, {"schema": "value bigint, result double"}),
    ],
)
def test_dear_keys_are_shed_first(kind: str, function: Any, options: dict[str, Any], ticks: Ticks, tmp_path: Path) -> None:
    """At half of the work far more than half of the rows stay, and results are those of the function."""
    key = F.col("value") % 10
    aware = load_aware(function, key=key, delay_target="2s", kind=kind, buckets=64, controller=Half(2.0), **options)
    found = run(aware, aware(ticks(rows=200), name="in", identity="value"), tmp_path)
    rows = [row for number in range(6, 12) for row in found.get(number, [])]
    assert all(row["result"] == row["value"] * 0.5 for row in rows)
    kept = len(rows) / (200 * 6)
    dear = sum(row["value"] % 10 == 0 for row in rows) / (20 * 6)
    assert kept > 0.7
    assert dear < 0.6
    costs = aware.model.costs_s
    assert costs.max() > 4 * np.median(costs[costs > 0])


@pytest.mark.slow
def test_as_many_buckets_as_a_plan_can_hold(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    """By arrival, where a table has the keeps of many decisions."""
    options = {"columns": "value", "returns": "double", "buckets": 1_000, "controller": Half(2.0)}
    aware = load_aware(lambda value: value * 0.5, key="value", delay_target="2s", **options)
    source = ticks(rows=500).withColumn("arrival", F.current_timestamp())
    gated = aware(source, name="in", arrival="arrival", identity="value")
    writer = gated.writeStream.format("memory").queryName("buckets").option("checkpointLocation", str(tmp_path / "cp"))
    query = aware.shedder.start(writer, by="arrival")
    wait_until(lambda: any(0 < row["kept"] < 500 for row in aware.report().table.to_pylist()), query)
    aware.stop()
    batches = read_journal(tmp_path / "cp" / "penstock").batches
    rows = to_arrow(session.table("buckets")).to_pylist()
    kept = [row for row in rows if row["value"] < 500 * len(batches)]
    assert all(row["result"] == row["value"] * 0.5 for row in kept)
    assert sum(batch.gates["in"][1] for batch in batches.values()) == len(kept)


def test_uniform_looks_at_no_cost(ticks: Ticks, tmp_path: Path) -> None:
    options = {"columns": "value", "returns": "double", "how": "uniform"}
    aware = load_aware(spend, key=F.col("value") % 10, delay_target="2s", controller=Half(2.0), **options)
    found = run(aware, aware(ticks(rows=200), name="in", identity="value"), tmp_path, batches=8)
    rows = [row for number in range(3, 8) for row in found[number]]
    assert 0.4 < len(rows) / 1000 < 0.6


def test_native_operators_are_learnt_by_regression(ticks: Ticks, tmp_path: Path) -> None:
    """The batch time alone tells which buckets cost more, over batches of different keys."""
    aware = load_aware(
        lambda df: df.withColumn("result", F.sha2(F.col("value").cast("string"), 256)),
        key=F.col("value") % 4,
        delay_target="2s",
        kind="native",
        buckets=4,
        controller=Half(2.0),
    )
    found = run(aware, aware(ticks(rows=200), name="in", identity="value"), tmp_path, batches=6)
    assert all("result" in row for row in found[5])
    assert np.isfinite(aware.model.costs_s).all()
    assert aware.model.rows.sum() == pytest.approx(200, rel=0.05)


def test_regression_tells_buckets_apart() -> None:
    rng = np.random.default_rng(1)
    true = np.array([1e-3, 5e-3, 2e-2])
    model = BucketKeeps(3)
    for _ in range(400):
        rows = rng.integers(0, 100, 3).astype(float)
        model.update_from_total(rows, float(rows @ true) * (1 + 0.05 * rng.standard_normal()))
    np.testing.assert_allclose(model.costs_s, true, rtol=0.3)


def test_null_keys_have_a_bucket_of_their_own(ticks: Ticks, tmp_path: Path) -> None:
    key = F.when(F.col("value") % 2 == 0, F.col("value") % 10)
    aware = load_aware(spend, key=key, delay_target="1h", columns="value", returns="double", buckets=16)
    run(aware, aware(ticks(rows=100), name="in", identity="value"), tmp_path, batches=3)
    assert aware.model.rows[16] == pytest.approx(50, abs=1)


def test_the_functions_own_error_passes_through(ticks: Ticks, tmp_path: Path) -> None:
    def fail(value: int) -> float:
        if value == 150:
            raise ValueError("no such thing as 150")
        return 1.0

    aware = load_aware(fail, key="value", delay_target="1h", columns="value", returns="double")
    df = aware(ticks(rows=100), name="in", identity="value")
    query = aware.foreach_batch(df, lambda batch, _: batch.collect(), checkpoint=tmp_path / "cp")
    wait_until(lambda: query.exception() is not None)
    assert "no such thing as 150" in str(query.exception())
    aware.stop()


def test_a_function_that_returns_at_once(ticks: Ticks, tmp_path: Path) -> None:
    aware = load_aware(lambda value: value, key="value", delay_target="1h", columns="value", returns="bigint")
    found = run(aware, aware(ticks(rows=100), name="in", identity="value"), tmp_path, batches=3)
    assert [row["result"] for row in found[0]] == [row["value"] for row in found[0]]
    assert all(len(rows) == 100 for rows in found.values())


def test_what_was_learnt_survives_a_restart_and_replays_drop_the_same(ticks: Ticks, tmp_path: Path) -> None:
    def make() -> tuple[LoadAware, DataFrame]:
        options = {"columns": "value", "returns": "double", "buckets": 64, "controller": Half(2.0)}
        aware = load_aware(spend, key=F.col("value") % 10, delay_target="2s", **options)
        return aware, aware(ticks(rows=200), name="in", identity="value")

    aware, df = make()
    before = run(aware, df, tmp_path, batches=6)
    state = read_journal(tmp_path / "cp" / "penstock")
    costs = aware.model.costs_s
    again, df = make()
    assert np.isnan(again.model.costs_s).all()
    after = run(again, df, tmp_path, batches=3)
    first = min(after)
    assert first >= max(before)
    assert len(after[max(after)]) < 200  # it sheds from what it knew
    for number in set(before) & set(after):  # a batch that was replayed
        assert before[number] == after[number]
    assert np.isfinite(again.model.costs_s).all()
    assert again.model.costs_s.argmax() == costs.argmax()
    for record in state.batches.values():
        offered, kept = record.gates["in"]
        assert 0 <= kept <= offered == 200


def test_weights_scale_counts_back_up(ticks: Ticks, tmp_path: Path) -> None:
    """Dear keys are kept rarely and count as often as they came, within four standard errors."""
    options = {"columns": "value", "returns": "double", "buckets": 64, "controller": Half(2.0), "floor": 0.2}
    aware = load_aware(spend, key=F.col("value") % 10, delay_target="2s", **options)
    found = run(aware, aware(ticks(rows=200), name="in", identity="value", weight_column="w"), tmp_path)
    weights = [row["w"] for number in range(4, 12) for row in found[number]]
    true = 8 * 200
    error = np.sqrt(sum(w * (w - 1) for w in weights))
    assert abs(sum(weights) - true) <= 4 * error + 1e-9


def test_a_worker_that_dies_costs_nothing_but_a_restart(ticks: Ticks, tmp_path: Path) -> None:
    flag = str(tmp_path / "died")

    def deadly(value: int) -> int:
        if value == 250 and not Path(flag).exists():
            Path(flag).write_text("")
            os._exit(1)
        return value

    def start() -> tuple[LoadAware, Any, dict[int, list[int]]]:
        found: dict[int, list[int]] = {}
        aware = load_aware(deadly, key="value", delay_target="1h", columns="value", returns="bigint")
        df = aware(ticks(rows=100), name="in", identity="value")

        def sink(batch: DataFrame, number: int) -> None:
            found[number] = sorted(row.result for row in batch.collect())

        return aware, aware.foreach_batch(df, sink, checkpoint=tmp_path / "cp"), found

    aware, query, first = start()
    wait_until(lambda: query.exception() is not None)
    aware.stop()
    assert max(first) == 1
    aware, query, second = start()
    wait_until(lambda: len(second) >= 3, query)
    aware.stop()
    assert second[2] == list(range(200, 300))
    for offered, kept in (record.gates["in"] for record in read_journal(tmp_path / "cp" / "penstock").batches.values()):
        assert offered == kept == 100


def test_two_queries_are_each_measured(ticks: Ticks, tmp_path: Path) -> None:
    aware = load_aware(spend, key="value", delay_target="1h", columns="value", returns="double", buckets=8)
    done: dict[str, int] = {"a": 0, "b": 0}

    def start(name: str) -> Any:
        def sink(df: DataFrame, number: int) -> None:
            df.write.format("noop").mode("overwrite").save()
            done[name] = number

        gated = aware(ticks(rows=50), name=name)
        return aware.foreach_batch(gated, sink, name=name, checkpoint=tmp_path / name, trigger="200ms")

    with aware:
        first = start("a")
        wait_until(lambda: done["a"] >= 2, first)
        second = start("b")
        wait_until(lambda: done["b"] >= 3, second)
        wait_until(lambda: done["a"] >= 6, first)
    for query in aware.report().queries:
        assert all(record.work_s is not None and record.work_s > 0 for record in query.batches), query.label


def test_columns_may_have_any_name(ticks: Ticks, tmp_path: Path) -> None:
    aware = load_aware(spend, key="the`key", delay_target="2s", columns="a.value", returns="double")
    df = ticks(rows=100).select(F.col("value").alias("a.value"), (F.col("value") % 7).alias("the`key"))
    assert run(aware, aware(df, name="in"), tmp_path)


def test_a_clock_that_goes_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 9.0, 9.5, 3.0])
    monkeypatch.setattr(worker_module.time, "perf_counter", lambda: next(ticks))

    class Sum:
        def add(self, value: Any) -> None:
            self.value = value

    notes: Any = Sum()
    worker = worker_module.TimedFunction(
        lambda value: value,
        "row",
        worker_module.BucketTimes(notes, 4),
        columns=("v",),
        output="r",
        output_type=pa.int64(),
        names=("v", worker_module.BUCKET_COLUMN),
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3]), pa.array([0, 1, 2], pa.int32())], names=["v", worker_module.BUCKET_COLUMN]
    )
    assert [made.column("r").to_pylist() for made in worker(iter([batch]))] == [[1, 2, 3]]
    assert notes.value.rows.tolist() == [1, 1, 1, 0]
    assert notes.value.seconds.tolist() == [0.0, 0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "rows"}, "kind must be one of row, pandas, arrow"),
        ({"how": "best"}, "how must be one of threshold, root, uniform"),
        ({}, "kind 'row' needs columns="),
        ({"kind": "map_in_arrow"}, "needs schema="),
        ({"columns": "value", "returns": "double", "delay_target": "-1s"}, "delay_target must be"),
        ({"columns": "value", "returns": "double", "floor": 0.0}, r"floor must lie in \(0, 1\)"),
        ({"columns": "value", "returns": "double", "buckets": -3}, "number of buckets must be positive"),
        ({"columns": "value", "returns": "double", "buckets": 1_001}, "buckets must be at most 1,000, got 1,001"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        load_aware(spend, **{"key": "value", "delay_target": "2s", **options})


def test_columns_that_are_not_there(ticks: Ticks) -> None:
    aware = load_aware(spend, key="value", delay_target="2s", columns="price", returns="double")
    with pytest.raises(PenstockError, match="there is no column 'price'; the columns are timestamp, value"):
        aware(ticks())
    aware = load_aware(spend, key="user", delay_target="2s", columns="value", returns="double")
    with pytest.raises(PenstockError, match="there is no key column 'user'"):
        aware(ticks())
    aware = load_aware(spend, key="value", delay_target="2s", columns="value", returns="floaty", output="x")
    with pytest.raises(PenstockError, match="returns= must be a type such as 'double', got 'floaty'"):
        aware(ticks())
    aware = load_aware(spend, key="value", delay_target="2s", columns="value", returns="double", output="value")
    with pytest.raises(PenstockError, match="there is a column 'value' already"):
        aware(ticks())
    with pytest.raises(PenstockError, match="needs a function"):
        load_aware(3, key="value", delay_target="2s")  # type: ignore[arg-type]
