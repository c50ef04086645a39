"""A query has only its own way in the plan of its gates, and keeps the same rows; by batch, its batches are counted beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Priorities, Shedder
from penstock.spark import batch_driver
from penstock.spark.catalyst import has_switch
from penstock.spark.gates import settle_way

from .conftest import Cycle, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]


def describe(df: DataFrame) -> str:
    return str(df._jdf.queryExecution().analyzed().toString())


def list_nodes(node: Any) -> list[str]:
    """Return each node of a plan with all its columns."""
    children = [node.children().apply(position) for position in range(node.children().size())]
    return [str(node.simpleString(1_000)), *(line for child in children for line in list_nodes(child))]


def test_what_the_other_way_needs_is_gone_and_nothing_of_the_user_changes(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    before = ticks().where(F.col("timestamp") > F.current_timestamp()).withColumn("one", F.lit(0) + F.lit(1))
    gated = shedder.gate(before, name="in", arrival="timestamp", identity="value", weight_column="w")
    settled = settle_way(gated, list(shedder._gates.values()))
    assert has_switch(describe(gated))
    assert not has_switch(describe(settled))
    assert settled.schema == gated.schema
    for part in ("current_timestamp()", "(0 + 1) AS one"):  # not for an optimiser to evaluate, before the query starts
        assert part in describe(settled)


def test_nor_is_it_there_among_more_columns_than_spark_shows(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    wide = ticks().select("*", *(F.lit(number).alias(f"c{number}") for number in range(60)))
    gated = shedder.gate(wide, name="in", arrival="timestamp", identity="value")
    settled = settle_way(gated, list(shedder._gates.values()))
    assert any(has_switch(line) for line in list_nodes(gated._jdf.queryExecution().analyzed()))
    assert not any(has_switch(line) for line in list_nodes(settled._jdf.queryExecution().analyzed()))


@pytest.mark.parametrize("by_arrival", [True, False])
def test_a_gate_that_is_yet_to_change_its_way_keeps_both(ticks: Ticks, by_arrival: bool) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
    (gate,) = shedder._gates.values()
    gate.set_how(by_arrival=by_arrival)
    assert settle_way(gated, [gate], by_arrival=not by_arrival) is gated
    assert not has_switch(describe(settle_way(gated, [gate], by_arrival=by_arrival)))


def test_classes_that_depend_on_the_time_are_not_evaluated_at_the_start(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    is_late = (F.col("timestamp") < F.current_timestamp()).cast("int")
    gated = shedder.gate(ticks(), name="in", arrival="timestamp", priorities=Priorities(is_late, {0: 2.0, 1: 1.0}))
    assert settle_way(gated, list(shedder._gates.values())) is gated


def test_the_running_query_has_one_way(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, lambda df, _: df.count(), checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: query.lastProgress is not None, query)
        assert not has_switch(str(query._jsq.streamingQuery().lastExecution().logical().toString()))


def test_the_running_query_by_arrival_has_one_way_and_all_that_its_writer_was_told(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value", weight_column="w")
        writer = gated.withColumn("half", F.col("value") % 2).writeStream.format("parquet").partitionBy("half")
        options = {"path": str(tmp_path / "out"), "checkpointLocation": str(tmp_path / "cp")}
        query = shedder.start(writer.options(**options).queryName("told").trigger(processingTime="10 milliseconds"), by="arrival")
        stream = query._jsq.streamingQuery()
        wait_until(lambda: len(list((tmp_path / "out").glob("half=*"))) == 2 and len(shedder.report().table) > 2, query)
        assert not has_switch(str(stream.lastExecution().logical().toString()))
        assert query.name == "told"
        assert "10" in str(stream.trigger().toString())
    assert all(row["offered"] == 1_000 for row in shedder.report().table.to_pylist())


def test_a_function_of_the_users_is_called_by_arrival(ticks: Ticks, tmp_path: Path) -> None:
    called: list[int] = []
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        writer = gated.writeStream.foreachBatch(lambda df, number: called.append(df.count()))
        query = shedder.start(writer.option("checkpointLocation", str(tmp_path / "cp")), by="arrival")
        wait_until(lambda: len(called) > 2, query)
        assert not has_switch(str(query._jsq.streamingQuery().lastExecution().logical().toString()))


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_batch_is_counted_beside_the_query_where_the_next_start_could_count_it(
    ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_checkpoint: bool
) -> None:
    threads: list[str] = []
    read = batch_driver.GateCounter._read

    def note(self: Any, plan: Any) -> Any:
        threads.append(threading.current_thread().name)
        return read(self, plan)

    monkeypatch.setattr(batch_driver.GateCounter, "_read", note)
    with Shedder("2s", controller=Cycle(), journal=tmp_path / "journal") as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        place = {"checkpoint": tmp_path / "cp"} if has_checkpoint else {}
        query = shedder.foreach_batch(gated, lambda df, _: df.write.format("noop").mode("append").save(), name="q", **place)
        wait_until(lambda: len(threads) > 4, query)
    first, *others = (name.startswith("penstock-counts") for name in threads)
    assert not first  # before it is counted, nothing else is planned
    assert all(is_beside == has_checkpoint for is_beside in others)
    batches = shedder.report().table.to_pylist()
    assert len(batches) == len(threads)
    assert all(row["offered"] == 1_000 for row in batches)


def test_a_report_waits_for_the_counts_of_the_last_batch(ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_count = threading.Event()
    read = batch_driver.GateCounter._read

    def wait(self: Any, plan: Any) -> Any:
        if threading.current_thread().name.startswith("penstock-counts"):
            assert may_count.wait(60)
        return read(self, plan)

    monkeypatch.setattr(batch_driver.GateCounter, "_read", wait)
    ran: list[int] = []
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, lambda df, number: ran.append(number) or df.count(), checkpoint=tmp_path / "cp")
        # The second one is not counted, so Spark has committed it and waits with the third.
        wait_until((tmp_path / "cp/commits/1").exists, query)
        threading.Timer(0.5, may_count.set).start()
        assert ran == [0, 1]
        assert shedder.report().table.num_rows >= 2
        assert may_count.is_set()
