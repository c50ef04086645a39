"""A join under shedding: both sides keep the same keys, so what is joined is exact for the keys that are kept.

Run it: ``python examples/join.py``. Dropping one row in two at random on each side would leave one pair in four; dropping keys
leaves one in two, and those are whole.
"""

from __future__ import annotations

import tempfile
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder, WholeKeys


class Half(Controller):
    """Keeps one half, so that the example shows the same on every machine; leave it out to have the delay held instead."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - whatever is seen
        """Decide."""
        return Decision(keep=0.5)


def main(batches: int = 8) -> tuple[int, int, int]:
    """Join views and clicks by user; return users seen, users joined, and pairs."""
    spark = SparkSession.builder.master("local[2]").appName("join").getOrCreate()
    pairs: list[tuple[int, int]] = []

    def side(name: str) -> DataFrame:
        ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).option("numPartitions", 2)
        df = ticks.option("startTimestamp", 1_700_000_000_000).option("advanceMillisPerBatch", 1000).load()
        return df.select((F.col("value") % 100).alias(f"{name}_user"), F.col("timestamp").alias(f"{name}_time"))

    def take(df: DataFrame, _: int) -> None:
        pairs.extend((row[0], row[1]) for row in df.select("view_user", "click_user").collect())

    with tempfile.TemporaryDirectory() as place, Shedder("2s", controller=Half(2.0)) as shedder:
        # Watermarks before the gates: behind them they would see only what is kept.
        views = shedder.gate(side("view").withWatermark("view_time", "2 seconds"), name="views", unit=WholeKeys("view_user"))
        clicks = shedder.gate(side("click").withWatermark("click_time", "2 seconds"), name="clicks", unit=WholeKeys("click_user"))
        near = F.expr("view_user = click_user AND click_time = view_time")
        query = shedder.foreach_batch(views.join(clicks, near), take, checkpoint=place)
        while shedder.report().table.num_rows < 2 * batches and query.isActive:
            time.sleep(0.1)
    users = {left for left, _ in pairs}
    print(f"{len(users)} of 100 users were kept, on both sides; {len(pairs):,} pairs, all of them of those users")
    return 100, len(users), len(pairs)


if __name__ == "__main__":
    main()
