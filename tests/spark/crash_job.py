"""The job that the crash test kills: a replayed stream, a gate whose table keeps changing, a stateful aggregation behind it.

Run as ``crash_job.py by-batch|by-arrival|files|window|join|las DIRECTORY START_S STOP_FILE``; it runs until it is killed, or
until the stop file is there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock import AgeRule, Controller, Decision, Observation, Shedder, WholeKeys, WholeWindows, load_aware, register_replay
from penstock.spark.session import local_session

RATE, DURATION_S = 400.0, 600.0
KEEPS = (0.5, 0.15, 1.0, 0.75, 0.3, 0.9, 0.05)
KEYS = 200
FLOOR = 0.1
FULL = (1000.0, 200.0, None, 400.0)


class Restless(Controller):
    """Another keep after two batches, and another bound; by turns, expired rows are shed, or the freshest kept with a floor.

    So some decisions say the same as the last one, and are not waited for.
    """

    def update(self, observation: Observation) -> Decision:
        number = observation.batch_id + 1
        keep, now_s = KEEPS[number // 2 % len(KEEPS)], observation.taken_s
        rule = None
        if now_s is not None and number % 4 < 2:
            rule = AgeRule(now_s - 1.0, keep) if number % 4 else AgeRule(now_s - 0.4, 1.0, FLOOR)
        return Decision(keep=keep, full_rows=FULL[number % len(FULL)], age=rule)


def main(mode: str, directory: Path, start_s: str, stop_file: str) -> None:
    spark = local_session(
        "crash",
        scratch=directory / "scratch",
        **{"spark.sql.streaming.minBatchesToRetain": "100000", "spark.sql.shuffle.partitions": "1"},
    )
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "b-model").option("seed", 5).option("start", start_s)
    source = reader.option("rate", RATE).option("duration", f"{DURATION_S}s").load()
    checkpoint = str(directory / "checkpoint")
    if mode == "las":
        # Half of what an idle batch takes, so that the wait decides; matrices come after every two windows.
        options = {"policy": "las", "constraint": "avg", "tau": "300ms", "window": 100, "mu": 10.0}
        aware = load_aware(
            spend, key=F.col("seq") % KEYS, delay_target="1s", columns="seq", returns="bigint", output="again", **options
        )
        with aware:
            rows = aware(source.select("seq", "arrival"), name="in", arrival="arrival")
            wait(aware.write(rows, "parquet", directory / "sink", checkpoint=checkpoint), stop_file)
        spark.stop()
        return
    with Shedder("2s", controller=Restless(2.0)) as shedder:
        if mode in ("window", "join"):
            results = windows_of(shedder, source) if mode == "window" else pairs_of(shedder, source)
            query = shedder.write(results, "parquet", directory / "sink", checkpoint=checkpoint)
            wait(query, stop_file)
            return
        shed_to = directory / "shed" if mode == "by-batch" else None
        gated = shedder.gate(source, name="in", arrival="arrival", identity="seq", bounded=mode == "by-arrival", shed_to=shed_to)
        if mode == "by-batch":
            # All kept rows of a bucket so far, in every batch that touches it.
            counted = gated.groupBy((F.col("seq") / 64).cast("int").alias("bucket")).agg(F.collect_list("seq").alias("seqs"))
            query = shedder.write(counted, "parquet", directory / "sink", checkpoint=checkpoint, output_mode="update")
        else:
            # A window's kept rows, once it has closed.
            windows = gated.withWatermark("arrival", "0 seconds").groupBy(F.window("arrival", "500 milliseconds"))
            counted = windows.agg(F.collect_list("seq").alias("seqs"))
            writer = counted.writeStream.format("parquet").option("path", str(directory / "sink"))
            query = shedder.start(writer.option("checkpointLocation", checkpoint), by="batch" if mode == "files" else "arrival")
        wait(query, stop_file)
    spark.stop()


def spend(seq: int) -> int:
    """Every fifth key costs five times as much as the others."""
    time.sleep(1e-3 if seq % 5 == 0 else 2e-4)
    return seq


def windows_of(shedder: Shedder, source: DataFrame) -> DataFrame:
    """Whole windows that overlap, once they have closed."""
    gated = shedder.gate(source.withWatermark("arrival", "0 seconds"), name="in", unit=WholeWindows("arrival", "1s", "500ms"))
    windows = gated.groupBy(F.window("arrival", "1 second", "500 milliseconds"))
    return shedder.whole(windows.agg(F.collect_list("seq").alias("seqs")))


def pairs_of(shedder: Shedder, source: DataFrame) -> DataFrame:
    """Each row with itself, by key, as a join of two streams."""
    sides = []
    for name in ("left", "right"):
        side = source.select((F.col("seq") % KEYS).alias(f"{name}_key"), F.col("seq").alias(f"{name}_seq"))
        sides.append(shedder.gate(side, name=name, unit=WholeKeys(f"{name}_key")))
    return sides[0].join(sides[1], F.expr("left_key = right_key AND left_seq = right_seq"))


def wait(query: StreamingQuery, stop_file: str) -> None:
    parent = os.getppid()
    while query.isActive and not Path(stop_file).exists() and os.getppid() == parent:
        time.sleep(0.05)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
