"""The job that the crash test kills: a replayed stream, a gate whose table keeps changing, a stateful aggregation behind it.

Run as ``crash_job.py by-batch|by-arrival DIRECTORY START_S``; it runs until it is killed, or until the trace has ended
and every row of it is committed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import functions as F

import penstock as ps
from penstock.spark.session import local_session

RATE, DURATION_S = 400.0, 600.0
KEEPS = (1.0, 0.5, 0.15, 0.75, 0.3, 0.9, 0.05)
FULL = (1000.0, 200.0, None, 400.0)


class Restless(ps.Controller):
    """Another keep after every batch, and another bound."""

    def update(self, observation: ps.Observation) -> ps.Decision:
        number = observation.batch_id + 1
        return ps.Decision(keep=KEEPS[number % len(KEEPS)], full_rows=FULL[number % len(FULL)])


def main(mode: str, directory: Path, start_s: str, stop_file: str) -> None:
    spark = local_session(
        "crash",
        scratch=directory / "scratch",
        **{"spark.sql.streaming.minBatchesToRetain": "100000", "spark.sql.shuffle.partitions": "1"},
    )
    ps.register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "b-model").option("seed", 5).option("start", start_s)
    source = reader.option("rate", RATE).option("duration", f"{DURATION_S}s").load()
    with ps.Shedder("2s", controller=Restless(2.0)) as shedder:
        gated = shedder.gate(source, name="in", arrival="arrival", identity="seq", bounded=mode == "by-arrival")
        checkpoint = str(directory / "checkpoint")
        if mode == "by-batch":
            # All kept rows of a bucket so far, in every batch that touches it.
            counted = gated.groupBy((F.col("seq") / 64).cast("int").alias("bucket")).agg(F.collect_list("seq").alias("seqs"))
            query = shedder.write(counted, "parquet", directory / "sink", checkpoint=checkpoint, output_mode="update")
        else:
            # A window's kept rows, once it has closed.
            windows = gated.withWatermark("arrival", "0 seconds").groupBy(F.window("arrival", "500 milliseconds"))
            counted = windows.agg(F.collect_list("seq").alias("seqs"))
            writer = counted.writeStream.format("parquet").option("path", str(directory / "sink"))
            query = shedder.start(writer.option("checkpointLocation", checkpoint))
        parent = os.getppid()
        while query.isActive and not Path(stop_file).exists() and os.getppid() == parent:
            time.sleep(0.05)
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
