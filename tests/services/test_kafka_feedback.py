"""A producer samples as the job asks for, over a topic and over HTTP, and what comes out still adds up to what was made."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")

from penstock import Controller, Decision, Observation, Shedder
from penstock import functions as pf
from penstock.feedback import AdmittedRate, Feedback
from penstock.testing.kafka import KafkaBroker

from .kafka_rows import process_all, produce, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEEP = 0.5


class Half(Controller):
    """Keeps half."""

    def update(self, observation: Observation) -> Decision:
        return Decision(KEEP)


def test_weights_of_producer_and_gate_add_up(
    broker: KafkaBroker, session: SparkSession, stream: Callable[..., DataFrame], topic: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    broker.create_topic(topic, 2)
    shedder = Shedder("2s", controller=Half(2.0))
    gated = shedder.gate(stream(subscribe=topic, includeHeaders="true"), name="in", arrival="timestamp", weight_column="w")
    weighted = gated.withColumn("source", pf.source_weight()).withColumn("w", F.col("w") * F.col("source"))
    checkpoint = tmp_path / "checkpoint"
    query = shedder.write(weighted.select("w", "source", "value"), "parquet", tmp_path / "sink", checkpoint=str(checkpoint))
    names = {"in": topic}
    made = sent = 0
    with (
        shedder,
        Feedback(
            checkpoint, names, http="127.0.0.1:0", servers=broker.address, rates_topic=f"{topic}-rates", settle_s=0.5
        ) as feedback,
    ):
        for _ in range(3):  # the job begins to shed, and says so
            produce(broker, topic, range(500), partitions=2)
            made += 500
            sent += 500
            process_all(query)
        wait_until(lambda: feedback.records and feedback.records[0].share < 1.0, query)
        wait_until(lambda: broker.count_partitions(f"{topic}-rates") == 1, query)
        with (
            AdmittedRate.from_http(str(feedback.url), topic, refresh_s=0.1) as by_http,
            AdmittedRate.from_kafka(broker.address, topic, rates_topic=f"{topic}-rates", refresh_s=0.1) as by_topic,
        ):
            wait_until(lambda: by_http.share < 1.0 and by_topic.share < 1.0, query)
            for number, rate in enumerate((by_http, by_topic)):
                rows = [(f"{number} {row}", rate.sample(f"{number} {row}")) for row in range(3000)]
                made += len(rows)
                sent += send(broker, topic, rows)
        process_all(query)
    rows = session.read.parquet(str(tmp_path / "sink"))
    total, spread = rows.select(F.sum("w"), F.sum(F.expr("w * (w - 1)"))).first() or (0.0, 0.0)
    assert sent < 0.9 * made, "nothing was spared"
    assert sum(row["offered"] for row in shedder.report().table.to_pylist()) == sent, "the gate counts what arrives"
    assert rows.where("source > 1").count() > 0
    assert abs(total - made) < 4.5 * math.sqrt(spread)


def send(broker: KafkaBroker, topic: str, rows: list[tuple[str, float | None]]) -> int:
    """Send the rows that have a weight, with that weight; return how many."""
    from confluent_kafka import Producer

    producer: Any = Producer({"bootstrap.servers": broker.address})
    chosen = [(value, weight) for value, weight in rows if weight is not None]
    for value, weight in chosen:
        producer.produce(topic, value, headers=AdmittedRate.headers(weight))
    assert producer.flush(30) == 0
    return len(chosen)


def test_headers_that_are_no_weights_count_as_one(broker: KafkaBroker, session: SparkSession, topic: str) -> None:
    broker.create_topic(topic)
    cases: list[tuple[list[tuple[str, bytes | None]] | None, float]] = [
        (None, 1.0),
        ([("penstock-weight", b"4.0")], 4.0),
        ([("penstock-weight", b"2.0"), ("other", b"9"), ("penstock-weight", b"8.0")], 8.0),
        ([("penstock-weight", b"much")], 1.0),
        ([("penstock-weight", b"0.1")], 1.0),
        ([("penstock-weight", b"NaN")], 1.0),
        ([("penstock-weight", b"Infinity")], 1.0),
        ([("penstock-weight", None)], 1.0),
        ([("other", b"3")], 1.0),
    ]
    for number, (headers, _) in enumerate(cases):
        produce(broker, topic, [number], **({} if headers is None else {"headers": headers}))
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", topic)
    rows = reader.option("includeHeaders", "true").load().select("value", pf.source_weight().alias("w")).collect()
    assert {int(row.value): row.w for row in rows} == {number: weight for number, (_, weight) in enumerate(cases)}
