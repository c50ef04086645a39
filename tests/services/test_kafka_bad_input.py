"""What goes wrong with Kafka: one clear line each in the report, and nothing is lost that could be kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock import AgeRule, Controller, Decision, Observation, Shedder, WholeKeys, read_journal
from penstock.drop.tables import slot_start_s
from penstock.testing.kafka import KafkaBroker
from penstock.testing.maven import UnavailableError

from .kafka_rows import process_all, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Stream = Callable[..., "DataFrame"]

IMPATIENT = {"kafka.default.api.timeout.ms": 2_000, "kafka.request.timeout.ms": 1_500, "fetchOffset.numRetries": 1}
SILENCE = "Kafka did not answer in time: no broker is there, or a topic was just deleted; when they are back, start the query"
LOSS = "rows that the checkpoint points at are gone from the topic"


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    """A broker of its own, to take down."""
    broker = KafkaBroker()
    try:
        yield broker.start()
    except UnavailableError as error:
        pytest.skip(str(error))
    finally:
        broker.__exit__(None, None, None)


def start(rows: DataFrame, path: Path, by: str = "batch", shedder: Shedder | None = None, **gate: Any) -> tuple[Shedder, Any]:
    shedder = Shedder("2s") if shedder is None else shedder
    gated = shedder.gate(rows, name="in", arrival="timestamp", **gate)
    writer = gated.writeStream.format("parquet").option("path", str(path / "sink"))
    return shedder, shedder.start(writer.option("checkpointLocation", str(path / "checkpoint")), by=by)  # type: ignore[arg-type]


def lines_with(shedder: Shedder, text: str) -> list[str]:
    lines = [line for line in shedder.report().errors if text in line]
    assert all("\n" not in line for line in lines)
    return lines


def test_a_broker_that_is_not_there(stream: Stream, tmp_path: Path) -> None:
    """One line at once, another when Spark has given up."""
    shedder, query = start(stream(subscribe="rows", **{"kafka.bootstrap.servers": "127.0.0.1:1"}, **IMPATIENT), tmp_path)
    assert lines_with(shedder, "no Kafka broker takes a connection at 127.0.0.1:1: Spark waits for one and then fails")
    wait_until(lambda: not query.isActive)
    shedder.stop()
    assert lines_with(shedder, SILENCE)


@pytest.mark.parametrize("by", ["batch", pytest.param("arrival", marks=pytest.mark.long)])
def test_a_broker_that_goes(own_broker: KafkaBroker, session: SparkSession, stream: Stream, tmp_path: Path, by: str) -> None:
    """It says so, and when the broker is back the next run goes on where the last one ended."""
    own_broker.create_topic("rows")
    produce(own_broker, "rows", range(100))
    rows = stream(subscribe="rows", **{"kafka.bootstrap.servers": own_broker.address}, **IMPATIENT)
    shedder, query = start(rows, tmp_path, by)
    process_all(query)
    own_broker.kill()
    wait_until(lambda: not query.isActive, seconds=90)
    shedder.stop()
    assert lines_with(shedder, SILENCE)
    own_broker.start()
    produce(own_broker, "rows", range(50))
    shedder, query = start(rows, tmp_path, by)
    process_all(query)
    shedder.stop()
    assert sum(row["offered"] for row in shedder.report().table.to_pylist()) == 150
    assert session.read.parquet(str(tmp_path / "sink")).count() == 150


def test_a_topic_that_does_not_exist(stream: Stream, tmp_path: Path) -> None:
    shedder, query = start(stream(subscribe="nothing-here", **IMPATIENT), tmp_path)
    wait_until(lambda: not query.isActive, seconds=90)
    shedder.stop()
    assert lines_with(shedder, "a topic does not exist, or no longer: create it, or check subscribe")


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_was_created_again(broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, fails: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, range(100))
    rows = stream(subscribe=topic, failOnDataLoss=fails, **IMPATIENT)
    shedder, query = start(rows, tmp_path)
    process_all(query)
    shedder.stop()
    broker.delete_topic(topic)
    broker.create_topic(topic)
    produce(broker, topic, range(30))
    shedder, query = start(rows, tmp_path)
    if fails == "true":
        wait_until(lambda: not query.isActive)
        shedder.stop()
        assert lines_with(shedder, f"{LOSS}: retention removed them, or the topic was deleted and created again")
        return
    process_all(query)
    produce(broker, topic, range(20))
    process_all(query)
    shedder.stop()
    assert lines_with(shedder, "could not") == []
    assert shedder.report().table.to_pylist()[-1]["offered"] <= 20


@pytest.mark.parametrize("by", ["batch", "arrival"])
def test_a_topic_that_is_deleted_under_a_running_query(
    broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, by: str
) -> None:
    """Whatever Spark makes of it: one line if the query ends, and no row of the ledger is negative or double."""
    broker.create_topic(topic)
    produce(broker, topic, range(100))
    shedder, query = start(stream(subscribe=topic, **IMPATIENT), tmp_path, by)
    process_all(query)
    broker.delete_topic(topic)
    wait_until(lambda: not query.isActive, seconds=90)
    shedder.stop()
    assert any(lines_with(shedder, line) for line in (LOSS, "a topic does not exist, or no longer", SILENCE))
    assert sum(row["offered"] for row in shedder.report().table.to_pylist()) == 100


def test_offsets_out_of_range(broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path) -> None:
    """Retention has removed rows that the query has not read yet."""
    from confluent_kafka import TopicPartition

    broker.create_topic(topic)
    produce(broker, topic, range(100))
    rows = stream(subscribe=topic, **IMPATIENT)
    shedder, query = start(rows, tmp_path)
    process_all(query)
    shedder.stop()
    produce(broker, topic, range(100))
    next(iter(broker.admin().delete_records([TopicPartition(topic, 0, 150)]).values())).result(30)
    shedder, query = start(rows, tmp_path)
    wait_until(lambda: not query.isActive)
    shedder.stop()
    assert lines_with(shedder, LOSS)
    assert lines_with(shedder, "set failOnDataLoss=false to go on with what is there")


class FreshOnly(Controller):
    """Keeps what arrived in the last minute, and nothing else; by arrival nothing at all."""

    def update(self, observation: Observation) -> Decision:
        if observation.taken_s is None:
            return Decision(0.0)
        return Decision(1.0, age=AgeRule(observation.taken_s - 60.0, 1.0, 0.0))


@pytest.mark.parametrize("by", ["batch", "arrival"])
def test_rows_without_a_timestamp(
    broker: KafkaBroker, session: SparkSession, stream: Stream, topic: str, tmp_path: Path, by: str
) -> None:
    """Kafka says -1, and Spark makes it a moment before 1970. They are no older than others."""
    broker.create_topic(topic)
    produce(broker, topic, range(10))
    shedder, query = start(stream(subscribe=topic), tmp_path, by, Shedder("2s", controller=FreshOnly(2.0)))
    process_all(query)
    for _ in range(30):
        if by == "batch" or is_shut(tmp_path / "checkpoint"):
            break
        # A decision that became durable too late, on a busy machine, is taken back: another batch brings another one.
        time.sleep(0.6)
        produce(broker, topic, range(10))
        process_all(query)
    produce(broker, topic, ["none"] * 20, timestamp=-1)
    produce(broker, topic, ["old"] * 20, timestamp=int(1e3 * (time.time() - 3600)))
    produce(broker, topic, ["new"] * 20)
    process_all(query)
    shedder.stop()
    counts = session.read.parquet(str(tmp_path / "sink")).groupBy("value").count().collect()
    kept = {bytes(row.value).decode(): row["count"] for row in counts if not bytes(row.value).isdigit()}
    if by == "batch":
        assert kept == {"none": 20, "new": 20}
        assert lines_with(shedder, "rows without an arrival time in column 'timestamp' count as new")
    else:
        assert kept == {"none": 20, "old": 20}  # the old ones arrived before the decision
        assert lines_with(shedder, "rows without an arrival time in column 'timestamp' are always kept")
    assert all(abs(row["delay_s"] or 0.0) < 3700.0 for row in shedder.report().table.to_pylist())


def test_log_append_time_is_the_brokers(
    broker: KafkaBroker, session: SparkSession, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """Rows that their producer dates back by an hour have just arrived, where the topic takes the broker's time."""
    for name, kind in ((topic, "LogAppendTime"), (f"{topic}-created", "CreateTime")):
        broker.create_topic(name, 1, {"message.timestamp.type": kind})
    both = f"{topic},{topic}-created"
    shedder, query = start(stream(subscribe=both), tmp_path, shedder=Shedder("2s", controller=FreshOnly(2.0)))
    produce(broker, topic, ["first"])
    process_all(query)  # the first batch has no time yet, and FreshOnly keeps nothing of it
    begin_s = time.time()
    for name in both.split(","):
        produce(broker, name, ["appended" if name == topic else "created"] * 20, timestamp=int(1e3 * (begin_s - 3600)))
    process_all(query)
    shedder.stop()
    rows = session.read.parquet(str(tmp_path / "sink")).selectExpr("CAST(value AS STRING) v", "timestamp").collect()
    assert {row.v for row in rows if row.v != "first"} == {"appended"}
    assert sum(row.v == "appended" for row in rows) == 20
    assert all(row.timestamp.timestamp() > begin_s - 1.0 for row in rows if row.v == "appended")
    assert (
        sum(
            record.expired["in"]
            for record in read_journal(tmp_path / "checkpoint" / "penstock").batches.values()
            if record.expired
        )
        == 20
    )


def is_shut(checkpoint: Path) -> bool:
    """Whether a decision by arrival that keeps nothing is in force: the slot from which it holds has begun."""
    decisions = read_journal(checkpoint / "penstock").decisions
    last = decisions[-1] if decisions else None
    return last is not None and last.from_slot is not None and last.keep == 0.0 and slot_start_s(last.from_slot) < time.time()


@pytest.mark.parametrize("by", ["batch", "arrival"])
def test_timestamps_in_the_future(broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, by: str) -> None:
    broker.create_topic(topic)
    produce(broker, topic, range(50), timestamp=int(1e3 * (time.time() + 600.0)))
    shedder, query = start(stream(subscribe=topic), tmp_path, by)
    process_all(query)
    shedder.stop()
    assert lines_with(shedder, "some arrival times in column 'timestamp' lie in the future: a clock is ahead")
    assert [row["offered"] for row in shedder.report().table.to_pylist()] == [50]


def test_null_keys_are_one_key(broker: KafkaBroker, session: SparkSession, stream: Stream, topic: str, tmp_path: Path) -> None:
    class Half(Controller):
        def update(self, observation: Observation) -> Decision:
            return Decision(0.5)

    broker.create_topic(topic)
    produce(broker, topic, [None] * 50)
    for key in range(20):
        produce(broker, topic, range(10), key=f"{key}".encode())
    shedder, query = start(stream(subscribe=topic), tmp_path, shedder=Shedder("2s", controller=Half(2.0)), unit=WholeKeys("key"))
    process_all(query)
    shedder.stop()
    counts = session.read.parquet(str(tmp_path / "sink")).groupBy("key").count().collect()
    assert 0 < len(counts) < 21
    assert {row["count"] for row in counts} <= {10, 50}
    assert shedder.report().errors == []
