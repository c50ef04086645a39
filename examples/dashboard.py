"""The counts of a dashboard under shedding: how many requests each host had, and how far off that may be.

Run it with ``python examples/dashboard.py``. Half of the rows are dropped; the weight column scales counts and sums back up, and
every number comes with its error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder, register_replay
from penstock import functions as pf


class Half(Controller):
    """Keeps half of the rows, so that the example gives the same result everywhere. Without it, Penstock holds the delay."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - the share is fixed
        """Keep half."""
        return Decision(keep=0.5)


def main(batches: int = 10) -> dict[int, Any]:
    """Run a few batches and return the last estimate of each host."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("dashboard").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "constant").option("rate", 4000)
    requests = reader.option("duration", "120s").option("keys", "zipf").option("key_count", "20").load()
    latest: dict[int, Any] = {}

    def show(df: DataFrame, batch_id: int) -> None:
        latest.update({row["host"]: row for row in df.collect()})
        time.sleep(0.2)  # a slow sink
        if batch_id and latest:
            host, row = min(latest.items())
            count = row["requests"]
            bounds = f"from {count['lower']:,.0f} to {count['upper']:,.0f}"
            print(f"batch {batch_id}: host {host}: {count['estimate']:,.0f} requests, {bounds}")

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint, Shedder("1s", controller=Half(1.0)) as shedder:
        kept = shedder.gate(requests, arrival="arrival", identity="seq", weight_column="w")
        counts = kept.groupBy((F.col("key") % 5).alias("host")).agg(
            pf.estimated_count(weight="w").alias("requests"),
            pf.estimated_sum("cost_s", weight="w").alias("seconds"),
            pf.estimated_avg("seq", weight="w").alias("mean"),
        )
        query = shedder.foreach_batch(counts, show, checkpoint=checkpoint, output_mode="update")
        while shedder.report().table.num_rows < batches and query.isActive:
            time.sleep(0.1)
        print(shedder.report())
    return latest


if __name__ == "__main__":
    main()
