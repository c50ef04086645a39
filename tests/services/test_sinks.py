"""Sinks and dead letters against a real Kafka and a real PostgreSQL."""

# ruff: noqa: S608 - the tables are the tests' own

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

import confluent_kafka
from pyspark.sql import functions as F
from typer.testing import CliRunner

from penstock import AgeRule, Controller, Decision, Observation, PenstockError, Shedder, read_journal
from penstock.cli import app
from penstock.shed.letters import OffsetLetters, TopicLetters
from penstock.shed.shed_log import ShedLog
from penstock.shed.topics import TopicReader
from penstock.testing.kafka import KafkaBroker
from penstock.testing.maven import UnavailableError
from tests.spark.conftest import Cycle, wait_until
from tests.spark.test_sinks import forget_commits

from .postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000
START_MS = int(time.time() * 1e3) - 60_000  # the broker removes rows that are too old
Stream = Callable[..., "DataFrame"]


class Aged(Controller):
    """Rows from before the middle of the topic are kept less than the others."""

    middle_s = 0.0

    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.6, age=AgeRule(self.middle_s, 0.8, 0.2))


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    try:
        started = Postgres().start()
    except UnavailableError as error:
        pytest.skip(str(error))
    yield started
    started.stop()


@pytest.fixture
def rows(broker: KafkaBroker, topic: str) -> str:
    """A topic with two partitions and some rows, a thousandth of a second apart."""
    broker.create_topic(topic, partitions=2)
    produce(broker, topic, range(ROWS))
    return topic


def produce(broker: KafkaBroker, topic: str, numbers: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in numbers:
        headers = [("source", b"test")] if number % 2 else None
        key = None if number % 7 == 0 else str(number)
        producer.produce(topic, str(number), key, partition=number % 2, timestamp=START_MS + number, headers=headers)
    assert producer.flush(30) == 0


def read_topic(broker: KafkaBroker, topic: str) -> list[Any]:
    reader = TopicReader(broker.address)
    try:
        return [message for part in reader.list_ranges(topic) for message in reader.read(part)]
    finally:
        reader.close()


def numbers_of(broker: KafkaBroker, topic: str) -> list[int]:
    return [int(message.value()) for message in read_topic(broker, topic)]


def wait_for_all(checkpoint: Path, query: Any, count: int) -> None:
    """Wait until so many rows are in the ledger."""

    def is_there() -> bool:
        state = read_journal(checkpoint / "penstock") if (checkpoint / "penstock").exists() else None
        return state is not None and sum(offered for offered, _ in state.totals().values()) >= count

    wait_until(is_there, query)


def run(source: DataFrame, checkpoint: Path, write: Callable[[Shedder, Any], Any], count: int = ROWS, **options: Any) -> None:
    """Run until so many rows of the topic are in the ledger."""
    controller = options.pop("controller", None) or Cycle()
    with Shedder("2s", controller=controller) as shedder:
        gated = shedder.gate(source, name="in", **options)
        wait_for_all(checkpoint, write(shedder, gated), count)


def to_parquet(directory: Path) -> Callable[[Shedder, Any], Any]:
    return lambda shedder, gated: shedder.write(
        gated.select(F.col("value").cast("string").cast("long").alias("number")),
        "parquet",
        directory / "sink",
        checkpoint=directory / "checkpoint",
    )


def sink_of(directory: Path) -> list[int]:
    return ds.dataset(directory / "sink").to_table()["number"].to_pylist()


# -- sinks -----------------------------------------------------------------------------------------------------------------


def test_a_topic_gets_each_batch_with_its_number(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path) -> None:
    broker.create_topic(f"{rows}-out", partitions=2)
    checkpoint = tmp_path / "checkpoint"

    def write(shedder: Shedder, gated: DataFrame) -> Any:
        return shedder.write(
            gated.select("key", "value", "headers"), "kafka", topic=f"{rows}-out", servers=broker.address, checkpoint=checkpoint
        )

    source = stream(subscribe=rows, maxOffsetsPerTrigger=500, includeHeaders="true")
    run(source, checkpoint, write)
    replayed = forget_commits(checkpoint, 1)  # as if the job had died before Spark's commit
    produce(broker, rows, range(ROWS, ROWS + 500))
    run(source, checkpoint, write, ROWS + 500)
    ledger = {number: record.gates["in"] for number, record in read_journal(checkpoint / "penstock").batches.items()}

    last_runs: dict[int, dict[str, list[int]]] = {}
    for message in read_topic(broker, f"{rows}-out"):
        headers = dict(message.headers())
        assert ("source" in headers) == bool(int(message.value()) % 2)
        batch, of_run = int(headers["penstock-batch"]), headers["penstock-run"].decode()
        last_runs.setdefault(batch, {}).setdefault(of_run, []).append(int(message.value()))
    # At least once: the replayed batch is there twice, and its header tells.
    assert {batch for batch, runs in last_runs.items() if len(runs) > 1} == {replayed}
    assert len({tuple(sorted(numbers)) for numbers in last_runs[replayed].values()}) == 1
    once = {batch: list(runs.values())[-1] for batch, runs in last_runs.items()}
    assert {batch: len(numbers) for batch, numbers in once.items()} == {
        batch: kept for batch, (_, kept) in ledger.items() if kept
    }
    everything = [number for numbers in once.values() for number in numbers]
    assert len(everything) == len(set(everything)) == sum(kept for _, kept in ledger.values())
    notes = read_journal(checkpoint / "penstock").errors
    assert any("Kafka takes rows at least once" in note for note in notes)


@pytest.mark.parametrize("by", ["batch", "arrival"])
def test_spark_s_own_sink_to_a_topic(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path, by: Any) -> None:
    """``start`` with a writer of Spark's, as users have it already."""
    broker.create_topic(f"{rows}-out")
    checkpoint = tmp_path / "checkpoint"

    def write(shedder: Shedder, gated: DataFrame) -> Any:
        options = {"kafka.bootstrap.servers": broker.address, "topic": f"{rows}-out", "checkpointLocation": str(checkpoint)}
        return shedder.start(gated.select("key", "value").writeStream.format("kafka").options(**options), by=by)

    run(stream(subscribe=rows, maxOffsetsPerTrigger=500), checkpoint, write, arrival="timestamp", bounded=False)
    ((offered, kept),) = read_journal(checkpoint / "penstock").totals().values()
    numbers = numbers_of(broker, f"{rows}-out")
    assert offered == ROWS
    assert len(numbers) == len(set(numbers)) == kept > 0


def test_a_database_has_each_row_once(stream: Stream, rows: str, postgres: Postgres, tmp_path: Path) -> None:
    def write(shedder: Shedder, gated: DataFrame) -> Any:
        return shedder.write(
            gated.select("partition", "offset", F.col("value").cast("string").cast("int").alias("number"), "timestamp"),
            "jdbc",
            url=postgres.url,
            table=f"sink_{rows}",
            user="penstock",
            checkpoint=tmp_path / "checkpoint",
        )

    source = stream(subscribe=rows, maxOffsetsPerTrigger=300)
    run(source, tmp_path / "checkpoint", write, ROWS // 2)
    forget_commits(tmp_path / "checkpoint", 1)
    run(source, tmp_path / "checkpoint", write)
    kept = sum(kept for _, kept in read_journal(tmp_path / "checkpoint" / "penstock").totals().values())
    ((count, distinct),) = postgres.query(f"SELECT count(*), count(DISTINCT number) FROM sink_{rows}")
    assert int(count) == int(distinct) == kept
    assert postgres.query(f"SELECT count(*) FROM penstock_batches WHERE target = 'sink_{rows}'") == [("1",)]


def test_a_database_has_the_last_row_of_each_key(stream: Stream, rows: str, postgres: Postgres, tmp_path: Path) -> None:
    postgres.query(f"CREATE TABLE counts_{rows} (rest int PRIMARY KEY, count bigint NOT NULL, seen timestamp DEFAULT now())")

    def write(shedder: Shedder, gated: DataFrame) -> Any:
        rest = (F.col("value").cast("string").cast("int") % 10).alias("rest")
        options = {"url": postgres.url, "table": f"counts_{rows}", "user": "penstock", "key": ["rest"]}
        return shedder.write(
            gated.groupBy(rest).count(), "jdbc", checkpoint=tmp_path / "checkpoint", output_mode="update", **options
        )

    run(stream(subscribe=rows, maxOffsetsPerTrigger=500), tmp_path / "checkpoint", write)
    kept = sum(kept for _, kept in read_journal(tmp_path / "checkpoint" / "penstock").totals().values())
    assert postgres.query(f"SELECT count(*), sum(count) FROM counts_{rows}") == [("10", str(kept))]


def test_bad_targets_are_refused_before_anything_is_written(
    broker: KafkaBroker, stream: Stream, rows: str, postgres: Postgres, tmp_path: Path
) -> None:
    postgres.query(f"CREATE TABLE texts_{rows} (number text)")
    shedder = Shedder("2s")
    gated = shedder.gate(stream(subscribe=rows), name="in")
    number = gated.select(F.col("value").cast("string").cast("int").alias("number"))

    def refusal(df: DataFrame, kind: str, **options: Any) -> str:
        with pytest.raises(PenstockError) as error:
            shedder.write(df, kind, checkpoint=tmp_path / "checkpoint", **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "has no topic 'nowhere'" in refusal(gated, "kafka", topic="nowhere", servers=broker.address)
    assert "no answer from the broker at 127.0.0.1:1" in refusal(gated, "kafka", topic=rows, servers="127.0.0.1:1")
    assert "needs topic=" in refusal(gated.select("value"), "kafka", servers=broker.address)
    assert "needs a column 'value'" in refusal(number, "kafka", topic=rows, servers=broker.address)
    assert "'value' must be string or binary, it is int" in refusal(
        number.withColumnRenamed("number", "value"), "kafka", topic=rows, servers=broker.address
    )
    options = {"url": postgres.url, "user": "penstock", "table": f"texts_{rows}"}
    assert f"column 'number' is string in table texts_{rows} and int in the rows" in refusal(number, "jdbc", **options)
    assert "no connection to jdbc:postgresql://127.0.0.1:1/x" in refusal(
        number, "jdbc", url="jdbc:postgresql://127.0.0.1:1/x?password=secret", table="t"
    )
    with pytest.raises(PenstockError, match=r"gate 'other': shed_to: the broker at .* has no topic 'nowhere'"):
        shedder.gate(
            stream(subscribe=rows), name="other", shed_to={"format": "kafka", "topic": "nowhere", "servers": broker.address}
        )
    assert not (tmp_path / "checkpoint").exists()


# -- dead letters ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_topic_of_dead_letters_is_the_complement(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path) -> None:
    letters, again = f"{rows}-shed", f"{rows}-again"
    broker.create_topic(letters, partitions=2)
    broker.create_topic(again)
    source = stream(subscribe=rows, maxOffsetsPerTrigger=500, includeHeaders="true")
    shed_to = {"format": "kafka", "topic": letters, "servers": broker.address}
    Aged.middle_s = (START_MS + ROWS / 2) / 1e3
    options = {"shed_to": shed_to, "controller": Aged(2.0), "arrival": "timestamp"}
    run(source, tmp_path / "checkpoint", to_parquet(tmp_path), **options)
    forget_commits(tmp_path / "checkpoint", 1)
    produce(broker, rows, range(ROWS, ROWS + 500))
    run(source, tmp_path / "checkpoint", to_parquet(tmp_path), ROWS + 500, **options)
    state = read_journal(tmp_path / "checkpoint" / "penstock")
    ((offered, kept),) = state.totals().values()
    written = TopicLetters(broker.address, letters)
    tables = [written.read(letter) for letter in written.list_letters()]
    shed = [int(value) for table in tables for value in table["value"].to_pylist()]
    assert len(shed) == offered - kept > 0
    assert sorted(shed + sink_of(tmp_path)) == list(range(ROWS + 500))
    reasons = Counter(reason for table in tables for reason in table["penstock_reason"].to_pylist())
    assert reasons == {"expired": state.expired_totals()["in"], "overload": len(shed) - state.expired_totals()["in"]}

    command = ["replay-shed", f"kafka:{letters}", f"kafka:{again}", "--servers", broker.address, "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)  # notes of what was sent lie in the working directory
        first, second = (json.loads(CliRunner().invoke(app, command, catch_exceptions=False).output) for _ in range(2))
    assert first == {"batches": len(tables), "rows": len(shed), "sent_before": 0}
    assert second == {"batches": 0, "rows": 0, "sent_before": len(tables)}
    replayed = read_topic(broker, again)
    assert Counter(int(message.value()) for message in replayed) == Counter(shed)
    for message in replayed[:100]:
        number = int(message.value())
        assert message.timestamp()[1] == START_MS + number
        assert message.key() == (None if number % 7 == 0 else str(number).encode())
        assert [value for name, value in message.headers() if name == "source"] == ([b"test"] if number % 2 else [])


def test_offsets_are_enough_to_find_shed_rows(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    source = stream(subscribe=rows, maxOffsetsPerTrigger=500)
    run(source, checkpoint, to_parquet(tmp_path), shed_to="offsets")
    forget_commits(checkpoint, 1)
    produce(broker, rows, range(ROWS, ROWS + 500))
    run(source, checkpoint, to_parquet(tmp_path), ROWS + 500, shed_to="offsets")
    batches = read_journal(checkpoint / "penstock").batches
    by_batch = {number: offered - kept for number, record in batches.items() for offered, kept in record.gates.values()}

    listed = CliRunner().invoke(app, ["shed-offsets", str(checkpoint)], catch_exceptions=False).output.splitlines()
    assert listed[0] == "gate,batch,topic,partition,offset,reason"
    lines = [line.split(",") for line in listed[1:]]
    assert Counter(int(line[1]) for line in lines) == {number: shed for number, shed in by_batch.items() if shed}
    shed = [2 * int(offset) + int(partition) for _, _, _, partition, offset, _ in lines]
    assert sorted(shed + sink_of(tmp_path)) == list(range(ROWS + 500))

    result = CliRunner().invoke(
        app, ["replay-shed", str(checkpoint), str(tmp_path / "again"), "--servers", broker.address], catch_exceptions=False
    )
    assert f"{len(shed):,} rows of " in result.output
    again = [int(value) for path in (tmp_path / "again").iterdir() for value in pq.read_table(path)["value"].to_pylist()]
    assert sorted(again) == sorted(shed)


def test_offsets_with_ages_need_the_rows(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    Aged.middle_s = (START_MS + ROWS / 2) / 1e3
    source = stream(subscribe=rows, maxOffsetsPerTrigger=500)
    run(source, checkpoint, to_parquet(tmp_path), shed_to="offsets", arrival="timestamp", controller=Aged(2.0))
    refused = CliRunner().invoke(app, ["shed-offsets", str(checkpoint)])
    assert "shed by age, too: name a broker with --servers" in str(refused.exception)
    command = ["shed-offsets", str(checkpoint), "--servers", broker.address, "--json"]
    lines = [json.loads(line) for line in CliRunner().invoke(app, command, catch_exceptions=False).output.splitlines()]
    state = read_journal(checkpoint / "penstock")
    assert Counter(line["reason"] for line in lines)["expired"] == state.expired_totals()["in"] > 0
    assert sorted([2 * line["offset"] + line["partition"] for line in lines] + sink_of(tmp_path)) == list(range(ROWS))


def test_offsets_need_a_gate_right_behind_kafka(stream: Stream, rows: str) -> None:
    source = stream(subscribe=rows)
    for df, message in (
        (source.where("value is not null"), "Filter stands between"),
        (source.withColumn("offset", F.col("offset") + 1), "'offset' was computed"),
    ):
        with pytest.raises(PenstockError, match=message):
            Shedder("2s").gate(df, name="in", shed_to="offsets")
    with pytest.raises(PenstockError, match="needs Kafka's own columns, and 'at' was computed"):
        Shedder("2s").gate(source.withColumn("at", F.col("timestamp")), name="in", arrival="at", shed_to="offsets")
    Shedder("2s").gate(source.withColumn("n", F.length("value")).drop("key"), name="in", arrival="timestamp", shed_to="offsets")


def test_rows_that_kafka_has_removed_are_missed(broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    run(stream(subscribe=rows, maxOffsetsPerTrigger=500), checkpoint, to_parquet(tmp_path), shed_to="offsets")
    deleted = broker.admin().delete_records([confluent_kafka.TopicPartition(rows, 0, ROWS // 2)])
    for future in deleted.values():
        future.result(30)
    letters = OffsetLetters(checkpoint, broker.address)
    with pytest.raises(PenstockError, match=r"offsets \d+ to \d+ are gone from Kafka"):
        [letters.read(letter) for letter in letters.list_letters()]
    assert list(ShedLog(checkpoint).read())


def test_what_retention_took_before_it_was_read_was_not_shed(
    broker: KafkaBroker, stream: Stream, rows: str, tmp_path: Path
) -> None:
    """A job that goes on after retention: its letters are what the ledger calls shed, and the rest can still be sent."""
    checkpoint = tmp_path / "checkpoint"
    source = stream(subscribe=rows, maxOffsetsPerTrigger=500, failOnDataLoss="false")
    run(source, checkpoint, to_parquet(tmp_path), shed_to="offsets")
    produce(broker, rows, range(ROWS, ROWS + 1_000))
    lost = [confluent_kafka.TopicPartition(rows, partition, ROWS // 2 + 100) for partition in (0, 1)]
    for future in broker.admin().delete_records(lost).values():
        future.result(30)
    run(source, checkpoint, to_parquet(tmp_path), ROWS + 800, shed_to="offsets")
    ((offered, kept),) = read_journal(checkpoint / "penstock").totals().values()
    assert offered == ROWS + 800

    def command(*arguments: str) -> Any:
        return json.loads(CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).output)

    assert command("shed-offsets", str(checkpoint), "--count") == {"in": offered - kept}
    replay = ["replay-shed", str(checkpoint), str(tmp_path / "again"), "--servers", broker.address]
    refused = CliRunner().invoke(app, replay)
    assert "are gone from Kafka" in str(refused.exception)
    sent = command(*replay, "--skip-missing")
    assert sent["missing_offsets"] > 0
    again = [int(value) for path in (tmp_path / "again").iterdir() for value in pq.read_table(path)["value"].to_pylist()]
    late = {number for number in sink_of(tmp_path) if number >= ROWS}
    assert sorted([*again, *late]) == list(range(ROWS + 200, ROWS + 1_000))


def test_a_query_that_is_stopped_within_its_letters_writes_them_again(
    broker: KafkaBroker, session: SparkSession, stream: Stream, rows: str, tmp_path: Path
) -> None:
    """Stops in the middle of batches, several times, without waiting for a commit."""
    checkpoint = tmp_path / "checkpoint"
    source = stream(subscribe=rows, maxOffsetsPerTrigger=200)
    for attempt in range(4):
        shedder = Shedder("2s", controller=Cycle())
        gated = shedder.gate(source, name="in", shed_to=tmp_path / "shed")
        query = to_parquet(tmp_path)(shedder, gated)
        if attempt < 3:
            time.sleep(0.7 + 0.3 * attempt)
            threading.Thread(target=query.stop).start()
            query.awaitTermination(60)
        else:
            wait_for_all(checkpoint, query, ROWS)
        shedder.stop()
    ((offered, kept),) = read_journal(checkpoint / "penstock").totals().values()
    letters = ds.dataset(tmp_path / "shed", partitioning="hive").to_table()
    shed = [int(value) for value in letters["value"].to_pylist()]
    assert offered == ROWS
    assert len(shed) == offered - kept > 0
    assert sorted(shed + sink_of(tmp_path)) == list(range(ROWS))
