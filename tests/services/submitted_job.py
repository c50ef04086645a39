"""The job that ``spark-submit`` runs on a cluster: ``submitted_job.py gate|load_aware|replay DIRECTORY``; prints ``fine``."""

# ruff: noqa: T201 - spark-submit shows what it prints

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock import Controller, Decision, Observation, PenstockError, Shedder, load_aware, read_journal, register_replay

ROWS = 500


class Half(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.5)


def double(value: int) -> int:
    return 2 * value


def read(spark: SparkSession, kind: str) -> DataFrame:
    """Return a stream of batches of as many rows."""
    if kind != "replay":
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    register_replay(spark)
    options = {"generator": "constant", "rate": 100, "duration": "60s", "start": time.time() - 60.0, "max_rows_per_batch": ROWS}
    return spark.readStream.format("penstock-replay").options(**options).load()


def main(kind: str, directory: Path) -> None:
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    journal = directory / kind / "penstock"
    seen: dict[int, int] = {}

    def count(df, number: int) -> None:
        seen[number] = df.count()

    try:
        source = read(spark, kind)
        if kind in ("gate", "replay"):
            shedder = Shedder("60s", controller=Half(60.0))
            rows = shedder.gate(source, name="in", identity=source.columns[1])
        else:
            shedder = load_aware(
                double, key="value", delay_target="60s", columns="value", returns="bigint", output="twice", controller=Half(60.0)
            )
            rows = shedder(source, name="in")
        with shedder:
            query = shedder.foreach_batch(rows, count, checkpoint=directory / kind)
            deadline = time.monotonic() + 100
            while len(seen) < 4 and query.exception() is None and time.monotonic() < deadline:
                time.sleep(0.1)
    except PenstockError as error:
        print(f"PenstockError: {error}")
        return
    state = read_journal(journal)
    assert {number: batch.gates["in"] for number, batch in state.batches.items()} == {n: (ROWS, kept) for n, kept in seen.items()}
    assert len(seen) >= 4
    print("fine")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
