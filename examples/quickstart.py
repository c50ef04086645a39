"""The ten lines: a windowed count of a bursty stream, with the delay held at two seconds.

The job is light, so a fast machine sheds little or nothing; ``penstock demo`` shows the same job under overload. Run it with
``python examples/quickstart.py``. It needs nothing but the package and Java.
"""

from __future__ import annotations

import os
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Report, Shedder, register_replay


def main(batches: int = 20) -> Report:
    """Run some batches and return the report."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("quickstart").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "b-model").option("rate", 20_000)
    stream = reader.option("duration", "60s").option("seed", 1).load()

    shedder = Shedder(delay_target="2s", first_cost="20us")  # about; without it, the first batches keep few rows to find out
    rows = shedder.gate(stream, arrival="arrival", identity="seq", weight_column="w")
    counts = rows.groupBy(F.window("arrival", "5 seconds"), F.expr("key % 4")).agg(F.sum("w").alias("estimate"))
    with shedder:
        query = shedder.write(counts, "console", output_mode="update", numRows=4)
        while shedder.report().table.num_rows < batches and query.isActive:
            time.sleep(0.1)
    return shedder.report()


if __name__ == "__main__":
    print(main())
