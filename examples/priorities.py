"""Priority classes: alerts are kept, debug lines are dropped first. Run it with ``python examples/priorities.py``."""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Priorities, Shedder, register_replay


class Half(Controller):
    """Keeps half of the rows, so that the example gives the same result everywhere. Without it, Penstock holds the delay."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - the share is fixed
        """Keep half."""
        return Decision(keep=0.5)


def main(batches: int = 15) -> dict[str, float]:
    """Return the share of each level that was kept; the weights estimate how many rows there were."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("priorities").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "exponential").option("rate", 5_000)
    level = F.when(F.col("key") % 10 == 0, "alert").when(F.col("key") % 10 < 4, "info").otherwise("debug")
    logs = reader.option("duration", "60s").load().withColumn("level", level)

    shedder = Shedder("2s", controller=Half(2.0))
    kept = shedder.gate(
        logs,
        arrival="arrival",
        identity="seq",
        priorities=Priorities("level", {"alert": 20, "info": 4, "debug": 1}),
        weight_column="w",
    )
    counts = kept.groupBy("level").agg(F.count("*").alias("kept"), F.sum("w").alias("offered"))
    with shedder:
        query = shedder.write(counts, "memory", name="levels", output_mode="complete")
        while shedder.report().table.num_rows < batches and query.isActive:
            time.sleep(0.1)
    rows = spark.table("levels").collect()
    return {row["level"]: row["kept"] / row["offered"] for row in rows}


if __name__ == "__main__":
    for name, share in sorted(main().items()):
        print(f"{name:6} {share:6.1%} kept")
