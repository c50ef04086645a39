"""Priority classes: alerts are kept, debug lines go first."""

from __future__ import annotations

import time

from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Priorities, Shedder, register_replay
from penstock.spark.session import local_session


class Half(Controller):
    """Keep half of the rows, whatever happens: the share of each class is the gate's business."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - it looks at nothing
        """Keep half."""
        return Decision(keep=0.5)


def main(batches: int = 15) -> dict[str, float]:
    """Return the share of each level that was kept, estimated by the weights."""
    spark = local_session("priorities")
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
        shedder.write(counts, "memory", name="levels", output_mode="complete")
        while shedder.report().table.num_rows < batches:
            time.sleep(0.1)
    rows = spark.table("levels").collect()
    return {row["level"]: row["kept"] / row["offered"] for row in rows}


if __name__ == "__main__":
    for name, share in sorted(main().items()):
        print(f"{name:6} {share:6.1%} kept")
