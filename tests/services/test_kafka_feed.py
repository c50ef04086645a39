"""The producer of the demo and the benchmarks writes the rows of the replay source, when they are due."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock.demo.feed import play, start_feed
from penstock.simulation.traffic import Traffic
from penstock.testing.kafka import KafkaBroker

from .kafka_rows import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import Row

pytestmark = pytest.mark.spark


@pytest.fixture
def read(session: SparkSession, broker: KafkaBroker, topic: str) -> Callable[[], list[Row]]:
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    return lambda: reader.load().selectExpr("partition", "unix_millis(timestamp) AS ms", "value").collect()


def test_what_was_due_is_written_at_once(broker: KafkaBroker, topic: str, read: Callable[[], list[Row]]) -> None:
    broker.create_topic(topic, 2)
    traffic, begin_s = Traffic.of("b-model", rate=100, duration_s=5, bias=0.6, seed=3), time.time() - 60.0
    assert play(broker.address, topic, traffic, begin_s) == 500
    rows = read()
    assert {row.partition: sum(other.partition == row.partition for other in rows) for row in rows} == {0: 250, 1: 250}
    due = ((begin_s + traffic.arrivals()) * 1e3).astype(np.int64)
    assert {int.from_bytes(row.value, "big"): row.ms for row in rows} == dict(enumerate(due.tolist()))


def test_what_is_due_later_is_written_later(broker: KafkaBroker, topic: str, read: Callable[[], list[Row]]) -> None:
    broker.create_topic(topic, 2)
    begin_s = time.time() + 2.0
    feed = start_feed(broker.address, topic, Traffic.of("constant", rate=100, duration_s=5), begin_s)
    try:
        rows: list[Row] = []
        while feed.is_alive():
            seen_s, rows = time.time(), read()
            # Nothing is there before it is due: what is read after a moment may be due up to the end of the read.
            assert all(row.ms <= 1e3 * time.time() for row in rows), f"read at {seen_s - begin_s:.1f} s"
        wait_until(lambda: len(read()) == 500, seconds=10)
    finally:
        feed.terminate()
        feed.join(10)
