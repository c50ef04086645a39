"""What whole windows, whole keys and estimates cost, and what a window gate saves.

On one core, all arms in turn, the best of several rounds, as in ``gate``. The gates keep one half. The aggregations
count and sum by one of 100 groups, on many rows because Spark takes longer to plan the larger expression, whatever it
runs on. The work saved is that of sliding windows of ten seconds by one, which turn one row into ten: the time at keep
0.25 against keep 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.support.fixed_gate import apply_gate
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from benchmarks.support.timing import best_of, pin_to_one_core
from penstock.drop.units import WholeKeys, WholeWindows
from penstock.simulation.plotting import bars
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plot", "run"]

_ROWS, _QUICK_ROWS = 30_000_000, 3_000_000
_SLOW_SHARE = 30
_FIRST_US = 1_700_000_000_000_000


def run(*, quick: bool, say: Say) -> Result:
    """Time every arm."""
    rows = _QUICK_ROWS if quick else _ROWS
    rounds = 4 if quick else 7
    with pin_to_one_core(), fresh_session("answers-cost", 1) as (spark, _):
        base = _base(spark, rows)
        say("gates")
        cost = best_of({name: _scan(df) for name, df in _gates(base).items()}, rounds=rounds, warm_up=3)
        say("aggregations")
        cost |= best_of({name: _scan(df) for name, df in _aggregations(base).items()}, rounds=rounds, warm_up=3)
        say("aggregations of keys, and sliding windows")
        fewer = _base(spark, rows // _SLOW_SHARE)
        arms = {"estimates of keys": _key_aggregations(fewer), **_sliding(fewer)}
        work = best_of({name: _scan(df) for name, df in arms.items()}, rounds=rounds, warm_up=3)
    results: list[Row] = [{"arm": name, "ns per row": total_s / rows * 1e9} for name, total_s in cost.items()]
    results += [{"arm": name, "ns per row": total_s / (rows // _SLOW_SHARE) * 1e9} for name, total_s in work.items()]
    row_gate = cost["gate of rows"]
    limits = [
        Bar.at_most("gate of windows / gate of rows, whole plan", cost["gate of windows"] / row_gate, 1.5),
        Bar.at_most("gate of sliding windows, 10 by 1 / gate of rows", cost["gate of sliding windows, 10 by 1"] / row_gate, 1.5),
        Bar.at_most("gate of keys / gate of rows", cost["gate of keys"] / row_gate, 1.5),
        Bar.at_most(
            "estimated count and sum / count and sum",
            cost["estimated count and sum"] / cost["count and sum"],
            1.3,
        ),
        Bar.at_most(
            "sliding windows, keep 0.25 / keep 1", work["sliding windows, keep 0.25"] / work["sliding windows, keep 1"], 0.45
        ),
    ]
    return Result("answers-cost", results, limits)


def _base(spark: SparkSession, rows: int) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    return spark.range(0, rows, 1, 1).select(
        "id", F.timestamp_micros(F.col("id") * (600_000_000 // rows) + _FIRST_US).alias("t"), (F.col("id") % 1000).alias("user")
    )


def _gate(df: DataFrame, name: str, keep: float, **options: Any) -> DataFrame:
    return apply_gate(df, name, keep, from_us=_FIRST_US, **options)


def _gates(base: DataFrame) -> dict[str, DataFrame]:
    return {
        "plain scan": base,
        "gate of rows": _gate(base, "rows", 0.5),
        "gate of keys": _gate(base, "keys", 0.5, unit=WholeKeys("user")),
        "gate of windows": _gate(base, "windows", 0.5, unit=WholeWindows("t", "1s")),
        "gate of sliding windows, 10 by 1": _gate(base, "sliding", 0.5, unit=WholeWindows("t", "10s", "1s")),
        "gate of windows by group": _gate(base, "groups", 0.5, unit=WholeWindows("t", "1s", by="user")),
    }


def _weighted(base: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return base.withColumn("w", F.when(F.col("id") % 3 == 0, 2.0).otherwise(4.0)).withColumn("g", F.col("id") % 100)


def _aggregations(base: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from penstock import functions as pf  # noqa: PLC0415 - needs Spark

    groups = _weighted(base).groupBy("g")
    return {
        "count and sum": groups.agg(F.count("w"), F.sum("user")),
        "estimated count and sum": groups.agg(pf.estimated_count(weight="w"), pf.estimated_sum("user", weight="w")),
    }


def _key_aggregations(base: DataFrame) -> DataFrame:
    from penstock import functions as pf  # noqa: PLC0415 - needs Spark

    return (
        _weighted(base)
        .groupBy("g")
        .agg(pf.estimated_count(weight="w", cluster="user"), pf.estimated_sum("user", weight="w", cluster="user"))
    )


def _sliding(base: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    def count_by_window(df: DataFrame) -> DataFrame:
        return df.groupBy(F.window("t", "10 seconds", "1 second"), (F.col("user") % 50).alias("g")).agg(F.count("*"), F.sum("id"))

    by_group = base.withColumn("g", F.col("user") % 50)
    unit = WholeWindows("t", "10s", "1s", by="g")
    return {
        "sliding windows, keep 1": count_by_window(_gate(base, "whole", 1.0, unit=WholeWindows("t", "10s", "1s"))),
        "sliding windows, keep 0.25": count_by_window(_gate(base, "quarter", 0.25, unit=WholeWindows("t", "10s", "1s"))),
        "sliding windows, 1 row in 4": count_by_window(_gate(base, "fourth", 0.25)),
        "sliding windows by group, keep 0.25": count_by_window(_gate(by_group, "groups4", 0.25, unit=unit)),
    }


def _scan(df: DataFrame) -> Callable[[], None]:
    return lambda: df.write.format("noop").mode("overwrite").save()


def plot(result: Result, path: Path) -> None:
    """Draw the time per row of each arm."""
    arms = [(str(row["arm"]), float(row["ns per row"] or 0.0)) for row in result.rows]
    bars(arms, path, title="Time per row on one core", label="nanoseconds (log)", log=True)
