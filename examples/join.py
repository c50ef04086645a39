"""A join under shedding: both sides keep the same keys, so the join is exact for the keys that are kept.

Run it with ``python examples/join.py``. Dropping every second row at random on each side would leave one pair in four. Dropping
keys leaves one pair in two, and each key that is left has all of its pairs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder, WholeKeys


class Half(Controller):
    """Keeps half of the keys, so that the example gives the same result everywhere. Without it, Penstock holds the delay."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - the share is fixed
        """Keep half."""
        return Decision(keep=0.5)


def main(batches: int = 8) -> tuple[int, int, int]:
    """Join views and clicks by user; return how many users there are, how many were joined, and how many pairs that gave."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("join").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    pairs: list[tuple[int, int]] = []

    def open_side(name: str) -> DataFrame:
        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2)
        df = ticks.option("startTimestamp", 1_700_000_000_000).option("advanceMillisPerBatch", 1000).load()
        return df.select((F.col("value") % 100).alias(f"{name}_user"), F.col("timestamp").alias(f"{name}_time"))

    def collect_pairs(df: DataFrame, _: int) -> None:
        pairs.extend((row[0], row[1]) for row in df.select("view_user", "click_user").collect())

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint, Shedder("2s", controller=Half(2.0)) as shedder:
        # Watermarks go before the gates: behind them they would cover only the rows kept.
        views = open_side("view").withWatermark("view_time", "2 seconds")
        clicks = open_side("click").withWatermark("click_time", "2 seconds")
        kept_views = shedder.gate(views, name="views", unit=WholeKeys("view_user"))
        kept_clicks = shedder.gate(clicks, name="clicks", unit=WholeKeys("click_user"))
        condition = F.expr("view_user = click_user AND click_time = view_time")
        query = shedder.foreach_batch(kept_views.join(kept_clicks, condition), collect_pairs, checkpoint=checkpoint)
        while shedder.report().table.num_rows < 2 * batches and query.isActive:
            time.sleep(0.1)
    users = {view_user for view_user, _ in pairs}
    print(f"{len(users)} of 100 users were kept, the same on both sides; they have {len(pairs):,} pairs")
    return 100, len(users), len(pairs)


if __name__ == "__main__":
    main()
