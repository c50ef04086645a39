"""A dashboard's counts under shedding: how many requests by host, and how far off that may be.

Run it: ``python examples/dashboard.py``. A part of the rows is dropped; the weight column scales counts and sums back up, and
every number comes with its error.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder, register_replay
from penstock import functions as pf


def main(batches: int = 10) -> dict[int, Any]:
    """Run a few batches and return the last estimate of each host."""
    spark = SparkSession.builder.master("local[2]").appName("dashboard").getOrCreate()
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "constant").option("rate", 4000)
    requests = reader.option("duration", "120s").option("keys", "zipf").option("key_count", "20").load()
    latest: dict[int, Any] = {}

    def show(df: DataFrame, number: int) -> None:
        latest.update({row["host"]: row for row in df.collect()})
        time.sleep(0.2)  # a slow sink
        if number and latest:
            host, row = min(latest.items())
            found = row["requests"]
            bounds = f"from {found['lower']:,.0f} to {found['upper']:,.0f}"
            print(f"batch {number}: host {host}: {found['estimate']:,.0f} requests, {bounds}")

    with tempfile.TemporaryDirectory() as place, Shedder("1s", controller=Half(1.0)) as shedder:
        kept = shedder.gate(requests, arrival="arrival", identity="seq", weight_column="w")
        counts = kept.groupBy((F.col("key") % 5).alias("host")).agg(
            pf.estimated_count(weight="w").alias("requests"),
            pf.estimated_sum("cost_s", weight="w").alias("seconds"),
            pf.estimated_avg("seq", weight="w").alias("mean"),
        )
        query = shedder.foreach_batch(counts, show, checkpoint=place, output_mode="update")
        while shedder.report().table.num_rows < batches and query.isActive:
            time.sleep(0.1)
        print(shedder.report())
    return latest


class Half(Controller):
    """Keeps one half, so that the example shows the same on every machine; leave it out to have the delay held instead."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - whatever is seen
        """Decide."""
        return Decision(keep=0.5)


if __name__ == "__main__":
    main()
