"""What a row costs that is shed and written to a dead letter, against one that is processed."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import Controller, Decision, Observation
from penstock.demo.work import SCORED, Work, scorer
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LetterJob", "fill_topic"]

_SCHEMA = "id bigint, host string, at string, bytes double, " + ", ".join(f"f{n} string" for n in range(12))
_WARM_UP = 2


class Fixed(Controller):
    """Keeps the same share of every batch after the first."""

    def __init__(self, keep: float) -> None:
        super().__init__(2.0)
        self.keep = keep

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - whatever was seen
        """Return the share."""
        return Decision(keep=self.keep)


class LetterJob:
    """A job on a topic, run over batches of a fixed size: everything processed, everything shed, or shed to a dead letter.

    Parameters
    ----------
    spark
        A session with Kafka's connector.
    address
        The broker.
    topic
        The rows, as ``fill_topic`` wrote them.
    rows
        The size of a batch.
    scratch
        A directory for checkpoints and Parquet files.
    """

    def __init__(self, spark: SparkSession, address: str, topic: str, rows: int, scratch: Path) -> None:
        self._spark, self._address, self._topic, self._rows, self._scratch = spark, address, topic, rows, scratch
        self._runs = count()

    def time_batches(self, keep: float, work: Work | None, shed_to: Any = None) -> float:
        """Return the median time of a batch in seconds, warm-up left out: once over the whole topic.

        ``work`` is a Python function per row behind the gate; without it the rows are parsed and counted by Spark itself.
        """
        from penstock import Shedder  # noqa: PLC0415 - needs Spark

        place = self._scratch / f"run{next(self._runs)}"
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._address)
        reader = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        source = reader.option("maxOffsetsPerTrigger", self._rows).load()
        target = str(place / "shed") if shed_to == "parquet" else shed_to
        with Shedder("2s", controller=Fixed(keep)) as shedder:
            gated = shedder.gate(source, name="in", shed_to=target)
            done = _parse(gated) if work is None else _score(gated, work)
            query = shedder.foreach_batch(
                done, _sink, checkpoint=place / "checkpoint", output_mode="update", trigger={"availableNow": True}
            )
            query.awaitTermination()
            times = [p.durationMs["triggerExecution"] / 1e3 for p in query.recentProgress if p.numInputRows >= self._rows // 2]
        # Of the first batch, which no controller has seen, everything is kept.
        if len(times) <= _WARM_UP:
            raise PenstockError(f"only {len(times)} batches ran, more than {_WARM_UP} are needed")
        return statistics.median(times[_WARM_UP:])

    def cost(
        self, works: Mapping[str, Work | None], targets: Mapping[str, Any], rounds: int, say: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """Return, for each kind of processing and each target, microseconds per row and their ratio; the best round counts."""
        arms: dict[str, Callable[[], float]] = {"shed": lambda: self.time_batches(0.0, None)}
        arms |= {f"work {name}": lambda work=work: self.time_batches(1.0, work) for name, work in works.items()}  # type: ignore[misc]
        arms |= {f"to {name}": lambda to=to: self.time_batches(0.0, None, to) for name, to in targets.items()}  # type: ignore[misc]
        best = dict.fromkeys(arms, float("inf"))
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for name, arm in arms.items():
                best[name] = min(best[name], arm())
        each = {name: (best_s - best["shed"]) / self._rows * 1e6 for name, best_s in best.items()}
        return [
            {
                "processing": work,
                "dead letter": to,
                "process, us per row": each[f"work {work}"],
                "write, us per row": each[f"to {to}"],
                "ratio": each[f"to {to}"] / each[f"work {work}"],
            }
            for work in works
            for to in targets
        ]


def fill_topic(address: str, topic: str, rows: int, partitions: int) -> None:
    """Write rows of JSON, about 500 bytes each."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra

    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "log_level": 0})
    body = {f"f{n}": f"value {n} of a row that is long enough" for n in range(12)}
    for number in range(rows):
        row = {"id": number, "host": f"host{number % 97}", "at": time.strftime("%FT%TZ"), "bytes": number * 1.5}
        producer.produce(topic, json.dumps(row | body), str(number % 97), partition=number % partitions)
        if number % 10_000 == 0:
            while len(producer) > 50_000:
                producer.poll(0.05)
            producer.poll(0)
    if producer.flush(60):
        raise PenstockError(f"rows could not be written to topic {topic!r}")


def _parse(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    parsed = rows.select(F.from_json(F.col("value").cast("string"), _SCHEMA).alias("v")).select("v.*")
    return parsed.groupBy("host").agg(F.count("*").alias("rows"), F.sum("bytes").alias("bytes"), F.max("f11").alias("last"))


def _score(rows: DataFrame, work: Work) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    shaped = rows.select(
        F.col("timestamp").alias("arrival"),
        F.col("key").cast("string").cast("bigint").alias("key"),
        F.col("value").alias("payload"),
    )
    return shaped.mapInArrow(scorer(work.rounds), SCORED).groupBy("key").count()


def _sink(df: DataFrame, _: int) -> None:
    df.write.format("noop").mode("overwrite").save()
