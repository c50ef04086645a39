"""The demo's job on a Kafka topic: the same rows through a broker."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.demo.feed import play, start_feed
from penstock.demo.job import Form, Job
from penstock.demo.work import Work
from penstock.simulation.traffic import traffic_from_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.shedder import Shedder
    from penstock.testing.kafka import KafkaBroker

__all__ = ["TopicJob"]

_PARTITIONS = 2
_TRAFFIC = ("generator", "rate", "duration", "bias", "seed")


class TopicJob(Job):
    """The job, with a topic of its own for each run that a producer fills as the replay source would play it."""

    def __init__(self, spark: SparkSession, work: Work, scratch: Path, target_s: float, broker: KafkaBroker) -> None:
        super().__init__(spark, work, scratch, target_s)
        self._broker = broker
        self._topics = count(1)
        self._feed: BaseProcess | None = None

    def read(self, shedder: Shedder, source: Mapping[str, str], form: Form) -> DataFrame:
        """Return the rows behind the gate, which stands before anything is parsed."""
        self.stop_feed()
        topic = f"demo{next(self._topics)}"
        self._broker.create_topic(topic, _PARTITIONS)
        traffic = traffic_from_options({name: source[name] for name in _TRAFFIC if name in source})
        begin_s = float(source["start"])
        if begin_s + traffic.duration_s < time.time():
            play(self._broker.address, topic, traffic, begin_s, _PARTITIONS)
        else:
            self._feed = start_feed(self._broker.address, topic, traffic, begin_s, _PARTITIONS)
        options = {"kafka.bootstrap.servers": self._broker.address, "subscribe": topic, "startingOffsets": "earliest"}
        if "max_rows_per_batch" in source:
            options["maxOffsetsPerTrigger"] = source["max_rows_per_batch"]
        rows = self.spark.readStream.format("kafka").options(**options).load()
        gated = shedder.gate(rows, name="rows", arrival="timestamp", bounded=form == "bounded")
        return gated.selectExpr("timestamp AS arrival", "CAST(CAST(key AS STRING) AS BIGINT) AS key", "value AS payload")

    def stop_feed(self) -> None:
        """End the producer of the last run."""
        if self._feed is not None and self._feed.is_alive():
            self._feed.terminate()
            self._feed.join(10)
        self._feed = None
