"""The job that the Kafka crash test kills: a topic, a gate whose table keeps changing, and files with the rows kept.

Run as ``python -m tests.services.kafka_crash_job by-batch|by-arrival|to-topics DIRECTORY ADDRESS TOPIC CONNECTOR``. It runs until
it is killed, until its directory has a file ``stop``, or until the test that started it has ended. ``to-topics`` is by batch,
with the rows kept in the topic ``TOPIC-out`` and those shed in ``TOPIC-shed``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from penstock import AgeRule, Controller, Decision, Observation, Shedder
from penstock.spark.session import local_session

KEEPS = (1.0, 0.5, 0.15, 0.75, 0.3, 0.9, 0.05)
FULL = (1000.0, 200.0, None, 400.0)
FLOOR = 0.1


class Restless(Controller):
    """Another keep after every batch, and another bound; by turns, expired rows are shed, or the freshest kept with a floor."""

    def update(self, observation: Observation) -> Decision:
        number = observation.batch_id + 1
        keep, now_s = KEEPS[number % len(KEEPS)], observation.taken_s
        rule = None
        if now_s is not None and number % 3:
            rule = AgeRule(now_s - 1.0, keep) if number % 3 == 1 else AgeRule(now_s - 0.4, 1.0, FLOOR)
        return Decision(keep=keep, full_rows=FULL[number % len(FULL)], age=rule)


def main(mode: str, directory: Path, address: str, topic: str, connector: str) -> None:
    parent = os.getppid()  # before Spark starts: it may be gone by the time a query runs
    settings = {"spark.jars": connector, "spark.sql.streaming.minBatchesToRetain": "100000"}
    spark = local_session("crash", scratch=directory / "scratch", **settings)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", topic)
    rows = reader.option("startingOffsets", "earliest").load()
    checkpoint = str(directory / "checkpoint")
    with Shedder("2s", controller=Restless(2.0)) as shedder:
        to_topics = mode == "to-topics"
        letters: dict[str, Any] = (
            {"shed_to": {"format": "kafka", "topic": f"{topic}-shed", "servers": address}} if to_topics else {}
        )
        gated = shedder.gate(rows, name="in", arrival="timestamp", **letters)
        kept = gated.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
        if to_topics:
            named = kept.selectExpr("concat(partition, ' ', offset) AS key", "value")
            query = shedder.write(named, "kafka", topic=f"{topic}-out", servers=address, checkpoint=checkpoint)
        elif mode == "by-batch":
            query = shedder.write(kept, "parquet", directory / "sink", checkpoint=checkpoint)
        else:
            writer = kept.writeStream.format("parquet").option("path", str(directory / "sink"))
            query = shedder.start(writer.option("checkpointLocation", checkpoint), by="arrival")
        while query.isActive and not (directory / "stop").exists() and os.getppid() == parent:
            time.sleep(0.05)
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
