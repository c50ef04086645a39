"""How long it takes to swap a table of 10,000 entries.

A table of 10,000 keep probabilities is swapped many times in a plan that already exists (``TableCell.publish``, one
call to the JVM for any size); the median and the worst time count. From time to time a Spark job reads the whole table
back through the plan: every entry must be that of the last swap.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result
from penstock.drop.tables import SCALE, KeepTable, round_up
from penstock.spark.fresh_session import fresh_session

__all__ = ["run"]

_ENTRIES = 10_000
_SWAPS, _QUICK_SWAPS = 500, 100
_CHECK_EVERY = 25


def run(*, quick: bool, say: Say) -> Result:
    """Time the swaps and check the entries."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    from penstock.spark.catalyst import ENTRIES, TableCell  # noqa: PLC0415 - needs Spark

    swaps = _QUICK_SWAPS if quick else _SWAPS
    generator = np.random.default_rng(1)
    times_ms, checks, correct = [], 0, 0
    with fresh_session("table", 1) as (spark, _):
        cell = TableCell(spark, KeepTable(0, np.ones((_ENTRIES, 1))))
        plan = spark.range(ENTRIES, ENTRIES + _ENTRIES, 1, 1).select(cell.threshold(F.col("id").cast("int")).alias("entry"))
        say(f"{swaps} swaps of {_ENTRIES:,} entries")
        for swap in range(swaps):
            table = KeepTable(0, generator.random((_ENTRIES, 1)))
            start_s = time.perf_counter()
            cell.publish(table)
            times_ms.append((time.perf_counter() - start_s) * 1e3)
            if swap % _CHECK_EVERY == 0:
                entries = np.array([row.entry for row in plan.collect()])
                checks += 1
                correct += bool(np.array_equal(entries, round_up(table.keeps.ravel()) * SCALE))
    median_ms = statistics.median(times_ms)
    row = {
        "entries": _ENTRIES,
        "swaps": swaps,
        "median ms": median_ms,
        "worst ms": max(times_ms),
        "jobs": checks,
        "jobs correct": correct,
    }
    bars = [
        Bar.at_most(f"median ms to swap {_ENTRIES:,} entries", median_ms, 20.0),
        Bar.at_least("share of jobs that read every new entry", correct / checks, 1.0),
    ]
    return Result("table", [row], bars)
