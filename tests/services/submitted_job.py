"""The job that ``spark-submit`` runs on a cluster: ``submitted_job.py gate|load_aware DIRECTORY``. Prints ``fine`` at the end."""

# ruff: noqa: T201 - spark-submit shows what it prints

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from penstock import Controller, Decision, Observation, PenstockError, Shedder, load_aware, read_journal

ROWS = 500


class Half(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.5)


def double(value: int) -> int:
    return 2 * value


def main(kind: str, directory: Path) -> None:
    spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2).load()
    journal = directory / kind / "penstock"
    seen: dict[int, int] = {}

    def count(df, number: int) -> None:
        seen[number] = df.count()

    try:
        if kind == "gate":
            shedder = Shedder("60s", controller=Half(60.0))
            rows = shedder.gate(source, name="in", identity="value")
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
