"""Bad input: one clear line that names the value, the place and what would be right; nothing is left half done."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import PenstockError, Priorities, Shedder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]


def refused(message: str) -> Any:
    return pytest.raises(PenstockError, match=message)


@pytest.mark.parametrize("target", [0, -1, "0s", "-2s", "soon", "", None, math.nan])
def test_delay_target(target: Any) -> None:
    with refused("delay_target must be") as caught:
        Shedder(target)
    assert "\n" not in str(caught.value)


def test_controller() -> None:
    with refused("unknown controller 'pid': there are aurora, ctrl, keep-all, micro-batch, seamless"):
        Shedder("2s", controller="pid")
    with refused("controller must be a name or a Controller, got 3"):
        Shedder("2s", controller=3)  # type: ignore[arg-type]


def test_a_dataframe_that_does_not_stream(session: SparkSession) -> None:
    with refused("got one that is not: read it with spark.readStream"):
        Shedder("2s").gate(session.range(3))


def test_something_else_than_a_dataframe() -> None:
    with refused("a streaming DataFrame is needed, got list"):
        Shedder("2s").gate([1, 2])  # type: ignore[arg-type]


def test_a_stopped_session(ticks: Ticks, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ticks()
    monkeypatch.setattr(stream.sparkSession._sc, "_jsc", None)  # what stop() does
    with refused("has been stopped: make a new one"):
        Shedder("2s").gate(stream)


def test_arrival(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    with refused("gate 'in': there is no arrival column 'when'; the columns are timestamp, value"):
        shedder.gate(ticks(), name="in", arrival="when")
    with refused("the arrival column 'value' must be a timestamp, it is bigint"):
        shedder.gate(ticks(), name="in", arrival="value")
    shedder.gate(ticks(), name="in", arrival="timestamp")  # the name is still free


def test_a_name_used_twice(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    shedder.gate(ticks(), name="in")
    with refused("a gate named 'in' exists already"):
        shedder.gate(ticks(), name="in")


def test_identity(ticks: Ticks) -> None:
    with refused("there is no identity column 'nope'; the columns are timestamp, value"):
        Shedder("2s").gate(ticks(), identity=["value", "nope"])
    with refused("identity must name at least one column"):
        Shedder("2s").gate(ticks(), identity=[])


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf])
def test_weights(weight: float) -> None:
    with refused("the weight of class 1 must be zero or positive"):
        Priorities("value", {1: weight})


def test_classes(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    with refused("there is no class column 'tier'"):
        shedder.gate(ticks(), priorities=Priorities("tier", {"gold": 2}))
    with refused(r"weights must be a mapping such as \{'gold': 10, 'bronze': 1\}, got None"):
        Priorities("value", None)  # type: ignore[arg-type]
    with refused(r"gate 'gate1': priorities must be Priorities\(column, weights\), got \{'gold': 2\}"):
        shedder.gate(ticks(), priorities={"gold": 2})  # type: ignore[arg-type]


def test_more_classes_than_a_plan_can_hold(ticks: Ticks) -> None:
    with refused("gate 'gate1': priorities name 33 classes, at most 32 are possible: .* or shed whole keys"):
        Shedder("2s").gate(ticks(), priorities=Priorities("value", dict.fromkeys(range(33), 1.0)))


def test_a_weight_column_that_exists(ticks: Ticks) -> None:
    with refused("the weight column 'value' exists already"):
        Shedder("2s").gate(ticks(), weight_column="value")


def test_a_query_without_its_gate(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    shedder.gate(ticks(), name="in", arrival="timestamp")
    with refused(r"the query reads no gate of this shedder \(gates: in\): build it on the DataFrame that gate\(\) returned"):
        shedder.start(ticks().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")))
    with refused("query 'q' reads no gate of this shedder"):
        shedder.foreach_batch(ticks(), lambda df, n: None, checkpoint=tmp_path / "cp", name="q")
    query = ticks().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start()
    try:
        with refused("reads no gate of this shedder"):
            shedder.attach(query)
    finally:
        query.stop()
    assert not (tmp_path / "cp" / "penstock").exists()


def test_by_arrival_needs_arrival_times(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), name="in")
    with refused("gate 'in' needs arrival=, the column of arrival times"):
        shedder.start(gated.writeStream.format("noop"), by="arrival")


def test_a_gate_set_by_batch_serves_one_query(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s") as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp")
        shedder.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "a", name="a")
        with refused("gate 'in' serves query 'a' already"):
            shedder.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "b", name="b")
        with refused("gate 'in' serves query 'a' already"):
            shedder.start(gated.writeStream.format("noop").queryName("c").option("checkpointLocation", str(tmp_path / "c")))
        with refused("gate 'in' serves query 'a' already"):
            shedder.start(gated.writeStream.format("noop").queryName("c"), by="arrival")
        with refused("a query named 'a' runs under this shedder already"):
            other = shedder.gate(ticks(), name="other", arrival="timestamp")
            shedder.foreach_batch(other, lambda df, n: df.collect(), checkpoint=tmp_path / "d", name="a")
    assert not (tmp_path / "b").exists()


def test_what_is_no_writer_no_function_no_query(ticks: Ticks) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), arrival="timestamp")
    with refused("start\\(\\) needs a DataStreamWriter"):
        shedder.start(gated)  # type: ignore[arg-type]
    with refused("foreach_batch\\(\\) needs a function"):
        shedder.foreach_batch(gated, "print")  # type: ignore[arg-type]
    with refused("attach\\(\\) needs a running streaming query"):
        shedder.attach("q")  # type: ignore[arg-type]


def test_formats(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), arrival="timestamp")
    with refused("format must be one of csv, json, parquet, console, memory, delta, iceberg, jdbc, kafka, got 'avro'"):
        shedder.write(gated, "avro", tmp_path / "x")
    with refused("format 'parquet' needs a path"):
        shedder.write(gated, "parquet")
    with refused("format 'memory' needs name="):
        shedder.write(gated, "memory")
    with refused("format 'console' writes no files"):
        shedder.write(gated, "console", tmp_path / "x")


def test_an_unwritable_journal(ticks: Ticks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    shedder = Shedder("2s", journal=tmp_path / "file")
    gated = shedder.gate(ticks(), arrival="timestamp")
    with refused("can't be written") as caught:
        shedder.foreach_batch(gated, lambda df, n: None, checkpoint=tmp_path / "cp", name="q")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cp").exists()


def test_a_start_that_spark_refuses_leaves_nothing_behind(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), name="in", arrival="timestamp")
    counted = gated.groupBy("value").count()
    with pytest.raises(Exception, match=r"watermark|Append output mode"):
        shedder.foreach_batch(counted, lambda df, n: None, checkpoint=tmp_path / "cp")
    assert shedder.report().table.num_rows == 0
    with shedder:
        query = shedder.foreach_batch(counted, lambda df, n: df.collect(), checkpoint=tmp_path / "cp", output_mode="update")
        assert query.isActive


def test_other_classes_after_a_restart(ticks: Ticks, tmp_path: Path) -> None:
    from penstock.journal import DecisionRecord, Journal

    journal = Journal(tmp_path / "cp" / "penstock")
    journal.append(DecisionRecord({"in": (0.5, 0.2, 0.1)}, 0.3, from_slot=5))
    journal.close()
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), name="in", arrival="timestamp", priorities=Priorities(F.col("value") % 2, {0: 1}))
    for by in ("batch", "arrival"):
        with refused("gate 'in': the journal has 3 classes where the gate has 2; use a new checkpoint, or the old weights"):
            shedder.start(gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")), by=by)


def test_a_missing_kafka_connector(ticks: Ticks, tmp_path: Path) -> None:
    """This session has none: one line with what to add."""
    shedder = Shedder("2s")
    writer = shedder.gate(ticks(), name="in").selectExpr("CAST(value AS STRING)").writeStream.format("kafka")
    with refused(r"add org.apache.spark:spark-sql-kafka-0-10_2.1[23]:[34]\S+ to spark.jars.packages") as caught:
        shedder.start(writer.option("topic", "rows").option("checkpointLocation", str(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["checkpoint", "journal"])
@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("s3a://rows/far", r"no connector for s3a; add org\.apache\.hadoop:hadoop-aws:3\.\d+\.\d+ to spark\.jars\.packages"),
        (
            "s3://rows/far",
            "no connector for s3; open-source Spark calls it s3a: use s3a:// and add org.apache.hadoop:hadoop-aws:",
        ),
        ("gs://rows/far", "no connector for gs; add Google's gcs-connector for Hadoop 3 to spark.jars"),
        ("abfss://rows@account.dfs.core.windows.net/far", r"no connector for abfss; add org\.apache\.hadoop:hadoop-azure:3\."),
    ],
)
def test_storage_without_its_connector(what: str, address: str, advice: str, ticks: Ticks, tmp_path: Path) -> None:
    """This session has none: one line with what to add, and nothing is started."""
    shedder = Shedder("2s", journal=address if what == "journal" else None)
    gated = shedder.gate(ticks(), name="in", arrival="timestamp")
    checkpoint = address if what == "checkpoint" else tmp_path / "cp"
    for start in (
        lambda: shedder.foreach_batch(gated, lambda df, n: None, checkpoint=checkpoint, name="q"),
        lambda: shedder.start(
            gated.writeStream.format("noop").queryName("q").option("checkpointLocation", str(checkpoint)), by="arrival"
        ),
    ):
        with refused(f"the {what} {address}.* can't be reached: the session has {advice}") as caught:
            start()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "cp").exists()
    assert not ticks().sparkSession.streams.active
