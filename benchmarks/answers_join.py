"""What is left of a join after shedding on both sides, by rows and by keys.

Views and clicks of 5,000 users by Zipf's law with exponent 0.6, 100,000 and 50,000 rows; a view and a click of the same
user within half a minute form a pair. Both sides are shed at the same keep. A pair survives if both rows do. If rows
are kept independently, its probability is the keep squared; if whole keys are kept, it is the keep itself. Both hold on
average: users differ, and one with many pairs is either there or not, so both are means over several draws. *Whole
users* are those with every pair, as a share of those with any.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.support.fixed_gate import apply_gate
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.drop.units import WholeKeys
from penstock.simulation.keys import zipf_keys
from penstock.simulation.plotting import by_panel, lines
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plot", "run"]

_KEEPS = (1.0, 0.75, 0.5, 0.25, 0.1)
_USERS = 5_000
_SECONDS = 600.0
_NEAR_S = 30.0


def run(*, quick: bool, say: Say) -> Result:
    """Join at each keep, by rows and by keys."""
    size = 20_000 if quick else 100_000
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    with fresh_session("answers-join", 2) as (spark, _):
        views, clicks = _create_side(spark, "view", size, 1).cache(), _create_side(spark, "click", size // 2, 2).cache()
        all_pairs = _pairs(views, clicks).groupBy("user").count().withColumnRenamed("count", "all").cache()
        full = all_pairs.agg({"all": "sum"}).collect()[0][0]
        for unit in ("row", "key"):
            for keep in _KEEPS:
                say(f"{unit}s, keep {keep:g}")
                draws = [_measure((views, clicks), all_pairs, unit, keep, draw) for draw in range(3 if quick else 10)]
                means = {name: float(np.mean([draw[name] for draw in draws])) for name in draws[0]}
                spread = float(np.std([draw["pairs"] / full for draw in draws]))
                rows.append({"unit": unit, "keep": keep, "pairs": means["pairs"] / full, "spread": spread, **_shares(means)})
    for row in rows:
        for what in ("pairs", "whole users"):
            xs, ys = curves.setdefault(f"{row['unit']} gates|{what}, share", ([], []))
            xs.append(float(row["keep"] or 0.0))
            ys.append(float(row[what] or 0.0))
    of_keys = [abs(float(row["pairs"] or 0) - float(row["keep"] or 0)) for row in rows if row["unit"] == "key"]
    of_rows = [abs(float(row["pairs"] or 0) - float(row["keep"] or 0) ** 2) for row in rows if row["unit"] == "row"]
    bars = [
        Bar.at_least("key gates: share of the users in the result who are whole", min(_column(rows, "key", "whole users")), 1.0)
    ]
    claims = [
        Claim("pairs are linear in the keep, by keys", "keep", f"within {max(of_keys):.3f}", max(of_keys) < 0.05),
        Claim("and quadratic by rows", "keep squared", f"within {max(of_rows):.3f}", max(of_rows) < 0.05),
    ]
    return Result("answers-join", rows, bars, claims, curves)


def _column(rows: list[Row], unit: str, name: str) -> list[float]:
    return [float(row[name] or 0.0) for row in rows if row["unit"] == unit]


def _create_side(spark: SparkSession, name: str, rows: int, seed: int) -> DataFrame:
    rng = np.random.default_rng(seed)
    users = zipf_keys(np.arange(rows) * 3 + seed, _USERS, 0.6, 11)
    table = pa.table(
        {"id": np.arange(rows) * 2 + seed % 2, "user": users, f"{name}_s": np.sort(rng.uniform(0.0, _SECONDS, rows))}
    )
    return spark.createDataFrame(table)


def _pairs(views: DataFrame, clicks: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    near = F.abs(F.col("view_s") - F.col("click_s")) <= _NEAR_S
    return views.drop("id").join(clicks.drop("id"), "user").where(near)


def _measure(streams: tuple[DataFrame, DataFrame], all_pairs: DataFrame, unit: str, keep: float, draw: int) -> dict[str, float]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    whole = WholeKeys("user", family=str(draw)) if unit == "key" else None
    sides = [apply_gate(df, f"{name} {draw}", keep, unit=whole) for name, df in zip(("views", "clicks"), streams, strict=True)]
    start_s = time.perf_counter()
    pairs = _pairs(sides[0], sides[1]).groupBy("user").count()
    row = (
        all_pairs.join(pairs, "user")
        .agg(F.sum("count").alias("pairs"), F.count("*").alias("users"), F.sum((F.col("count") == F.col("all")).cast("long")))
        .collect()[0]
    )
    return {"pairs": row[0], "users": row[1], "whole": row[2], "join_s": time.perf_counter() - start_s}


def _shares(row: dict[str, float]) -> dict[str, float]:
    return {"users": row["users"], "whole users": row["whole"] / row["users"], "join, s": row["join_s"]}


def plot(result: Result, path: Path) -> None:
    """Draw the remaining pairs and whole users over the keep."""
    lines(by_panel(result.lines), path, title="A join after shedding on both sides", x="keep")
