"""Some senders' rows take thirty times as long as others': shed those first, and count all senders right by weight.

Run it with ``python examples/load_aware.py``. The table shows, by class of the sender, how many rows were kept and how many the
weights say there were.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from pyspark.sql import DataFrame

from penstock import load_aware, register_replay
from penstock.spark.session import local_session


def score(key: int) -> float:
    """Every fifth sender is dear: 3 ms instead of 0.1."""
    end_s = time.perf_counter() + (3e-3 if key % 5 == 0 else 1e-4)
    while time.perf_counter() < end_s:
        pass
    return key * 0.5


def main(batches: int = 20) -> dict[str, tuple[int, float]]:
    """Run some batches; return the rows kept and the rows estimated, by class of the sender."""
    spark = local_session("load-aware")
    register_replay(spark)
    reader = spark.readStream.format("penstock-replay").option("generator", "constant").option("rate", 5000)
    rows = reader.option("duration", "60s").option("key_count", 100).load()

    aware = load_aware(score, key="key", delay_target="2s", columns="key", returns="double", floor=0.1)
    scored = aware(rows, arrival="arrival", identity="seq", weight_column="w")
    kept, estimate, seen = Counter[str](), Counter[str](), []

    def sink(batch: DataFrame, number: int) -> None:
        rows = batch.select("key", "w").collect()
        seen.append(number)
        if number < 4:  # it learns what senders cost
            return
        for row in rows:
            name = "dear" if row.key % 5 == 0 else "cheap"
            kept[name] += 1
            estimate[name] += row.w

    with aware:
        query: Any = aware.foreach_batch(scored, sink)
        while len(seen) < batches and query.exception() is None:
            time.sleep(0.1)
    return {name: (kept[name], estimate[name]) for name in ("cheap", "dear")}


if __name__ == "__main__":
    for sender, (rows, estimated) in main().items():
        print(f"{sender}: {rows:,} rows kept, {estimated:,.0f} estimated")
