"""What people put behind a gate: at keep 1 the job is as without shedding, below it as over the rows that were kept.

Each job reads the same files, a batch for each. It runs alone, behind a gate that keeps everything, behind a gate whose keep
changes, and alone again over just those rows that the gate kept.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Controller, Decision, KeepAll, Observation, PenstockError, Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.journal import DecisionRecord, Journal
from penstock.spark.versions import minor_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, FILES, KEYS = 400, 2, 97
START_US = 1_700_000_000_000_000
KEEPS = (0.8, 0.3, 0.6)
SCHEMA = "id bigint, t timestamp, k int, v double"
Job = Callable[["DataFrame"], "DataFrame"]
_NAMES = itertools.count(1)


class Cycle(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=KEEPS[(observation.batch_id + 1) % 3])


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session without connectors; the one that other modules made, if there is one."""
    from pyspark.sql import SparkSession

    from penstock.spark.session import local_session

    before = SparkSession.getActiveSession()
    session = local_session("operations", cores=2, scratch=tmp_path_factory.mktemp("spark"))
    yield session
    if before is None:
        session.stop()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    for number in range(FILES):
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        columns = {
            "id": pa.array(ids),
            "t": pa.array(START_US + ids * 10_000).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array((ids * 7919 % KEYS).astype(np.int32)),
            "v": pa.array(ids / 8.0),
        }
        path = directory / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        # The source takes the oldest file first.
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


@pytest.fixture
def conf(spark: SparkSession) -> Iterator[Callable[..., None]]:
    """Settings of the session, for one test."""
    before: dict[str, str | None] = {}

    def put(**settings: str) -> None:
        for name, value in settings.items():
            key = name.replace("__", ".")
            before.setdefault(key, spark.conf.get(key, None))
            spark.conf.set(key, value)

    yield put
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)


def read(spark: SparkSession, files: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(files))


def run_alone(job: Job, source: DataFrame, tmp_path: Path, mode: str) -> list[str]:
    """Return what Spark's own table has at the end."""
    name = f"alone{next(_NAMES)}"
    writer = job(source).writeStream.format("memory").queryName(name).outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
    return sorted(str(row) for row in source.sparkSession.table(name).collect())


def run_gated(
    job: Job, source: DataFrame, tmp_path: Path, mode: str, controller: Controller, **gate: Any
) -> tuple[list[str], dict[int, tuple[int, int]], list[int]]:
    """Return the same behind a gate, the counts of each batch, and the rows that it must keep."""
    name = f"gated{next(_NAMES)}"
    with Shedder("60s", controller=controller, backfill="shed") as shedder:
        gated = shedder.gate(source, name="in", **({"identity": "id"} | gate))
        writer = job(gated).writeStream.format("memory").queryName(name).outputMode(mode).trigger(availableNow=True)
        query = shedder.start(writer.option("checkpointLocation", str(tmp_path / name)), by="batch")
        query.awaitTermination()
    state = read_journal(tmp_path / name / "penstock")
    kept = []
    for number in range(FILES):
        decision = state.decision_for(number)
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        keep = 1.0 if decision is None else decision.gates["in"][0]
        kept += ids[uniform(gate_seed("in"), [pa.array(ids)]) < keep].tolist()
    counts = {number: batch.gates["in"] for number, batch in state.batches.items() if batch.gates["in"][0]}
    return sorted(str(row) for row in source.sparkSession.table(name).collect()), counts, kept


def check(spark: SparkSession, files: Path, tmp_path: Path, job: Job, mode: str = "append", **gate: Any) -> None:
    """Hold a job behind a gate against the job alone."""
    rows, counts, _ = run_gated(job, read(spark, files), tmp_path, mode, KeepAll(60.0), **gate)
    assert rows == run_alone(job, read(spark, files), tmp_path, mode)
    assert counts == dict.fromkeys(range(FILES), (ROWS, ROWS))
    rows, counts, kept = run_gated(job, read(spark, files), tmp_path, mode, Cycle(60.0), **gate)
    assert sum(offered for offered, _ in counts.values()) == ROWS * FILES
    assert [count for _, count in counts.values()] == [
        sum(ROWS * number <= value < ROWS * (number + 1) for value in kept) for number in range(FILES)
    ]
    assert 0 < len(kept) < ROWS * FILES
    assert rows == run_alone(job, read(spark, files).where(F.col("id").isin(kept)), tmp_path, mode)


# -- operators ---------------------------------------------------------------------------------------------------------


def late(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "1 seconds")


def join_static(df: DataFrame) -> DataFrame:
    return df.join(df.sparkSession.range(0, KEYS, 2).withColumnRenamed("id", "k"), "k")


def count_by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def drop_duplicates(df: DataFrame) -> DataFrame:
    return df.select("k").dropDuplicates(["k"])


def drop_duplicates_within_watermark(df: DataFrame) -> DataFrame:
    return late(df).select("k", "t").dropDuplicatesWithinWatermark(["k"]).select("k")


def apply_with_state(df: DataFrame) -> DataFrame:
    """A running count of each key, with state of its own."""

    def count(key: tuple[int], parts: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        before = state.get[0] if state.exists else 0
        now = before + sum(len(part) for part in parts)
        state.update((now,))
        yield pd.DataFrame({"k": [key[0]], "n": [now]})

    return df.groupBy("k").applyInPandasWithState(count, "k int, n bigint", "n bigint", "append", "NoTimeout")


def apply_to_groups(df: DataFrame) -> DataFrame:
    """Python's flatMapGroups: a function of the rows that a key has in a batch."""

    def count(rows: Any) -> Any:
        import pandas as pd

        return pd.DataFrame({"k": [rows["k"].iloc[0]], "n": [len(rows)]})

    return df.groupBy("k").applyInPandas(count, "k int, n bigint")


def transform_with_state(df: DataFrame) -> DataFrame:
    streaming = pytest.importorskip("pyspark.sql.streaming.stateful_processor", reason="transformWithState needs Spark 4.0")

    class Count(streaming.StatefulProcessor):  # type: ignore[name-defined, misc]
        def init(self, handle: Any) -> None:
            self._rows = handle.getValueState("rows", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N803 - Spark's name
            import pandas as pd

            now = (self._rows.get()[0] if self._rows.exists() else 0) + sum(len(part) for part in rows)
            self._rows.update((now,))
            yield pd.DataFrame({"k": [key[0]], "n": [now]})

        def close(self) -> None:
            pass

    return df.groupBy("k").transformWithStateInPandas(Count(), "k int, n bigint", "append", "None")


OPERATORS: dict[str, tuple[Job, str]] = {
    "dropDuplicates": (drop_duplicates, "append"),
    "dropDuplicatesWithinWatermark": (drop_duplicates_within_watermark, "append"),
    "stream-static join": (join_static, "append"),
    "aggregation": (count_by_key, "complete"),
    "applyInPandasWithState": (apply_with_state, "append"),
    "flatMapGroups": (apply_to_groups, "append"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_behind_a_gate(name: str, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    job, mode = OPERATORS[name]
    check(spark, files, tmp_path, job, mode)


def test_a_join_of_two_streams(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    def join(df: DataFrame) -> DataFrame:
        other = read(spark, files).select(F.col("id").alias("other"), F.col("t").alias("u")).withWatermark("u", "1 seconds")
        return late(df).join(other, F.expr("id = other AND u BETWEEN t AND t + INTERVAL 1 SECOND")).select("id", "k", "u")

    check(spark, files, tmp_path, join)


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def test_state_in_rocksdb_with_its_changelog(spark: SparkSession, files: Path, tmp_path: Path, conf: Callable[..., None]) -> None:
    conf(
        spark__sql__streaming__stateStore__providerClass=ROCKSDB,
        spark__sql__streaming__stateStore__rocksdb__changelogCheckpointing__enabled="true",
    )
    check(spark, files, tmp_path, count_by_key, "complete")


def test_transform_with_state(spark: SparkSession, files: Path, tmp_path: Path, conf: Callable[..., None]) -> None:
    pytest.importorskip("google.protobuf.descriptor", reason="transformWithState needs protobuf (pip install pyspark[connect])")
    conf(spark__sql__streaming__stateStore__providerClass=ROCKSDB)
    check(spark, files, tmp_path, transform_with_state)


# -- how Spark runs it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"spark__sql__adaptive__enabled": "true"},
        {"spark__sql__codegen__wholeStage": "false"},
        {"spark__sql__codegen__wholeStage": "false", "spark__sql__codegen__factoryMode": "NO_CODEGEN"},
    ],
    ids=["adaptive", "no whole-stage code", "no code at all"],
)
def test_a_way_to_run_it(
    settings: dict[str, str], spark: SparkSession, files: Path, tmp_path: Path, conf: Callable[..., None]
) -> None:
    conf(**settings)
    check(spark, files, tmp_path, lambda df: df.repartition(3, "k").where("k % 5 != 1"))


# -- columns ----------------------------------------------------------------------------------------------------------------


def test_many_columns(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Beyond 100 columns Spark generates no code for whole stages: behind the gate, and ahead of it."""
    widen: Job = lambda df: df.select("*", *[(F.col("id") + number).alias(f"c{number}") for number in range(150)])  # noqa: E731
    check(spark, files, tmp_path, widen)
    wide = widen(read(spark, files))
    rows, counts, _ = run_gated(lambda df: df, wide, tmp_path, "append", KeepAll(60.0), identity=None)
    assert rows == run_alone(lambda df: df, wide, tmp_path, "append")
    assert counts == dict.fromkeys(range(FILES), (ROWS, ROWS))
    rows, counts, kept = run_gated(lambda df: df, wide, tmp_path, "append", Cycle(60.0))
    assert rows == run_alone(lambda df: df.where(F.col("id").isin(kept)), wide, tmp_path, "append")
    assert 0 < sum(count for _, count in counts.values()) == len(kept) < ROWS * FILES


def test_nested_columns_and_variants(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """Without identity=, a row is told apart by all columns that can be hashed: no maps and variants, however deep."""
    nested = (
        F.struct("id", F.create_map(F.lit("k"), "k").alias("m")).alias("s"),
        F.array(F.create_map(F.lit("v"), "v")).alias("a"),
        F.create_map("k", "v").alias("m"),
        *([F.parse_json(F.format_string('{"id": %d}', "id")).alias("x")] if hasattr(F, "parse_json") else []),
    )
    source = read(spark, files).select("id", *nested)
    variant = [F.col("x").cast("string").alias("x")] if hasattr(F, "parse_json") else []
    parts = (
        F.col("s.id").alias("again"),
        F.col("s.m")["k"].alias("k"),
        F.col("a")[0]["v"].alias("v"),
        F.map_values("m")[0].alias("l"),
    )
    show: Job = lambda df: df.select("id", *parts, *variant)  # noqa: E731
    rows, counts, _ = run_gated(show, source, tmp_path, "append", KeepAll(60.0), identity=None)
    assert rows == run_alone(show, source, tmp_path, "append")
    assert counts == dict.fromkeys(range(FILES), (ROWS, ROWS))
    rows, counts, kept = run_gated(show, source, tmp_path, "append", Cycle(60.0), identity=None)
    assert rows == run_alone(show, source.where(F.col("id").isin(kept)), tmp_path, "append"), "the id is all that is hashed"
    assert 0 < sum(count for _, count in counts.values()) == len(kept) < ROWS * FILES


# -- outputs and triggers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1.0, None])
def test_several_outputs_of_one_function(keep: float | None, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """A function that writes a batch twice, to two places: both have the same rows, and they count once."""

    def write(df: DataFrame, number: int) -> None:
        df.write.parquet(str(tmp_path / "one" / str(number)))
        df.groupBy("k").count().write.parquet(str(tmp_path / "two" / str(number)))

    controller = KeepAll(60.0) if keep else Cycle(60.0)
    with Shedder("60s", controller=controller, backfill="shed") as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id")
        options = {"checkpoint": tmp_path / "checkpoint", "trigger": {"availableNow": True}}
        shedder.foreach_batch(gated, write, **options).awaitTermination()
    one = [row[0] for row in spark.read.parquet(*[str(tmp_path / "one" / str(n)) for n in range(FILES)]).select("id").collect()]
    two = spark.read.parquet(*[str(tmp_path / "two" / str(n)) for n in range(FILES)]).agg(F.sum("count")).first()
    assert len(one) == len(set(one)) == two[0]
    assert read_journal(tmp_path / "checkpoint" / "penstock").totals()["in"] == (ROWS * FILES, len(one))
    assert (len(one) == ROWS * FILES) == (keep == 1.0)


@pytest.mark.parametrize(
    ("trigger", "backfill"),
    [({"availableNow": True}, "keep"), ({"availableNow": True}, "shed"), ({"once": True}, "keep")],
)  # once is one batch: of files its size is not known before, so nothing could be shed there
def test_a_backfill_is_no_overload(
    trigger: dict[str, bool], backfill: Any, spark: SparkSession, files: Path, tmp_path: Path
) -> None:
    """Whatever the controller wants, all rows are kept, unless the user says otherwise."""
    with Shedder("60s", controller=Cycle(60.0), backfill=backfill) as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id")
        shedder.foreach_batch(gated, lambda df, _: df.count(), checkpoint=tmp_path / "cp", trigger=trigger).awaitTermination()
    offered, kept = read_journal(tmp_path / "cp" / "penstock").totals()["in"]
    assert offered == ROWS * FILES
    assert (kept == offered) == (backfill == "keep")


def test_a_single_batch_sheds_where_its_size_is_known(spark: SparkSession, tmp_path: Path) -> None:
    """trigger(once=True) is one batch a run. This source says how many rows it has, so even that one can be shed."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("startTimestamp", START_US // 1_000)
    for _ in range(FILES):
        with Shedder("60s", controller=Cycle(60.0), backfill="shed") as shedder:
            gated = shedder.gate(ticks.load().withColumnRenamed("value", "id"), name="in", identity="id")
            writer = gated.writeStream.format("parquet").option("path", str(tmp_path / "out")).trigger(once=True)
            shedder.start(writer.option("checkpointLocation", str(tmp_path / "cp")), by="batch").awaitTermination()
    state = read_journal(tmp_path / "cp" / "penstock")
    kept = {}
    for number, keep in zip(range(FILES), KEEPS, strict=False):
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        kept[number] = ids[uniform(gate_seed("in"), [pa.array(ids)]) < keep].tolist()
    written = sorted(row[0] for row in spark.read.parquet(str(tmp_path / "out")).select("id").collect())
    assert written == [row for rows in kept.values() for row in rows]
    assert {number: batch.gates["in"] for number, batch in state.batches.items()} == {
        number: (ROWS, len(rows)) for number, rows in kept.items()
    }


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_a_table_of_the_catalog_by_attaching(keep: float, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """toTable() starts the query itself; attach() takes it over, here before its first row comes."""
    table, source = f"rows{next(_NAMES)}", tmp_path / "source"
    source.mkdir()
    kept = keep_by_arrival(tmp_path / "cp", keep)
    with Shedder("60s", controller=KeepAll(60.0)) as shedder:
        gated = shedder.gate(read(spark, source), name="in", identity="id", arrival="t", bounded=False)
        writer = gated.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "cp"))
        query = shedder.attach(writer.toTable(table))
        for number in range(FILES):
            shutil.copy(files / f"{number}.parquet", source)
            query.processAllAvailable()
    assert sorted(row[0] for row in spark.table(table).select("id").collect()) == kept
    assert read_journal(tmp_path / "cp" / "penstock").totals()["in"] == (ROWS * FILES, len(kept))
    spark.sql(f"DROP TABLE {table}")


# -- by arrival -------------------------------------------------------------------------------------------------------------


def keep_by_arrival(checkpoint: Path, keep: float) -> list[int]:
    """Leave a journal as an earlier run would, by which a share of all rows is kept, whenever they arrived; return which."""
    ids = np.arange(ROWS * FILES)
    if keep == 1.0:
        return ids.tolist()
    journal = Journal(checkpoint / "penstock")
    journal.append(DecisionRecord({"in": (keep,)}, keep, from_slot=0))
    journal.close()
    return ids[uniform(gate_seed("in"), [pa.array(ids)]) < keep].tolist()


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_a_table_of_the_catalog(keep: float, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """start(writer, table=...) is toTable() under control, from the first row on."""
    table = f"rows{next(_NAMES)}"
    kept = keep_by_arrival(tmp_path / "cp", keep)
    with Shedder("60s", controller=KeepAll(60.0)) as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id", arrival="t", bounded=False)
        writer = gated.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "cp"))
        with pytest.raises(PenstockError, match=f"a query to table '{table}' can't run by batch"):
            shedder.start(writer, by="batch", table=table)
        shedder.start(writer.trigger(availableNow=True), table=table).awaitTermination()
    assert sorted(row[0] for row in spark.table(table).select("id").collect()) == kept
    assert read_journal(tmp_path / "cp" / "penstock").totals()["in"] == (ROWS * FILES, len(kept))
    spark.sql(f"DROP TABLE {table}")


@pytest.mark.parametrize("keep", [1.0, 0.1])  # so few that keys are missing
@pytest.mark.parametrize("name", ["dropDuplicates", "aggregation"])
def test_an_operator_with_state_by_arrival(name: str, keep: float, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    job, mode = OPERATORS[name]
    table = f"gated{next(_NAMES)}"
    kept = keep_by_arrival(tmp_path / "cp", keep)
    with Shedder("60s", controller=KeepAll(60.0)) as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id", arrival="t", bounded=False)
        writer = job(gated).writeStream.format("memory").queryName(table).outputMode(mode)
        query = shedder.start(writer.option("checkpointLocation", str(tmp_path / "cp")), by="arrival")
        query.processAllAvailable()
    rows = sorted(str(row) for row in spark.table(table).collect())
    assert rows == run_alone(job, read(spark, files).where(F.col("id").isin(kept)), tmp_path, mode)
    assert read_journal(tmp_path / "cp" / "penstock").totals()["in"] == (ROWS * FILES, len(kept))


def test_a_backfill_keeps_what_came_after_a_run_that_shed(spark: SparkSession, files: Path, tmp_path: Path) -> None:
    """The last decision holds for the rows that a batch may have had; those that came since are kept."""
    cp, source, out = tmp_path / "cp", tmp_path / "source", tmp_path / "out"
    source.mkdir()
    kept = [row for row in keep_by_arrival(cp, 0.5) if row < ROWS]
    schema = pq.read_schema(files / "0.parquet")
    for number in range(FILES):
        table = pq.read_table(files / f"{number}.parquet")
        if number:  # it comes now, half a second after the last batch was planned
            time.sleep(0.5)
            now = pa.array(np.full(ROWS, time.time_ns() // 1_000)).cast(schema.field("t").type)
            table = table.set_column(schema.get_field_index("t"), "t", now)
        pq.write_table(table, source / f"{number}.parquet")
        with Shedder("60s", controller=Cycle(60.0)) as shedder:
            gated = shedder.gate(read(spark, source), name="in", identity="id", arrival="t", bounded=False)
            writer = gated.writeStream.format("parquet").option("checkpointLocation", str(cp)).option("path", str(out))
            shedder.start(writer.trigger(availableNow=True), by="arrival").awaitTermination()
    ids = sorted(row[0] for row in spark.read.parquet(str(out)).select("id").collect())
    assert ids == [*kept, *range(ROWS, FILES * ROWS)]
    batches = [batch.gates["in"] for batch in read_journal(cp / "penstock").batches.values() if batch.gates["in"][0]]
    assert batches == [(ROWS, len(kept)), (ROWS, ROWS)]


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_adaptive_execution_by_arrival(
    keep: float, spark: SparkSession, files: Path, tmp_path: Path, conf: Callable[..., None]
) -> None:
    """Spark 4.1 and later plan such a batch adaptively: they run the stage that has the gate before they plan the rest."""
    conf(spark__sql__adaptive__enabled="true")
    name = f"gated{next(_NAMES)}"
    kept = keep_by_arrival(tmp_path / "cp", keep)
    with Shedder("60s", controller=KeepAll(60.0)) as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id", arrival="t", bounded=False)
        writer = gated.repartition(3, "k").where("k % 5 != 1").writeStream.format("memory").queryName(name)
        query = shedder.start(writer.option("checkpointLocation", str(tmp_path / "cp")), by="arrival")
        query.processAllAvailable()
        plan = str(query._jsq.streamingQuery().lastExecution().executedPlan().toString())
    if minor_version(spark.version) >= (4, 1):
        assert "AdaptiveSparkPlan" in plan
    rows = [row[0] for row in spark.table(name).select("id").collect()]
    assert sorted(rows) == [row for row in kept if row * 7919 % KEYS % 5 != 1]
    assert read_journal(tmp_path / "cp" / "penstock").totals()["in"] == (ROWS * FILES, len(kept))


@pytest.mark.parametrize("keep", [1.0, 0.5])
def test_asynchronous_progress_tracking(keep: float, spark: SparkSession, files: Path, tmp_path: Path) -> None:
    name = f"gated{next(_NAMES)}"
    kept = keep_by_arrival(tmp_path / "cp", keep)
    with Shedder("60s", controller=KeepAll(60.0)) as shedder:
        gated = shedder.gate(read(spark, files), name="in", identity="id", arrival="t", bounded=False)
        writer = gated.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / "cp"))
        query = shedder.start(writer.option("asyncProgressTrackingEnabled", "true"))
        query.processAllAvailable()
    assert sorted(row[0] for row in spark.table(name).select("id").collect()) == kept
    assert read_journal(tmp_path / "cp" / "penstock").totals()["in"] == (ROWS * FILES, len(kept))
