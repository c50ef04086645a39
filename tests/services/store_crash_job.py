"""The job that the test of stores kills: its journal lies far away, and perhaps its checkpoint; its sink is on the disk.

Run as ``python -m tests.services.store_crash_job rows|buckets CHECKPOINT JOURNAL DIRECTORY START_S STOP_FILE SETTINGS``, with
settings of Spark as JSON, and an empty ``JOURNAL`` where it lies in the checkpoint; it runs until it is killed, or until the stop
file is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import functions as F

from penstock import Shedder, register_replay
from penstock.spark.session import local_session
from tests.spark.crash_job import DURATION_S, RATE, Restless, wait


def main(mode: str, checkpoint: str, journal: str, directory: Path, start_s: str, stop_file: str, settings: str) -> None:
    spark = local_session(
        "crash",
        scratch=directory / "scratch",
        **{"spark.sql.streaming.minBatchesToRetain": "100000", "spark.sql.shuffle.partitions": "1"} | json.loads(settings),
    )
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "b-model").option("seed", 5).option("start", start_s)
    source = reader.option("rate", RATE).option("duration", f"{DURATION_S}s").load()
    with Shedder("2s", controller=Restless(2.0), journal=journal or None) as shedder:
        gated = shedder.gate(source, name="in", arrival="arrival", identity="seq")
        if mode == "rows":
            query = shedder.write(gated.select("seq"), "parquet", directory / "sink", checkpoint=checkpoint)
        else:
            # All kept rows of a bucket so far, in every batch that touches it: the state is far away, too.
            counted = gated.groupBy((F.col("seq") / 64).cast("int").alias("bucket")).agg(F.collect_list("seq").alias("seqs"))
            query = shedder.write(counted, "parquet", directory / "sink", checkpoint=checkpoint, output_mode="update")
        wait(query, stop_file)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], Path(sys.argv[4]), *sys.argv[5:])
