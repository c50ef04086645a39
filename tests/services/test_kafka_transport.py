"""A network whose rows and messages travel through Kafka: kills of its nodes, restarts of the broker, topics that are gone."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock.cluster.channels import KafkaChannels
from penstock.cluster.fleet import LocalFleet
from penstock.coordination import Mailbox, Message
from penstock.coordination.topic_mailbox import TopicMailbox
from penstock.errors import PenstockError
from penstock.journal import read_journal
from penstock.kafka.batch_producer import BatchProducer, NoteSlot
from penstock.kafka.topic_log import COMPACTED, KafkaTopicLog
from penstock.network import parse_network
from penstock.testing.kafka import KafkaBroker
from tests.mailboxes import NETWORK as FINGERPRINT
from tests.mailboxes import MailboxContract, Post

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("PENSTOCK_NETWORK_KILLS", "3"))
RESTARTS = int(os.environ.get("PENSTOCK_NETWORK_RESTARTS", "1"))
RATE = 100
NETWORK = """
nodes: {A: , B: }
inputs:
  i:
    max_rate: 1000
    format: penstock-replay
    arrival: arrival
    options: {generator: constant, rate: RATE, duration: SECONDS, partitions: 1}
operators:
  a: {node: A, kind: delay, from: i, cost: 0.001}
  b: {node: B, kind: delay, from: a, cost: 0.015}
outputs: {q: {from: b}}
transport: {kind: kafka, servers: "ADDRESS", partitions: 2}
"""


def describe_network(address: str, seconds: int = 3600) -> str:
    return NETWORK.replace("ADDRESS", address).replace("RATE", str(RATE)).replace("SECONDS", f"{seconds}s")


# -- the messages -----------------------------------------------------------------------------------------------------


class TopicPost(Post):
    """A compacted topic."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        broker.create_topic(topic, 1, COMPACTED)
        self.logs: list[KafkaTopicLog] = []

    def _open_log(self) -> KafkaTopicLog:
        self.logs.append(KafkaTopicLog(self._broker.address, self._topic))
        return self.logs[-1]

    def open(self, me: str, *peers: str, network: str = FINGERPRINT) -> Mailbox:
        for log in self.logs:
            log.flush()  # what was sent is there before another party starts
        return TopicMailbox(self._open_log(), me, peers, network)

    def put(self, message: Message, content: bytes) -> None:
        log = self._open_log()
        log.append(json.dumps(["message", message.to, message.sender, message.kind], separators=(",", ":")), content)
        log.flush()


class TestTopicMailbox(MailboxContract):
    @pytest.fixture
    def post(self, broker: KafkaBroker, topic: str) -> Iterator[Post]:
        post = TopicPost(broker, topic)
        yield post
        for log in post.logs:
            log.close()


# -- one arc ----------------------------------------------------------------------------------------------------------


def read_committed(broker: KafkaBroker, topic: str) -> list[bytes]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.address, "group.id": "t", "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
    partitions = range(broker.count_partitions(topic))
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    values, ended = [], set()
    while len(ended) < len(partitions):
        for message in consumer.consume(100, timeout=1.0):
            ended.add(message.partition()) if message.error() else values.append(message.value())
    consumer.close()
    return sorted(values)


@pytest.fixture
def open_producer(broker: KafkaBroker, topic: str) -> Callable[[], BatchProducer]:
    broker.create_topic(topic, 2)
    broker.create_topic(f"{topic}.batches", 3, COMPACTED)
    return lambda: BatchProducer(broker.address, topic, NoteSlot(f"{topic}.batches", 1, "a->b"), partitions=2)


def test_a_batch_is_written_once(broker: KafkaBroker, topic: str, open_producer: Callable[[], BatchProducer]) -> None:
    first = open_producer()
    assert first.write("q", 0, [b"1", b"2", b"3"])
    assert not first.write("q", 0, [b"1", b"2", b"3"])
    assert first.write("q", 3, [b"4"]), "batches without rows leave gaps"
    again = open_producer()
    assert again.has_written("q", 3)
    assert not again.write("q", 3, [b"4"])
    assert again.write("q", 4, [b"5"])
    assert open_producer().write("another start from scratch", 0, [b"6"])
    assert read_committed(broker, topic) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_writer_that_dies_within_a_batch_leaves_nothing(
    broker: KafkaBroker, topic: str, open_producer: Callable[[], BatchProducer]
) -> None:
    first = open_producer()
    first.write("q", 0, [b"1"])

    def die() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first.write("q", 1, die())
    second = open_producer()
    assert not second.has_written("q", 1)
    assert second.write("q", 1, [b"2"])
    assert read_committed(broker, topic) == [b"1", b"2"]


def test_two_writers_of_one_topic_are_noticed(open_producer: Callable[[], BatchProducer]) -> None:
    first = open_producer()
    first.write("q", 0, [b"1"])
    open_producer().write("p", 0, [b"2"])
    with pytest.raises(PenstockError, match="another process writes topic"):
        first.write("q", 1, [b"3"])


def test_a_row_that_is_too_large_is_said(open_producer: Callable[[], BatchProducer]) -> None:
    with pytest.raises(PenstockError, match=r"a row is larger than Kafka takes; raise message\.max\.bytes"):
        open_producer().write("q", 0, [b"x" * 2_000_000])


def test_a_topic_that_was_deleted_is_said(broker: KafkaBroker, topic: str, open_producer: Callable[[], BatchProducer]) -> None:
    producer = open_producer()
    producer.write("q", 0, [b"1"])
    broker.delete_topic(topic)
    with pytest.raises(PenstockError, match=f"topic {topic} is gone from Kafka"):
        producer.write("q", 1, [b"2"])


# -- the topics of a network ------------------------------------------------------------------------------------------


def open_channels(text: str, *, is_new: bool = True) -> KafkaChannels:
    channels = KafkaChannels(parse_network(text, "bench"))
    assert channels.open(["a->b"], is_new=is_new, is_over=lambda: False)
    return channels


def test_the_topics_belong_to_one_network(broker: KafkaBroker, caplog: pytest.LogCaptureFixture) -> None:
    text = describe_network(broker.address)
    channels = open_channels(text)
    assert broker.count_partitions("penstock.bench.a--b") == 2
    assert broker.count_partitions("penstock.bench.messages") == 1
    open_channels(text, is_new=False)
    with pytest.raises(PenstockError, match=r"the topics penstock.bench.\* belong to another network: operator b: kind was"):
        open_channels(text.replace("b: {node: B, kind: delay", "b: {node: B, kind: map, select: '*'"))
    broker.delete_topic("penstock.bench.a--b")
    with pytest.raises(PenstockError, match=r"topic penstock.bench.a--b of .* is gone.* start anew with --reset"):
        open_channels(text, is_new=False)
    channels.reset()
    assert broker.count_partitions("penstock.bench.messages") == 0
    open_channels(text)
    channels.reset()


# -- two nodes, row by row --------------------------------------------------------------------------------------------


class Run:
    """A fleet under test, killed and restarted; what it did is in its journals and outputs."""

    def __init__(self, directory: Path, broker: KafkaBroker, connector: str, text: str) -> None:
        path = directory / "bench.yaml"
        path.write_text(text)
        self.broker, self.root = broker, directory / "run"
        conf = {"spark.jars": connector, "spark.sql.streaming.minBatchesToRetain": "100000"}
        self.fleet = LocalFleet(path, parse_network(text, "bench"), self.root, pace="1s", conf=conf)

    def count_batches(self, node: str) -> int:
        return len(list((self.root / "nodes" / node / "queries").glob("*/commits/[0-9]*")))

    def wait(self, is_so: Callable[[], Any], seconds: float = 240.0) -> None:
        deadline = time.monotonic() + seconds
        while not is_so():
            self.fleet.collect_failures()
            ended = [name for name, process in self.fleet.processes.items() if process.poll() is not None]
            assert not ended, (ended, self.log(ended[0])[-2000:])
            assert time.monotonic() < deadline, {name: self.log(name)[-1500:] for name in self.fleet.logs}
            time.sleep(0.1)

    def wait_for_batches(self, count: int = 1) -> None:
        before = {node: self.count_batches(node) for node in "AB"}
        self.wait(lambda: all(self.count_batches(node) >= rows + count for node, rows in before.items()))

    def kill(self, name: str) -> None:
        process = self.fleet.processes[name]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
        self.fleet.start_process(name)

    def log(self, name: str) -> str:
        return self.fleet.logs[name].read_text(errors="replace")

    def totals(self, node: str, query: str) -> dict[str, tuple[int, int]]:
        return dict(read_journal(self.root / "nodes" / node / "queries" / query / "penstock").totals())

    def wait_until_read(self, rows: int) -> None:
        """Wait until B has taken as many rows as A has sent, and has nothing left to take."""
        deadline = time.monotonic() + 90.0
        while self.totals("B", "b")["a->b"][0] < rows and time.monotonic() < deadline:
            time.sleep(0.5)
        self.fleet.processes["B"].terminate()
        self.fleet.processes["B"].wait(90)

    def read_output(self) -> list[int]:
        files = sorted((self.root / "outputs" / "q").glob("*.parquet"))
        return [number for file in files for number in pq.read_table(file)["seq"].to_pylist()]


@pytest.mark.long
def test_rows_come_out_once_through_kills_and_restarts_of_the_broker(
    tmp_path: Path, own_broker: KafkaBroker, connector: str
) -> None:
    run = Run(tmp_path, own_broker, connector, describe_network(own_broker.address))
    dice = random.Random(KILLS + 100 * RESTARTS)
    events: list[Callable[[], None]] = [lambda: run.kill("A"), lambda: run.kill("B")] * ((KILLS + 1) // 2)
    events = events[:KILLS] + [lambda: (own_broker.kill(), time.sleep(3.0), own_broker.start())] * RESTARTS  # type: ignore[list-item,return-value]
    dice.shuffle(events)
    run.fleet.start()
    try:
        run.wait(lambda: (run.fleet.status("A") or {}).get("reason", "").startswith("plan"))
        for event in events:
            run.wait_for_batches()
            time.sleep(dice.uniform(0.0, 1.0))
            event()
        run.wait_for_batches()
        run.wait(lambda: json.loads((run.root / "coordinator" / "status.json").read_text())["reporting"] == ["A", "B"])
        # A stops first, so that B gets all that A has sent.
        run.fleet.processes["A"].terminate()
        run.fleet.processes["A"].wait(90)
        sent = run.totals("A", "a")["i"][1]
        run.wait_until_read(sent)
    finally:
        run.fleet.stop()
    assert sent == run.totals("B", "b")["a->b"][0], "rows between the nodes are missing or double"
    offered, kept = run.totals("B", "b")["a->b"]
    rows = run.read_output()
    assert len(rows) == len(set(rows)), "a row came out twice"
    assert len(rows) == kept, "rows are missing"
    assert kept < offered, "nothing was shed: B is not overloaded"
    if RESTARTS:
        assert re.search(r"Kafka at \S+ does not answer: waiting for it", run.log("A") + run.log("B"))
    logging.getLogger("penstock").info("%d rows sent, %d kept, %d kills, %d restarts", sent, kept, KILLS, RESTARTS)


def test_a_node_waits_for_the_broker_and_goes_on(
    tmp_path: Path, own_broker: KafkaBroker, connector: str, caplog: pytest.LogCaptureFixture
) -> None:
    channels = KafkaChannels(parse_network(describe_network(own_broker.address), "later"))
    own_broker.stop()
    opened: list[bool] = []
    thread = threading.Thread(target=lambda: opened.append(channels.open(["a->b"], is_new=True, is_over=lambda: False)))
    thread.start()
    time.sleep(1.5)
    assert not opened
    own_broker.start()
    thread.join(30)
    assert opened == [True]
    lines = [record.message for record in caplog.records if "Kafka at" in record.message]
    assert [re.sub(r" at \S+", "", line) for line in lines] == ["Kafka does not answer: waiting for it", "Kafka answers"]
    channels.reset()
