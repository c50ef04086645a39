"""Estimates over what was kept: unbiased, with bounds that hold as often as they say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder
from penstock import functions as pf
from penstock.errors import PenstockError

from .conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from .test_shedder import Ticks

pytestmark = pytest.mark.spark

REPLICATIONS = 200
ROWS = 2_000


def population(session: SparkSession) -> DataFrame:
    """The same rows in every replication, with keeps that change from row to row, as they do from batch to batch."""
    rows = session.range(ROWS).select(
        "id",
        (F.col("id") % 4).alias("g"),
        (F.col("id") % 150).alias("key"),
        (F.abs(F.xxhash64(F.col("id"), F.lit("x"))) % 1000 / 10.0).alias("x"),
        F.when(F.col("id") % 3 == 0, 0.2).when(F.col("id") % 3 == 1, 0.5).otherwise(0.9).alias("p"),
    )
    return session.range(REPLICATIONS).withColumnRenamed("id", "rep").crossJoin(rows)


def kept(df: DataFrame, unit: str, keep: str = "p") -> DataFrame:
    u = (F.shiftrightunsigned(F.xxhash64(F.lit("u"), "rep", unit), 11)) / 2.0**53
    return df.where(u < F.col(keep)).withColumn("w", 1.0 / F.col(keep))


def checked(found: DataFrame, truth: DataFrame, name: str) -> None:
    joined = found.join(truth, "g").withColumn("off", F.col(f"{name}.estimate") - F.col(f"true_{name}"))
    inside = (F.col(f"true_{name}") >= F.col(f"{name}.lower")) & (F.col(f"true_{name}") <= F.col(f"{name}.upper"))
    for row in (
        joined.groupBy("g")
        .agg(
            F.avg("off").alias("bias"),
            F.stddev("off").alias("sd"),
            F.avg(f"{name}.error").alias("error"),
            F.avg(inside.cast("int")).alias("in"),
        )
        .collect()
    ):
        assert abs(row["bias"]) < 3 * row["sd"] / REPLICATIONS**0.5, (name, row)
        assert row["error"] == pytest.approx(row["sd"], rel=0.15), (name, row)
        assert 0.91 <= row["in"] <= 0.985, (name, row)


def test_estimates_of_rows(session: SparkSession) -> None:
    everything = population(session)
    found = (
        kept(everything, "id")
        .groupBy("rep", "g")
        .agg(
            pf.estimated_count(weight="w").alias("n"),
            pf.estimated_sum("x", weight="w").alias("s"),
            pf.estimated_avg("x", weight="w").alias("m"),
        )
        .cache()
    )
    once = everything.where("rep = 0").groupBy("g")
    truth = once.agg(F.count("*").alias("true_n"), F.sum("x").alias("true_s"), F.avg("x").alias("true_m")).cache()
    for name in ("n", "s", "m"):
        checked(found, truth, name)


@pytest.mark.apart
def test_estimates_of_whole_keys(session: SparkSession) -> None:
    everything = population(session).withColumn("q", F.when(F.col("key") % 2 == 0, 0.4).otherwise(0.7))
    found = (
        kept(everything, "key", "q")
        .groupBy("rep", "g")
        .agg(
            pf.estimated_count(weight="w", cluster="key").alias("n"),
            pf.estimated_sum("x", weight="w", cluster="key").alias("s"),
            pf.estimated_avg("x", weight="w", cluster="key").alias("m"),
        )
        .cache()
    )
    once = everything.where("rep = 0").groupBy("g")
    truth = once.agg(F.count("*").alias("true_n"), F.sum("x").alias("true_s"), F.avg("x").alias("true_m")).cache()
    for name in ("n", "s", "m"):
        checked(found, truth, name)


def test_estimates_of_whole_keys_with_a_keep_that_changes_while_they_last(session: SparkSession) -> None:
    everything = population(session)  # a key's rows have keeps of 0.2, 0.5 and 0.9
    found = (
        kept(everything.withColumn("key", F.expr("id div 13")), "key")
        .groupBy("rep", "g")
        .agg(
            pf.estimated_count(weight="w", cluster="key").alias("n"), pf.estimated_sum("x", weight="w", cluster="key").alias("s")
        )
        .cache()
    )
    truth = everything.where("rep = 0").groupBy("g").agg(F.count("*").alias("true_n"), F.sum("x").alias("true_s")).cache()
    for name in ("n", "s"):
        checked(found, truth, name)


def test_nothing_shed_is_exact(session: SparkSession) -> None:
    df = session.range(100).withColumn("w", F.lit(1.0)).withColumn("x", F.when(F.col("id") > 9, F.col("id")))
    (row,) = df.agg(
        pf.estimated_count(weight="w").alias("n"),
        pf.estimated_sum("x", weight="w").alias("s"),
        pf.estimated_avg("x", weight="w").alias("m"),
    ).collect()
    (plain,) = df.agg(F.count("*"), F.sum("x"), F.avg("x")).collect()
    for found, true in zip(row, plain, strict=True):
        assert (found["estimate"], found["error"], found["lower"], found["upper"]) == (
            pytest.approx(true),
            0,
            pytest.approx(true),
            pytest.approx(true),
        )


def test_rows_without_a_weight_stand_for_themselves(session: SparkSession) -> None:
    df = session.createDataFrame([(1.0, 2.0), (3.0, None)], "x double, w double")
    (row,) = df.agg(pf.estimated_count(weight="w").alias("n"), pf.estimated_sum("x", weight=F.col("w")).alias("s")).collect()
    assert (row["n"]["estimate"], row["s"]["estimate"]) == (3.0, 5.0)
    (none,) = df.where("x < 0").agg(pf.estimated_avg("x", weight="w").alias("m")).collect()
    assert none["m"] is None


def test_nothing_is_counted_as_in_sql(session: SparkSession) -> None:
    df = session.createDataFrame([(None, 2.0), (None, 4.0)], "x double, w double")
    (row,) = df.agg(
        pf.estimated_sum("x", weight="w").alias("s"), pf.estimated_sum("x", weight="w", cluster="x").alias("c")
    ).collect()
    assert (row["s"], row["c"]) == (None, None)
    (empty,) = (
        df.where("w < 0")
        .agg(pf.estimated_count(weight="w").alias("n"), pf.estimated_count(weight="w", cluster="x").alias("c"))
        .collect()
    )
    assert [tuple(value) for value in empty] == [(0.0, 0.0, 0.0, 0.0)] * 2


def test_the_error_of_a_mean_far_from_zero_is_never_too_small(session: SparkSession) -> None:
    near = session.range(1000).select(F.lit(2.0).alias("w"), (F.xxhash64("id") % 1000 / 500.0).alias("x"))
    (true,) = near.agg(pf.estimated_avg("x", weight="w").alias("m")).collect()
    for far in (1e6, 1e8, 1.7e9, 1.7e12):
        moved = near.withColumn("x", F.col("x") + far)
        (row,) = moved.agg(
            pf.estimated_avg("x", weight="w").alias("m"), pf.estimated_avg("x", weight="w", center=far).alias("c")
        ).collect()
        assert row["m"]["error"] > 0.95 * true["m"]["error"], far
        assert row["c"]["error"] == pytest.approx(true["m"]["error"], rel=0.01)
        assert row["c"]["estimate"] == pytest.approx(true["m"]["estimate"] + far)


def test_a_second_aggregation_adds_up(session: SparkSession) -> None:
    everything = kept(population(session).where("rep < 20"), "id")
    first = everything.groupBy("rep", "g").agg(pf.estimated_count(weight="w").alias("n"))
    second = first.groupBy("rep").agg(pf.estimated_total("n").alias("n"))
    direct = everything.groupBy("rep").agg(pf.estimated_count(weight="w").alias("d"))
    for row in second.join(direct, "rep").collect():
        assert row["n"]["estimate"] == pytest.approx(row["d"]["estimate"])
        assert row["n"]["error"] == pytest.approx(row["d"]["error"])
    both = everything.unionByName(everything.withColumn("id", -F.col("id")))
    assert both.agg(pf.estimated_count(weight="w").alias("n")).collect()[0]["n"]["estimate"] == pytest.approx(
        2 * everything.agg(F.sum("w")).collect()[0][0]
    )


def test_in_a_stream_with_changing_keeps(ticks: Ticks, tmp_path: Path) -> None:
    keeps = (0.3, 0.8, 0.5)

    class Turns(Controller):
        def update(self, observation: Observation) -> Decision:
            return Decision(keep=keeps[(observation.batch_id + 1) % 3])

    found: dict[Any, Any] = {}

    def take(df: DataFrame, _: int) -> None:
        found.update({row["g"]: row for row in df.collect()})

    with Shedder("2s", controller=Turns(2.0)) as shedder:
        gated = shedder.gate(ticks(rows=2_000), name="in", identity="value", weight_column="w")
        counts = gated.groupBy((F.col("value") % 4).alias("g")).agg(
            pf.estimated_count(weight="w"), pf.estimated_sum("value", weight="w")
        )
        query = shedder.foreach_batch(counts, take, checkpoint=tmp_path, output_mode="update")
        wait_until(lambda: shedder.report().table.num_rows > 7, query)
    offered = sum(row["offered"] for row in shedder.report().table.to_pylist())
    for row in found.values():
        assert abs(row["count"]["estimate"] - offered / 4) < 4.5 * row["count"]["error"]
        assert row["count"]["lower"] < row["count"]["estimate"] < row["count"]["upper"]
        true = offered / 4 * (offered - 4 + 2 * row["g"]) / 2
        assert abs(row["sum(value)"]["estimate"] - true) < 4.5 * row["sum(value)"]["error"]
    text = str(shedder.report())
    assert "Kept by class" in text


def test_bad_arguments_are_refused(session: SparkSession) -> None:
    with pytest.raises(PenstockError, match=r"confidence must lie in \(0, 1\), got 95"):
        pf.estimated_count(weight="w", confidence=95)
    with pytest.raises(PenstockError, match="a column must be a name or a Column, got 3"):
        pf.estimated_sum(3, weight="w")  # type: ignore[arg-type]
