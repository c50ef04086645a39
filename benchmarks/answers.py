"""How far off counts, sums and means are after shedding, by unit and loss.

Windowed counts, sums and means by group, under gates of rows, keys and windows, on two populations. *Packets*: arrivals
of the b-model calibrated to BC-pAug89 (318 per second, b = 0.565), sizes from 64 to 1,518 bytes, six hosts, 800 flows
by Zipf's law. *Mentions*: calibrated to the Higgs activity (b = 0.674), 20,000 accounts by Zipf's law with exponent
0.6, six languages. Two minutes of each. Answers are by host and window of ten seconds. There is another gate of whole
windows, *short windows* of a quarter of a second; its answers are the totals of each host over both minutes, estimated
from the windows that were kept. At each loss, 240 replications drop different rows, keys or windows, with keeps that
vary by a third from second to second (a window of ten seconds has one keep). One Spark job runs all replications of a
loss.

Coverage and bias are over answers of which at least 50 rows are kept on average. We select them by the expected number
of rows and not by the actual one, which would select the lucky ones. Keys and short windows differ in size, and an
answer that depends on a few of them is off by a whole unit if that one is dropped, which nobody can tell from the rest.
So we show their coverage again, for answers from at least 50 kept *effective* units: the square of the sum of their
sizes over the sum of the squares, times the keep.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.simulation.keys import zipf_keys
from penstock.simulation.plotting import by_panel, lines
from penstock.simulation.traffic import b_model
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["plot", "run"]

_LOSSES = (0.1, 0.3, 0.6, 0.9)
_UNITS = ("row", "key", "window", "short window")
_SHORT_S = 0.25
_FATES = {"row": "id", "key": "key", "window": "window", "short window": "short"}
_MEASURES = ("count", "sum", "avg")
_SECONDS, _WINDOW_S = 120.0, 10
_ENOUGH = 50


def run(*, quick: bool, say: Say) -> Result:
    """Run all losses and units on both populations."""
    replications = 40 if quick else 240
    rows: list[Row] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    with fresh_session("answers", 2) as (spark, _):
        for name in ("packets", "mentions"):
            population = _create_population(spark, name).cache()
            for unit in _UNITS:
                for loss in _LOSSES:
                    say(f"{name}, {unit}s, {loss:.0%} lost")
                    rows += _measure(population, name, unit, loss, replications)
    for row in rows:
        key = f"{row['population']}, {row['unit']} gate|median error of a {row['answer']}, %"
        xs, ys = curves.setdefault(key, ([], []))
        xs.append(100.0 * float(row["loss"] or 0.0))
        ys.append(float(row["median error, %"] or 0.0))
    return Result("answers", rows, _bars(rows, replications), _claims(rows), curves)


def _create_population(spark: SparkSession, name: str) -> DataFrame:
    bias, keys, exponent = (0.565, 800, 1.0) if name == "packets" else (0.674, 20_000, 0.6)
    times = b_model(318.0, _SECONDS, bias, seed=7)
    numbers = np.arange(times.size)
    key = zipf_keys(numbers, keys, exponent, 11)
    rng = np.random.default_rng(5)
    sizes = np.where(rng.random(times.size) < 0.4, rng.integers(64, 128, times.size), rng.integers(500, 1519, times.size))
    table = pa.table(
        {
            "id": numbers,
            "second": times.astype(np.int64),
            "window": (times // _WINDOW_S).astype(np.int64),
            "short": (times // _SHORT_S).astype(np.int64),
            "host": key % 6,
            "key": key,
            "x": sizes.astype(np.float64),
        }
    )
    return spark.createDataFrame(table)


def _measure(population: DataFrame, name: str, unit: str, loss: float, replications: int) -> list[Row]:
    """Estimate every answer in every replication and compare it with the truth."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - PySpark's own convention

    from penstock import functions as pf  # noqa: PLC0415 - needs Spark

    spark = population.sparkSession
    groups = ["host"] if unit == "short window" else ["window", "host"]
    swing = F.lit(1.0) if unit == "window" else 1.0 + F.sin(F.col("second") * 0.7) / 3.0
    known = population.withColumn("p", F.least(F.lit(1.0), (1.0 - loss) * swing))
    u = F.shiftrightunsigned(F.xxhash64(F.lit("answers"), "rep", _FATES[unit]), 11) / 2.0**53
    copies = spark.range(replications).withColumnRenamed("id", "rep").crossJoin(known)
    kept = copies.where(u < F.col("p")).withColumn("w", F.lit(1.0) if unit == "window" else 1.0 / F.col("p"))
    cluster = (_FATES[unit],) if unit in ("key", "short window") else ()
    estimates = kept.groupBy("rep", *groups).agg(
        pf.estimated_count(weight="w", cluster=cluster).alias("count"),
        pf.estimated_sum("x", weight="w", cluster=cluster).alias("sum"),
        pf.estimated_avg("x", weight="w", cluster=cluster).alias("avg"),
    )
    truth = known.groupBy(*groups).agg(
        F.count("*").cast("double").alias("true_count"),
        F.sum("x").alias("true_sum"),
        F.avg("x").alias("true_avg"),
        F.sum("p").alias("rows"),
    )
    sizes = known.groupBy(*groups, _FATES[unit]).agg(F.sum("p").alias("m"), F.count("*").alias("n")).groupBy(*groups)
    clusters = sizes.agg((F.pow(F.sum("m"), 3) / F.sum(F.col("m") * F.col("m")) / F.sum("n")).alias("units"))
    joined = estimates.join(truth.join(clusters, groups), groups).cache()
    answers = population.select(*groups).distinct().count() * replications
    rows: list[Row] = [
        {"population": name, "unit": unit, "loss": loss, "answer": measure, **_judge(joined, unit, measure, answers)}
        for measure in _MEASURES
    ]
    joined.unpersist()
    return rows


def _judge(joined: DataFrame, unit: str, measure: str, answers: int) -> Row:
    """Judge one measure: errors, coverage and bias over all answers of all replications."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    estimate, true = F.col(f"{measure}.estimate"), F.col(f"true_{measure}")
    enough, effective = F.col("rows") >= _ENOUGH, F.col("units") >= _ENOUGH
    inside = (true >= F.col(f"{measure}.lower") - 1e-9 * true) & (true <= F.col(f"{measure}.upper") + 1e-9 * true)
    off = F.abs(estimate - true) / true
    spread = F.when(enough, (estimate - true) / true)
    row = joined.agg(
        F.expr("count(*)").alias("delivered"),
        F.percentile(off, 0.5).alias("median"),
        F.percentile(off, 0.95).alias("worst"),
        F.avg(F.when(enough, inside.cast("double"))).alias("coverage"),
        F.sum(enough.cast("long")).alias("enough"),
        F.avg(F.when(effective, inside.cast("double"))).alias("effective_coverage"),
        F.sum(effective.cast("long")).alias("effective"),
    ).collect()[0]
    # Answers of one replication are correlated, so the bias is judged by the means of the replications.
    means = (
        joined.groupBy("rep").agg(F.avg(spread).alias("bias")).agg(F.avg("bias"), F.stddev("bias"), F.count("bias")).collect()[0]
    )
    return {
        "delivered": row["delivered"] / answers,
        "median error, %": 100.0 * row["median"],
        "95th percentile, %": 100.0 * row["worst"],
        "coverage of 95%": None if unit == "window" else row["coverage"],
        "answers judged": float(row["enough"] or 0),
        "coverage, effective units": None if unit == "window" else row["effective_coverage"],
        "effective answers judged": float(row["effective"] or 0),
        "bias, %": None if means[0] is None else 100.0 * means[0],
        "bias, standard errors": _in_standard_errors(means),
    }


def _in_standard_errors(means: Any) -> float | None:
    mean, spread, count = means
    return None if mean is None or not spread else float(abs(mean) / (spread / count**0.5))


def _bars(rows: list[Row], replications: int) -> list[Bar]:
    bars = []
    for unit, coverage, number, named in (
        ("row", "coverage of 95%", "answers judged", "50 kept rows"),
        ("key", "coverage of 95%", "answers judged", "50 kept rows"),
        ("key", "coverage, effective units", "effective answers judged", "50 kept effective keys"),
        ("short window", "coverage, effective units", "effective answers judged", "50 kept effective windows"),
    ):
        judged = [row for row in rows if row["unit"] == unit and float(row[number] or 0) >= replications]
        coverages = [float(row[coverage] or 0.0) for row in judged]
        if coverages:
            name = f"coverage of the 95% bounds, gates of {unit}s, at least {named}"
            bars += [Bar.at_least(f"lowest {name}", min(coverages), 0.93), Bar.at_most(f"highest {name}", max(coverages), 0.97)]
    worst = max(float(row["bias, standard errors"] or 0.0) for row in rows if row["unit"] != "window" and row["answer"] != "avg")
    bars.append(Bar.at_most("largest bias of counts and sums, in standard errors of the mean", worst, 3.0))
    return bars


def _claims(rows: list[Row]) -> list[Claim]:
    largest = max(float(row["95th percentile, %"] or 0.0) for row in rows if row["unit"] == "window")
    return [
        Claim(
            "windows that are delivered are exact",
            "Staying FIT (Tatbul et al.), section 2: subset results",
            f"largest error {largest:.2g}%",
            largest < 1e-9,
        )
    ]


def plot(result: Result, path: Path) -> None:
    """Draw the median error over the loss, for each answer."""
    lines(by_panel(result.lines), path, title="Answers after shedding", x="loss, %")
