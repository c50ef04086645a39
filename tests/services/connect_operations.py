"""What people put behind a gate, over Spark Connect: alone, behind a gate that keeps all, and behind one that keeps half.

By arrival, the journal of a query is written beforehand, as an earlier run would have left it: half of the rows are kept,
whenever they arrived. By batch, a controller says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock import Controller, Decision, KeepAll, Observation, Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.journal import DecisionRecord, Journal
from tests.services import test_operations as classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = classic.ROWS * classic.FILES
KEPT = [int(one) for one in np.arange(ROWS)[uniform(gate_seed("in"), [pa.array(np.arange(ROWS))]) < 0.5]]
_NAMES = itertools.count(1)
Job = Callable[["DataFrame"], "DataFrame"]


class Half(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(0.5)


class Arm(NamedTuple):
    by: Literal["arrival", "batch"]
    keep: float

    def name(self, what: object) -> str:
        return f"{what}_{self.by}_{int(10 * self.keep)}"


ARMS = (Arm("arrival", 1.0), Arm("arrival", 0.5), Arm("batch", 1.0), Arm("batch", 0.5))


def join_streams(df: DataFrame) -> DataFrame:
    right = df.select(F.col("id").alias("other"), F.col("t").alias("u")).withWatermark("u", "1 seconds")
    left = classic.late(df)
    return left.join(right, F.expr("id = other AND u BETWEEN t AND t + INTERVAL 1 SECOND")).select("id", "k", "u")


def widen(df: DataFrame) -> DataFrame:
    return df.select("*", *[(F.col("id") + number).alias(f"c{number}") for number in range(150)])


def nest(df: DataFrame) -> DataFrame:
    variant = F.parse_json(F.format_string('{"id": %d}', "id"))
    nested = df.select("id", F.struct("id", F.create_map(F.lit("k"), "k").alias("m")).alias("s"), variant.alias("x"))
    return nested.select("id", F.col("s.m")["k"].alias("k"), F.try_variant_get("x", "$.id", "bigint").alias("again"))


JOBS: dict[str, tuple[Job, str]] = {
    **classic.OPERATORS,
    "stream-stream join": (join_streams, "append"),
    "transformWithStateInPandas": (classic.transform_with_state, "append"),
    "more than 100 columns": (widen, "append"),
    "nested columns and variants": (nest, "append"),
}
SETTINGS = {
    "transformWithStateInPandas": {"spark.sql.streaming.stateStore.providerClass": classic.ROCKSDB},
    "more than 100 columns": {"spark.sql.codegen.wholeStage": "false"},
    "aggregation": {
        "spark.sql.streaming.stateStore.providerClass": classic.ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
BACKFILL = "a backfill that a controller would shed"
ASYNCHRONOUS = "asynchronous progress tracking"
OUTPUTS = {"toTable": ARMS, "once": ARMS, "several outputs": ARMS, ASYNCHRONOUS: ARMS[:2], BACKFILL: ARMS[::2]}
"""By batch, asynchronous progress tracking is refused; a backfill keeps everything."""
ALL = (*JOBS, *OUTPUTS)
SOME = ("dropDuplicates", "stream-stream join", "applyInPandasWithState", "nested columns and variants", *OUTPUTS)


def compare_operations(spark: SparkSession, root: Path, names: Sequence[str]) -> dict[str, str]:
    """Return for each job what is wrong, ``"fine"`` if nothing is."""
    said = {}
    for name in names:
        settings = SETTINGS.get(name, {})
        for key, value in settings.items():
            spark.conf.set(key, value)
        try:
            said[name] = _compare_job(spark, root, *JOBS[name]) if name in JOBS else _compare_output(spark, root, name)
        except Exception as error:  # the test shows them all
            said[name] = f"{type(error).__name__}: {error}"
        for key in settings:
            spark.conf.unset(key)
    return said


def _read(spark: SparkSession, root: Path) -> DataFrame:
    return spark.readStream.schema(classic.SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(root / "files"))


def _gate(spark: SparkSession, root: Path, name: str, arm: Arm, *, is_backfill: bool = False) -> tuple[Shedder, DataFrame]:
    """Return a shedder whose query of that name keeps a share of all rows, and the rows behind its gate."""
    directory = root / "journals" / name
    if arm == Arm("arrival", 0.5):
        journal = Journal(directory / name)
        journal.append(DecisionRecord({"in": (arm.keep,)}, arm.keep, from_slot=0))
        journal.close()
    controller = Half(60.0) if arm == Arm("batch", 0.5) or is_backfill else KeepAll(60.0)
    shedder = Shedder("60s", controller=controller, journal=directory, **({} if is_backfill else {"backfill": "shed"}))
    return shedder, shedder.gate(_read(spark, root), name="in", identity="id", arrival="t")


def _wrong_counts(root: Path, name: str, keep: float, batches: int = classic.FILES) -> str | None:
    """Say if the ledger does not have just the rows that a gate must have kept."""
    counts = [record.gates["in"] for _, record in sorted(read_journal(root / "journals" / name / name).batches.items())]
    edges = np.linspace(0, ROWS, batches + 1)
    kept = np.arange(ROWS) if keep == 1.0 else np.array(KEPT)
    expected = [(ROWS // batches, int(((kept >= low) & (kept < high)).sum())) for low, high in itertools.pairwise(edges)]
    found = [(int(offered), int(passed)) for offered, passed in counts if offered]
    return None if found == expected else f"the ledger of {name} has {found}, not {expected}"


def _compare_job(spark: SparkSession, root: Path, job: Job, mode: str) -> str:
    def write(df: DataFrame, name: str) -> Any:
        writer = job(df).writeStream.format("memory").queryName(name).outputMode(mode).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(root / "checkpoints" / name))

    number = next(_NAMES)
    source = _read(spark, root)
    alone = {1.0: f"alone{number}", 0.5: f"half{number}"}
    queries = [write(source, alone[1.0]).start(), write(source.where(F.col("id").isin(KEPT)), alone[0.5]).start()]
    shedders = {}
    for arm in ARMS:
        name = arm.name(f"gated{number}")
        shedders[arm], gated = _gate(spark, root, name, arm)
        queries.append(shedders[arm].start(write(gated, name), by=arm.by))
    for query in queries:
        query.awaitTermination(300)
        if (failure := query.exception()) is not None:
            return str(failure).splitlines()[0]
    for arm, shedder in shedders.items():
        shedder.stop()
        name = arm.name(f"gated{number}")
        if wrong := _wrong_counts(root, name, arm.keep):
            return wrong
        rows, expected = (sorted(str(row) for row in spark.table(one).collect()) for one in (name, alone[arm.keep]))
        if rows != expected or not rows:
            return f"{len(rows)} rows by {arm.by} at keep {arm.keep}, {len(expected)} without a gate"
    return "fine"


def _compare_output(spark: SparkSession, root: Path, kind: str) -> str:
    """Rows in a table or in files are those that the gate must have kept, each once."""
    for arm in OUTPUTS[kind]:
        name = arm.name(kind.replace(" ", ""))
        shedder, gated = _gate(spark, root, name, arm, is_backfill=kind == BACKFILL)
        with shedder:
            query = _start(shedder, gated, name, kind, root, arm.by)
            if kind == ASYNCHRONOUS:  # it can't be with availableNow
                query.processAllAvailable()
                query.stop()
            query.awaitTermination(300)
            if (failure := query.exception()) is not None:
                return str(failure).splitlines()[0]
        if wrong := _wrong_counts(root, name, arm.keep, batches=1 if kind == "once" else classic.FILES):
            return wrong
        decided = [decision.gates for decision in read_journal(root / "journals" / name / name).decisions]
        if kind == BACKFILL and any(share < 1.0 for gates in decided for share in gates.get("in", ())):
            return f"{name} decided to shed"
        expected = list(range(ROWS)) if arm.keep == 1.0 else KEPT
        outputs = [f"{name}_one", f"{name}_two"] if kind == "several outputs" else [name]
        for output in outputs:
            read = spark.table(output) if kind in ("toTable", ASYNCHRONOUS) else spark.read.parquet(str(root / "out" / output))
            if sorted(row[0] for row in read.select("id").collect()) != expected:
                return f"{output} has other rows than were kept"
    return "fine"


def _start(shedder: Shedder, gated: DataFrame, name: str, kind: str, root: Path, by: Literal["arrival", "batch"]) -> Any:
    out, checkpoint = str(root / "out"), str(root / "checkpoints" / name)
    writer = gated.writeStream.format("parquet").queryName(name).option("checkpointLocation", checkpoint)
    if kind == "several outputs":

        def write(df: DataFrame, _: int) -> None:
            df.select("id").write.mode("append").parquet(f"{out}/{name}_one")
            df.select("id", "k").write.mode("append").parquet(f"{out}/{name}_two")

        if by == "arrival":
            return shedder.foreach_batch(gated, write, checkpoint=checkpoint, name=name, trigger={"availableNow": True})
        return shedder.start(writer.foreachBatch(write).trigger(availableNow=True), by=by)
    if kind == ASYNCHRONOUS:
        return shedder.start(writer.format("memory").option("asyncProgressTrackingEnabled", "true"), by=by)
    if kind in ("once", BACKFILL):
        trigger: dict[str, Any] = {"once" if kind == "once" else "availableNow": True}
        return shedder.start(writer.option("path", f"{out}/{name}").trigger(**trigger), by=by)
    gated.sparkSession.sql(f"CREATE TABLE {name} ({classic.SCHEMA}) USING parquet")
    return shedder.start(writer.trigger(availableNow=True), by=by, table=name)
