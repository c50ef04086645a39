"""Rows of some senders cost thirty times as much as others: shed those first, and still count every sender by weight.

Run it with ``python examples/load_aware.py``. It prints, for cheap and for expensive senders, how many rows were kept and how
many there were, estimated by the weights.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock import load_aware, register_replay


def score(key: int) -> float:
    """Score a row; every fifth sender is expensive: 3 ms instead of 0.1 ms."""
    end_s = time.perf_counter() + (3e-3 if key % 5 == 0 else 1e-4)
    while time.perf_counter() < end_s:
        pass
    return key * 0.5


def main(batches: int = 20) -> dict[str, tuple[int, float]]:
    """Run some batches; return the rows kept and the rows estimated, of cheap and of expensive senders."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run the python3 on PATH, without penstock
    builder = SparkSession.builder.master("local[2]").appName("load-aware").config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "constant").option("rate", 5000)
    stream = reader.option("duration", "60s").option("key_count", 100).load()

    aware = load_aware(score, key="key", delay_target="2s", columns="key", returns="double", floor=0.1)
    scores = aware(stream, arrival="arrival", identity="seq", weight_column="w")
    kept, estimate = Counter[str](), Counter[str]()
    batch_ids: list[int] = []

    def count(df: DataFrame, batch_id: int) -> None:
        rows = df.select("key", "w").collect()
        batch_ids.append(batch_id)
        if batch_id < 4:  # it still learns what each sender costs
            return
        for row in rows:
            name = "expensive" if row.key % 5 == 0 else "cheap"
            kept[name] += 1
            estimate[name] += row.w

    with aware:
        query: Any = aware.foreach_batch(scores, count)
        while len(batch_ids) < batches and query.exception() is None:
            time.sleep(0.1)
    return {name: (kept[name], estimate[name]) for name in ("cheap", "expensive")}


if __name__ == "__main__":
    for sender, (rows, estimated) in main().items():
        print(f"{sender}: {rows:,} rows kept, {estimated:,.0f} estimated")
