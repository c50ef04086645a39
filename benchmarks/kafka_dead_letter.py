"""What it costs to write shed rows to a dead letter, against processing them.

A topic of JSON rows (about 500 bytes) on one machine with job and broker, read in batches of a fixed size on two cores.
Arms: a job that keeps every row and processes it; the same job shedding every row; the same with a dead letter, a
directory of Parquet files or another topic, or with ``shed_to="offsets"``, which only notes where rows lie. What the
second takes is taken off the others, so what is left is the work per row: processed, or read once more and written. Arms
run in turn, and the best round of each counts.

Two kinds of processing: the Python function of the demo and of ``kafka-burst`` (0.2 ms per row), on which the bar is,
and parsing and counting by Spark itself, the least that a job does.
"""

from __future__ import annotations

from benchmarks.support.dead_letter_cost import LetterJob, fill_topic
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result
from penstock.demo.work import calibrate
from penstock.spark.fresh_session import fresh_session
from penstock.testing.kafka import KafkaBroker, fetch_connector

__all__ = ["run"]

_ROWS, _QUICK_ROWS = 40_000, 10_000
_BATCHES, _ROUNDS, _QUICK_ROUNDS = 8, 3, 2
_COST_S = 0.0002
_MAX_RATIO = 0.3
_PYTHON, _NATIVE = "a Python function, 0.2 ms", "parse and count"


def run(*, quick: bool, say: Say) -> Result:
    """Time all arms in turn."""
    import pyspark  # noqa: PLC0415 - needs Spark

    rows = _QUICK_ROWS if quick else _ROWS
    jars = ",".join(str(jar) for jar in fetch_connector(pyspark.__version__))
    with KafkaBroker() as broker:
        for topic in ("rows", "shed"):
            broker.create_topic(topic, 2)
        say(f"writing {rows * _BATCHES:,} rows to a topic")
        fill_topic(broker.address, "rows", rows * _BATCHES, 2)
        with fresh_session("kafka-dead-letter", 2, **{"spark.jars": jars}) as (spark, scratch):
            job = LetterJob(spark, broker.address, "rows", rows, scratch)
            works = {_PYTHON: calibrate(_COST_S), _NATIVE: None}
            targets = {
                "Parquet": "parquet",
                "Kafka": {"format": "kafka", "topic": "shed", "servers": broker.address},
                "offsets": "offsets",
            }
            table = job.cost(works, targets, _QUICK_ROUNDS if quick else _ROUNDS, say)
    bars = [
        Bar.at_most(f"{row['dead letter']}: write a shed row / process it", row["ratio"], _MAX_RATIO)
        for row in table
        if row["processing"] == _PYTHON
    ]
    return Result("kafka-dead-letter", table, bars)
