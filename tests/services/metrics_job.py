"""A job with metrics on, for a real Prometheus to scrape: ``python metrics_job.py PORT CHECKPOINT``, until its input ends."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import Controller, Decision, Observation, Shedder
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Half(Controller):
    """Keeps half of everything."""

    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.5)


def write(df: DataFrame, batch_id: int) -> None:
    df.write.format("noop").mode("overwrite").save()


def main(port: int, checkpoint: Path) -> None:
    """Run until the standard input ends."""
    spark = local_session("metrics", cores=1, scratch=checkpoint.parent, **{"spark.ui.enabled": "true", "spark.ui.port": "0"})
    print(str(spark.sparkContext.uiWebUrl).rpartition(":")[2], flush=True)  # noqa: T201 - read by the test
    options = {"rowsPerBatch": 1_000, "startTimestamp": int(time.time() * 1e3), "advanceMillisPerBatch": 10}
    source = spark.readStream.format("rate-micro-batch").options(**options).load()
    with Shedder("60s", controller=Half(60.0), metrics=[port, "spark"]) as shedder:
        rows = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(rows, write, checkpoint=checkpoint, name="<job>")
        ended = threading.Thread(target=sys.stdin.read, daemon=True)
        ended.start()
        while ended.is_alive() and query.isActive:
            ended.join(0.1)
    table = shedder.report().table
    print(sum(table["offered"].to_pylist()), sum(table["kept"].to_pylist()), flush=True)  # noqa: T201 - read by the test
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
