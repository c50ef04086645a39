"""A job over Spark Connect, in a process of its own: a rate source, a gate, a sink of files. It may be killed at any time."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, PenstockError, Priorities, Shedder, WholeKeys, WholeWindows, load_aware
from penstock.errors import JournalError
from tests.services.connect_operations import compare_operations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RATE = 1_000
"""A row per millisecond, so the arrival of a row is that of the first one and its number."""
KEEPS = (1.0, 0.5, 0.25, 0.75)
KEYS = 7
USERS = 97
LATER = 15 * USERS
"""A row on the left goes with the one on the right that has its key and comes so many rows later: mostly in another batch."""


class InTurn(Controller):
    """Takes the keeps in turn, one per batch."""

    def update(self, observation: Observation) -> Decision:
        return Decision(KEEPS[observation.batch_id % len(KEEPS)])


def read_rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", RATE).option("numPartitions", 2).load()


def run(spark: SparkSession, root: Path, batches: int, what: str) -> None:
    """Run until so many batches are in the ledger: files of rows or, with state, a function that writes all totals so far."""
    shedder = Shedder("2s", controller=InTurn(2.0), journal=root / "journal")
    with shedder:
        if what == "run-with-state":
            query = start_totals(shedder, gate_rows(shedder, spark), root)
        else:
            df = join_pairs(shedder, spark) if what == "run-join" else gate_rows(shedder, spark)
            writer = df.writeStream.format("parquet").option("path", str(root / "sink")).queryName("job")
            writer = writer.option("checkpointLocation", str(root / "checkpoint"))
            query = shedder.start(writer, by="arrival" if what == "run" else "batch")
        goal = batches + count_ended(shedder)
        while count_ended(shedder) < goal:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.1)


def count_ended(shedder: Shedder) -> int:
    return len(set(shedder.report().table["batch_id"].to_pylist()))


def gate_rows(shedder: Shedder, spark: SparkSession) -> DataFrame:
    return shedder.gate(read_rate(spark), name="in", arrival="timestamp", identity="value", weight_column="weight")


def start_totals(shedder: Shedder, gated: DataFrame, root: Path) -> Any:
    totals = str(root / "totals")
    offset = F.unix_micros("timestamp") - F.col("value") * (1_000_000 // RATE)  # the arrival of the first row
    sums = {"rows": F.count("*"), "sum": F.sum("value"), "first": F.min(offset), "last": F.max(offset)}
    counted = gated.groupBy((F.col("value") % KEYS).alias("key")).agg(*(what.alias(name) for name, what in sums.items()))
    return shedder.foreach_batch(
        counted,
        lambda df, number: df.write.mode("overwrite").parquet(totals),
        checkpoint=root / "checkpoint",
        name="job",
        output_mode="complete",
    )


def join_pairs(shedder: Shedder, spark: SparkSession) -> DataFrame:
    """Pairs of rows with one key: both gates keep it or drop it."""
    sides = []
    for name in ("left", "right"):
        columns = {"value": F.col("value"), "key": F.col("value") % USERS, "t": F.col("timestamp")}
        side = read_rate(spark).select(*(column.alias(f"{name}_{part}") for part, column in columns.items()))
        side = side.withWatermark(f"{name}_t", "5 seconds")
        sides.append(shedder.gate(side, name=name, arrival=f"{name}_t", unit=WholeKeys(f"{name}_key")))
    pairs = f"left_key = right_key AND right_value = left_value + {LATER}"
    near = "right_t BETWEEN left_t AND left_t + INTERVAL 5 SECONDS"  # so state does not grow
    return sides[0].join(sides[1], F.expr(f"{pairs} AND {near}")).select("left_value")


def list_refusals(spark: SparkSession, root: Path) -> dict[str, str]:
    """Ask for what can't be had and return what is said."""
    rows = spark.readStream.format("rate").load()
    shedder = Shedder("2s", journal=root / "journal")
    gated = shedder.gate(rows, name="in", arrival="timestamp")
    writer = gated.writeStream.format("noop")
    windows = WholeWindows("timestamp", "10s")
    late = gated.writeStream.format("noop").option("checkpointLocation", str(root / "late"))
    late = late.option("asyncProgressTrackingEnabled", "true")
    alone = rows.writeStream.format("noop").start()
    options: dict[str, Any] = {"key": "value", "delay_target": "2s", "columns": "value", "returns": "bigint"}
    aware = load_aware(abs, **options)
    wrong: dict[str, Any] = {
        "no journal": lambda: Shedder("2s").gate(rows, arrival="timestamp"),
        "no arrival": lambda: shedder.gate(rows, name="a"),
        "windows": lambda: shedder.gate(rows, name="b", arrival="timestamp", unit=windows),
        "bounded": lambda: shedder.gate(rows, name="c", arrival="timestamp", bounded=True),
        "shed_to": lambda: shedder.gate(rows, name="d", arrival="timestamp", shed_to=root / "shed"),
        "foreach_batch": lambda: shedder.foreach_batch(gated, "no function"),
        "write": lambda: shedder.write(gated, "parquet", root / "out"),
        "by batch without checkpoint": lambda: shedder.start(writer, by="batch"),
        "by batch far away": lambda: shedder.start(writer.option("checkpointLocation", "s3a://bucket/cp"), by="batch"),
        "by batch with late offsets": lambda: shedder.start(late, by="batch"),
        "neither": lambda: shedder.start(writer, by="hand"),
        "no gate": lambda: shedder.start(rows.writeStream.format("noop")),
        "static": lambda: shedder.gate(spark.range(3), arrival="id"),
        "continuous": lambda: shedder.start(writer.trigger(continuous="1 second")),
        "attach": lambda: shedder.attach(alone),
        "load_aware": lambda: aware(rows),
        "las": lambda: load_aware(abs, policy="las", **options)(rows),
        "time_only": lambda: aware.time_only(rows),
        "spark's metrics": lambda: Shedder("2s", journal=root / "j2", metrics="spark").gate(rows, arrival="timestamp"),
        "object store": lambda: Shedder("2s", journal="s3a://bucket/journal").gate(rows, arrival="timestamp"),
    }
    said = {}
    for name, call in wrong.items():
        try:
            call()
            said[name] = "nothing"
        except (PenstockError, JournalError) as error:
            said[name] = str(error)
    alone.stop()
    shedder.stop()
    return said


def count_all(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Run a job of files once with classes, at keep 1, and return what came out and what was counted."""
    source = root / "source"
    spark.range(10_000).selectExpr(
        "id", "id % 3 AS kind", "CASE WHEN id % 100 = 0 THEN NULL ELSE timestamp_seconds(1e9 + id) END AS arrival"
    ).write.parquet(str(source))
    shedder = Shedder("2s", controller="keep-all", journal=root / "journal-all")
    rows = spark.readStream.schema("id bigint, kind bigint, arrival timestamp").parquet(str(source))
    gated = shedder.gate(rows, name="in", arrival="arrival", identity="id", priorities=Priorities("kind", {0: 2, 1: 1}))
    writer = gated.groupBy("kind").count().writeStream.format("memory").outputMode("complete").queryName("counted")
    with shedder:
        query = shedder.start(writer.option("checkpointLocation", str(root / "checkpoint-all")).trigger(availableNow=True))
        query.awaitTermination(120)
        deadline = time.monotonic() + 30.0
        while not len(shedder.report().table) and time.monotonic() < deadline:
            time.sleep(0.1)
        counted = {int(row["kind"]): int(row["count"]) for row in spark.sql("SELECT * FROM counted").collect()}
    return {"counted": counted, "report": str(shedder.report())}


def explain_batches(spark: SparkSession, root: Path) -> dict[str, bool]:
    """Return for a query without and one with a shuffle whether adaptive execution planned its batches."""
    shedder = Shedder("2s", controller="keep-all", journal=root / "journal-plans")
    is_adaptive = {}
    with shedder:
        for name in ("plain", "shuffled"):
            rows = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
            gated = shedder.gate(rows, name=name, arrival="timestamp", identity="value")
            gated = gated.repartition(3, "value") if name == "shuffled" else gated
            writer = gated.writeStream.format("noop").option("checkpointLocation", str(root / f"checkpoint-{name}"))
            query = shedder.start(writer.queryName(name))
            deadline = time.monotonic() + 60.0
            while not query.recentProgress and time.monotonic() < deadline:
                time.sleep(0.1)
            plan = io.StringIO()
            with contextlib.redirect_stdout(plan):
                query.explain()
            is_adaptive[name] = "AdaptiveSparkPlan" in plan.getvalue()
    return is_adaptive


def write_by_function(spark: SparkSession, root: Path) -> dict[str, Any]:
    """Write rows by a function, which runs at the server, and return what came out and what was counted."""
    output = str(root / "by-function")
    shedder = Shedder("2s", controller="keep-all", journal=root / "journal-function")
    rows = spark.readStream.schema("id bigint, kind bigint, arrival timestamp").option("maxFilesPerTrigger", 1)
    gated = shedder.gate(rows.parquet(str(root / "source")), name="in", arrival="arrival", identity="id")
    with shedder:
        shedder.foreach_batch(
            gated,
            lambda df, number: df.selectExpr("id", f"{number} AS batch").write.mode("append").parquet(output),
            checkpoint=root / "checkpoint-function",
            trigger={"availableNow": True},
            name="by function",
        ).awaitTermination(120)
        deadline = time.monotonic() + 30.0
        while len(shedder.report().table) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        kept = shedder.report().table["kept"].to_pylist()
    written = spark.read.parquet(output).groupBy("batch").count().orderBy("batch").collect()
    return {"counted": kept, "written": [row["count"] for row in written]}


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    spark = SparkSession.builder.remote(os.environ.get("SPARK_REMOTE", "local[2]")).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    if what in ("run", "run-with-state", "run-by-batch", "run-join"):
        run(spark, root, int(sys.argv[3]), what)
    elif what == "operations":
        (root / "answer.json").write_text(json.dumps(compare_operations(spark, root, sys.argv[3:])))
    else:
        answer = {
            "refusals": list_refusals(spark, root),
            "all": count_all(spark, root),
            "function": write_by_function(spark, root),
            "adaptive": explain_batches(spark, root),
        }
        (root / "answer.json").write_text(json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main()
