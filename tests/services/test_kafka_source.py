"""Kafka as a source, against a real broker: sizes, ranks, gaps, growth and loss."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock import PenstockError, Shedder
from penstock.drop.hashing import gate_seed, uniform
from penstock.journal import JournalState, read_journal
from penstock.spark.checkpoint import Checkpoint
from penstock.testing.kafka import KafkaBroker

from .kafka_rows import Notebook, process_all, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Stream = Callable[..., "DataFrame"]


class Run:
    """A query that reads topics through a gate and writes the coordinates of the rows kept, until all is read."""

    def __init__(self, tmp_path: Path, keep: float = 0.5) -> None:
        self.path, self.controller = tmp_path, Notebook(keep)
        self.errors: list[str] = []

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def journal(self) -> JournalState:
        return read_journal(self.checkpoint / "penstock")

    def all_of(self, rows: DataFrame, *, by: str = "batch", during: Callable[[Any], None] | None = None, **gate: Any) -> Shedder:
        """Read what there is, then perhaps do something and read what is there then."""
        shedder = Shedder("2s", controller=self.controller)
        gated = shedder.gate(rows, name="in", arrival="timestamp", **gate).select("topic", "partition", "offset", "value")
        with shedder:
            writer = gated.writeStream.format("parquet").option("path", str(self.path / "sink"))
            query = shedder.start(writer.option("checkpointLocation", str(self.checkpoint)), by=by)  # type: ignore[arg-type]
            process_all(query)
            if during is not None:
                during(query)
                process_all(query)
        self.errors = shedder.report().errors
        return shedder

    def kept(self, session: SparkSession) -> set[tuple[str, int, int]]:
        rows = session.read.parquet(str(self.path / "sink")).collect()
        found = [(row.topic, row.partition, row.offset) for row in rows]
        assert len(found) == len(set(found)), "a row came out twice"
        return set(found)


def expected(topic: str, partition: int, offsets: range, keep: float = 0.5) -> set[tuple[str, int, int]]:
    """Which rows a gate keeps, by the numpy twin of its hash of topic, partition and offset."""
    count = len(offsets)
    columns = [pa.array([topic] * count), pa.array(np.full(count, partition, np.int32)), pa.array(np.array(offsets, np.int64))]
    kept = np.array(offsets)[uniform(gate_seed("in"), columns) < keep]
    return {(topic, partition, int(offset)) for offset in kept}


@pytest.mark.parametrize("by", ["batch", "arrival"])
def test_identity_is_topic_partition_and_offset(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, by: str
) -> None:
    """Several topics, headers, null keys and values: all are rows like others."""
    for name in (topic, f"{topic}-b"):
        broker.create_topic(name, 2)
        produce(broker, name, range(200), partitions=2, headers=[("w", b"2")])
        produce(broker, name, [None] * 100, partitions=2)
    run = Run(tmp_path)
    rows = stream(subscribe=f"{topic},{topic}-b", includeHeaders="true")
    shedder = run.all_of(rows, by=by, bounded=False)
    if by == "batch":
        assert run.controller.sizes[0] == 600  # known although it is the first batch
        want = {row for name in (topic, f"{topic}-b") for part in (0, 1) for row in expected(name, part, range(150))}
        assert run.kept(session) == want
    ledger = shedder.report().table.to_pylist()
    assert sum(row["offered"] for row in ledger) == 600
    assert sum(row["kept"] for row in ledger) == len(run.kept(session))
    assert run.errors == []


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        ({"startingOffsets": "earliest"}, 300),
        ({"startingOffsets": "latest"}, 0),
        ({"startingOffsets": '{"%s":{"0":120,"1":-2}}'}, 180),
        ({"startingOffsets": '{"%s":{"0":-1,"1":100}}'}, 50),
        ({"startingTimestamp": "1000"}, 300),
        ({"startingTimestamp": "MIDDLE"}, 100),
        ({"startingOffsetsByTimestamp": '{"%s":{"0":1000,"1":MIDDLE}}'}, 200),
        ({"startingTimestamp": "LATER", "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"assign": '{"%s":[1]}'}, 150),
    ],
)
def test_the_size_of_the_first_batch_is_known(
    broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, starting: dict[str, str], first: int
) -> None:
    broker.create_topic(topic, 2)
    middle = int(1e3 * (time.time() - 1.0))
    produce(broker, topic, range(200), partitions=2, timestamp=middle - 1)
    produce(broker, topic, range(100), partitions=2, timestamp=middle)
    words = {"%s": topic, "MIDDLE": f"{middle}", "LATER": f"{middle + 600_000}"}
    options = dict(starting)
    for word, text in words.items():
        options = {name: value.replace(word, text) for name, value in options.items()}
    run = Run(tmp_path)
    rows = stream(**({} if "assign" in options else {"subscribe": topic}), **options)
    shedder = run.all_of(rows, during=lambda _: produce(broker, topic, range(40), partitions=2))
    offered = [row["offered"] for row in shedder.report().table.to_pylist()]
    later = 20 if "assign" in options else 40
    assert run.controller.sizes == offered
    assert (offered[0], sum(offered)) == (first, first + later)


def test_a_cap_on_the_batch_and_more_partitions_than_the_topic_has(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 2)
    produce(broker, topic, range(500), partitions=2)
    run = Run(tmp_path)
    run.all_of(stream(subscribe=topic, maxOffsetsPerTrigger=200, minPartitions=5))
    assert run.controller.sizes == [200, 200, 100]
    assert [seen.left_rows for seen in run.controller.seen] == [None, 300, 100]
    assert run.kept(session) == expected(topic, 0, range(250)) | expected(topic, 1, range(250))


def test_new_partitions_and_new_topics_are_rows_like_others(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """The size of the batch that sees them first is right, and so are the fates of their rows."""
    broker.create_topic(f"{topic}-a")
    produce(broker, f"{topic}-a", range(100))

    def grow(query: Any) -> None:
        broker.add_partitions(f"{topic}-a", 2)
        produce(broker, f"{topic}-a", range(60), partition=1)
        broker.create_topic(f"{topic}-b")
        produce(broker, f"{topic}-b", range(30))
        wait_until(lambda: sum(size or 0 for size in run.controller.sizes) >= 190, query)

    run = Run(tmp_path)
    rows = stream(subscribePattern=f"{topic}-.*", **{"kafka.metadata.max.age.ms": 200})
    shedder = run.all_of(rows, during=grow)
    offered = [row["offered"] for row in shedder.report().table.to_pylist()]
    assert run.controller.sizes == offered
    assert sum(offered) == 190
    want = expected(f"{topic}-a", 0, range(100)) | expected(f"{topic}-a", 1, range(60)) | expected(f"{topic}-b", 0, range(30))
    assert run.kept(session) == want


def test_a_pattern_that_matches_nothing_yet(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """The first topic comes while the query runs; its rows are counted from the first one on."""

    def appear(query: Any) -> None:
        broker.create_topic(f"{topic}-first")
        produce(broker, f"{topic}-first", range(80))
        wait_until(lambda: sum(size or 0 for size in run.controller.sizes) >= 80, query)

    run = Run(tmp_path)
    rows = stream(subscribePattern=f"{topic}-.*", **{"kafka.metadata.max.age.ms": 200})
    shedder = run.all_of(rows, during=appear)
    offered = [row["offered"] for row in shedder.report().table.to_pylist()]
    assert [size or 0 for size in run.controller.sizes] == offered
    assert sum(offered) == 80
    assert run.kept(session) == expected(f"{topic}-first", 0, range(80))
    assert run.errors == []


def test_a_compacted_topic_has_fewer_rows_than_offsets(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """The ledger counts real rows, and says that sizes are an upper bound; later sizes are closer."""
    quick = {"min.cleanable.dirty.ratio": 0.01, "segment.ms": 100, "segment.bytes": 1_048_576, "delete.retention.ms": 0}
    broker.create_topic(topic, 1, {"cleanup.policy": "compact"} | quick)
    for number in range(4):
        produce(broker, topic, range(500), key=b"the same")
        produce(broker, topic, [number], key=f"k{number}".encode())
        time.sleep(0.15)

    def count() -> int:
        reader = session.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
        return reader.load().count()

    wait_until(lambda: count() < 600, seconds=30)
    rows = count()
    run = Run(tmp_path)
    shedder = run.all_of(stream(subscribe=topic, maxOffsetsPerTrigger=501))
    ledger = shedder.report().table.to_pylist()
    assert sum(row["offered"] for row in ledger) == rows
    assert sum(row["kept"] for row in ledger) == len(run.kept(session))
    assert run.controller.sizes[0] == 501
    assert max(run.controller.sizes[2:]) < 250  # type: ignore[type-var]
    assert any("upper bound; the ledger counts the rows that were read" in line for line in run.errors)


def test_marks_of_transactions_take_offsets(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """Rows of transactions that were taken back are no rows, and neither are the marks."""
    from confluent_kafka import Producer

    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for value in range(25):
            producer.produce(topic, value=f"{number} {value}".encode())
        producer.flush(30)
        producer.commit_transaction(30) if number % 2 else producer.abort_transaction(30)
    run = Run(tmp_path)
    shedder = run.all_of(stream(subscribe=topic, **{"kafka.isolation.level": "read_committed"}), during=_once(broker, topic))
    offered = [row["offered"] for row in shedder.report().table.to_pylist()]
    assert run.controller.sizes[0] == 104
    assert (offered[0], sum(offered)) == (50, 60)
    assert run.kept(session) == expected(topic, 0, range(26, 51)) | expected(topic, 0, range(78, 103)) | expected(
        topic, 0, range(104, 114)
    )
    assert any("written in transactions" in line for line in run.errors)


def _once(broker: KafkaBroker, topic: str) -> Callable[[Any], None]:
    return lambda _: produce(broker, topic, range(10))


def test_after_retention_the_size_is_what_is_left(
    session: SparkSession, broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path
) -> None:
    """A job was down for longer than retention, and goes on with what is there."""
    broker.create_topic(topic)
    produce(broker, topic, range(100))
    rows = stream(subscribe=topic, failOnDataLoss="false")
    run = Run(tmp_path)
    run.all_of(rows)
    produce(broker, topic, range(400))
    _delete_before(broker, topic, 450)
    run.controller.seen.clear()
    shedder = run.all_of(stream(subscribe=topic, failOnDataLoss="false"))
    assert run.controller.sizes == [50]
    assert [row["offered"] for row in shedder.report().table.to_pylist()] == [100, 50]
    assert run.kept(session) == expected(topic, 0, range(100)) | expected(topic, 0, range(450, 500))


def _delete_before(broker: KafkaBroker, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    position = TopicPartition(topic, 0, offset)
    next(iter(broker.admin().delete_records([position]).values())).result(30)


@pytest.mark.parametrize("cap", [None, 1_000])
def test_by_arrival_the_backlog_in_the_topic_is_seen(
    broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path, cap: int | None
) -> None:
    """Rows that come while a batch runs wait in the topic. Spark's report does not show them: it was taken before."""
    from pyspark.sql import functions as F

    broker.create_topic(topic, 2)
    produce(broker, topic, range(100), partitions=2)
    controller = Notebook(1.0)
    shedder = Shedder("2s", controller=controller)
    rows = shedder.gate(stream(subscribe=topic, **({"maxOffsetsPerTrigger": cap} if cap else {})), name="in", arrival="timestamp")

    def sleep(value):  # type: ignore[no-untyped-def] # Spark looks at the hints, and knows none that are strings
        if value == b"0":
            time.sleep(4)
        return 1

    wait = F.udf(sleep, "int")

    with shedder:
        writer = rows.select(wait("value")).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
        query = shedder.start(writer, by="arrival")
        wait_until(lambda: Checkpoint(tmp_path / "c").list_planned(), query)
        produce(broker, topic, range(1, 5_001), partitions=2)
        wait_until(lambda: controller.seen, query)
        process_all(query)
        wait_until(lambda: sum(seen.offered for seen in controller.seen) == 5_100, query)
    assert sum(controller.seen[0].backlog_rows.values()) == 5_000
    assert sum(controller.seen[-1].backlog_rows.values()) == 0


def test_ranks_may_not_change_before_a_replay(broker: KafkaBroker, stream: Stream, topic: str, tmp_path: Path) -> None:
    """Of a bounded gate by arrival, ranks decide, and they depend on how a batch is cut: minPartitions."""
    broker.create_topic(topic, 1)
    produce(broker, topic, range(300))
    run = Run(tmp_path)
    run.all_of(stream(subscribe=topic, minPartitions=3), by="arrival")
    run.all_of(stream(subscribe=topic), by="arrival")  # nothing is left to replay
    produce(broker, topic, range(300))
    run.all_of(stream(subscribe=topic, minPartitions=3), by="arrival")
    last = max(Checkpoint(run.checkpoint).list_committed())
    (run.checkpoint / "commits" / f"{last}").unlink()  # as after a crash before the commit
    (run.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    for by in ("arrival", "batch"):
        with pytest.raises(PenstockError, match=f"batch {last} .* with no minPartitions instead of minPartitions=3") as caught:
            run.all_of(stream(subscribe=topic), by=by)
        assert "\n" not in str(caught.value)
    run.all_of(stream(subscribe=topic), by="arrival", bounded=False)  # ranks don't count
    run.all_of(stream(subscribe=topic, minPartitions=3), by="arrival")
