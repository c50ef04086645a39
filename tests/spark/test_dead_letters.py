"""Dead letters: what a gate sheds is written elsewhere, row by row what the ledger says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import (
    AgeRule,
    Controller,
    Decision,
    Observation,
    PenstockError,
    Priorities,
    Shedder,
    WholeKeys,
    WholeWindows,
    read_journal,
)

from .conftest import Cycle, wait_until
from .test_sinks import ROWS, expected, forget_commits

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]
START_MS = 1_700_000_000_000


class Aged(Controller):
    """The older half of each batch is kept less than the newer."""

    def update(self, observation: Observation) -> Decision:
        number = observation.batch_id + 1
        return Decision(keep=0.5, age=AgeRule(START_MS / 1e3 + number + 0.5, 0.8, 0.1))


def run(source: DataFrame, directory: Path, batches: int, controller: Controller | None = None, **gate: Any) -> None:
    """Run until so many batches are counted; what is kept goes to ``sink``, what is shed to ``shed``."""
    checkpoint = directory / "checkpoint"
    options = {"name": "in", "identity": "value", "shed_to": directory / "shed"} | gate
    with Shedder("2s", controller=controller or Cycle()) as shedder:
        gated = shedder.gate(source, **options)
        query = shedder.write(gated, "parquet", directory / "sink", checkpoint=checkpoint, trigger="20ms")
        wait_until(lambda: len(read_journal(checkpoint / "penstock").batches) >= batches, query)


def read(path: Path) -> list[dict[str, Any]]:
    return ds.dataset(path, partitioning="hive").to_table().to_pylist()


def counts(directory: Path) -> dict[int, tuple[int, int]]:
    """Rows offered and kept by batch, from the ledger."""
    return {number: record.gates["in"] for number, record in read_journal(directory / "checkpoint" / "penstock").batches.items()}


def test_shed_rows_are_the_complement_of_those_kept(ticks: Ticks, tmp_path: Path) -> None:
    run(ticks(ROWS), tmp_path, 3)
    replayed = forget_commits(tmp_path / "checkpoint", 1)
    run(ticks(ROWS), tmp_path, replayed + 3)
    ledger, letters = counts(tmp_path), read(tmp_path / "shed")
    kept = expected(len(ledger))
    assert Counter(row["value"] for row in letters) == Counter(range(ROWS * len(ledger))) - kept
    assert Counter(row["value"] for row in read(tmp_path / "sink")) == kept
    by_batch = Counter(row["penstock_batch"] for row in letters)
    assert by_batch == {number: offered - kept for number, (offered, kept) in ledger.items() if offered > kept}
    assert {(row["penstock_gate"], row["penstock_reason"]) for row in letters} == {("in", "overload")}


def test_old_rows_say_that_they_expired(ticks: Ticks, tmp_path: Path) -> None:
    run(ticks(ROWS, START_MS), tmp_path, 4, Aged(2.0), arrival="timestamp")
    journal = read_journal(tmp_path / "checkpoint" / "penstock")
    reasons = Counter((row["penstock_batch"], row["penstock_reason"]) for row in read(tmp_path / "shed"))
    for number, record in journal.batches.items():
        offered, kept = record.gates["in"]
        expired = (record.expired or {}).get("in", 0)
        assert reasons[number, "expired"] == expired
        assert reasons[number, "overload"] == offered - kept - expired
    assert sum(reasons.values()) > 0
    assert any(reason == "expired" for _, reason in reasons)


@pytest.mark.parametrize(
    "gate",
    [
        {"priorities": Priorities("side", {0: 5, None: 1})},
        {"unit": WholeKeys("value"), "identity": None},
        {"unit": WholeWindows("timestamp", "100ms"), "identity": None},
        {"weight_column": "w"},
    ],
    ids=["priorities", "keys", "windows", "weights"],
)
def test_any_gate_by_batch_has_dead_letters(ticks: Ticks, tmp_path: Path, gate: dict[str, Any]) -> None:
    run(ticks(ROWS, START_MS, 10_000).withColumn("side", F.col("value") % 2), tmp_path, 6, **gate)
    ledger, letters, kept = counts(tmp_path), read(tmp_path / "shed"), read(tmp_path / "sink")
    both = Counter(row["value"] for row in letters) + Counter(row["value"] for row in kept)
    assert both == Counter(range(ROWS * len(ledger)))
    assert len(letters) == sum(offered - kept for offered, kept in ledger.values()) > 0


def test_a_job_that_sheds_nothing_writes_no_letters(ticks: Ticks, tmp_path: Path) -> None:
    run(ticks(ROWS), tmp_path, 3, Shedder("2s", controller="keep-all")._controller)
    assert read(tmp_path / "shed") == []
    assert len(list((tmp_path / "shed").rglob("penstock_batch=*"))) <= 1  # of the first batch, which may be a replay


def test_spark_s_own_sinks_have_dead_letters_too(session: SparkSession, ticks: Ticks, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with Shedder("2s", controller=Cycle()) as shedder:
        first = shedder.gate(ticks(ROWS), name="first", identity="value", shed_to=tmp_path / "shed")
        second = shedder.gate(
            first, name="second", identity="value", shed_to={"format": "parquet", "path": str(tmp_path / "shed")}
        )
        writer = second.groupBy("value").count().writeStream.format("memory").queryName("lettered").outputMode("complete")
        query = shedder.start(writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="20 milliseconds"))
        wait_until(lambda: len(read_journal(checkpoint / "penstock").batches) >= 3, query)
    batches = read_journal(checkpoint / "penstock").batches
    letters = read(tmp_path / "shed")
    for gate in ("first", "second"):
        shed = sum(record.gates[gate][0] - record.gates[gate][1] for record in batches.values())
        assert len([row for row in letters if row["penstock_gate"] == gate]) == shed > 0
    kept = [row["value"] for row in session.table("lettered").collect()]
    assert sorted(kept + [row["value"] for row in letters]) == list(range(ROWS * len(batches)))


@pytest.mark.parametrize(
    ("shed_to", "message"),
    [
        (7, "shed_to must be 'offsets', the path of a directory, or"),
        ({"format": "delta"}, "shed_to must be 'offsets'"),
        ({"format": "kafka", "topic": "t"}, "shed_to needs servers="),
        ({"format": "kafka", "servers": "x:1"}, "shed_to to Kafka needs a topic"),
        ({"format": "kafka", "servers": "x:1", "topic": "t"}, "add org.apache.spark:spark-sql-kafka-0-10_2.1"),
        ("/proc/none/shed", "gate 'in': shed_to /proc/none/shed can't be written"),
        ("nowhere://x/y", "gate 'in': shed_to nowhere://x/y can't be written"),
        ("offsets", "gate 'in': shed_to='offsets' needs rows that are told apart by Kafka's topic, partition and offset"),
    ],
)
def test_bad_targets_are_refused_in_one_line(ticks: Ticks, shed_to: Any, message: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        Shedder("2s").gate(ticks(ROWS), name="in", shed_to=shed_to)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_rows_that_come_out_otherwise_again_are_refused(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    counted = ticks(ROWS).groupBy("value").count()
    with pytest.raises(PenstockError, match="shed_to needs a gate in front of Aggregate"):
        shedder.gate(counted, shed_to=tmp_path)
    with pytest.raises(PenstockError, match=r"rand\(\) in front of it gives others"):
        shedder.gate(ticks(ROWS).withColumn("dice", F.rand()), shed_to=tmp_path)
    with pytest.raises(PenstockError, match="shed_to adds a column 'penstock_reason'"):
        shedder.gate(ticks(ROWS).withColumn("penstock_reason", F.lit("")), shed_to=tmp_path)


def test_by_arrival_dead_letters_are_refused(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(ROWS), name="in", arrival="timestamp", shed_to=tmp_path / "shed")
    writer = gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PenstockError, match="gate 'in' has shed_to, which is written batch by batch: start its query by batch"):
        shedder.start(writer, by="arrival")
    plain = writer.start()
    with pytest.raises(PenstockError, match="gate 'in' has shed_to"):
        shedder.attach(plain)
    plain.stop()
