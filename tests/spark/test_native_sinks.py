"""Spark's own sinks under control: by batch, with the semantics that they have without Penstock."""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException
from pyspark.sql import functions as F

from penstock import (
    PenstockError,
    Shedder,
    WholeWindows,
    read_journal,
    register_replay,
)
from penstock.drop.hashing import gate_seed, uniform
from penstock.spark.interruption import shorten_interruption
from penstock.spark.native_sinks import open_sink
from penstock.spark.versions import internals_of, minor_version
from penstock.spark.writer_settings import WriterSettings

from .conftest import Cycle, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]
ROWS = 200


def expected(batch_id: int, keep: float, rows: int = ROWS) -> list[int]:
    values = np.arange(rows * batch_id, rows * (batch_id + 1))
    return values[uniform(gate_seed("in"), [pa.array(values)]) < keep].tolist()


def gated(shedder: Shedder, source: DataFrame) -> DataFrame:
    return shedder.gate(source, name="in", arrival="timestamp", identity="value")


def run(shedder: Shedder, writer: DataStreamWriter, batches: int, **how: Any) -> StreamingQuery:
    """Run until that many batches are counted, then stop."""
    with shedder:
        query = shedder.start(writer, **how)
        wait_until(lambda: shedder.report().table.num_rows >= batches, query)
    return query


def ledger_of(checkpoint: Path) -> dict[int, tuple[int, int]]:
    return {number: record.gates["in"] for number, record in read_journal(checkpoint / "penstock").batches.items()}


def keeps_of(checkpoint: Path) -> dict[int, float]:
    return {d.batch_id: d.keep for d in read_journal(checkpoint / "penstock").decisions if d.batch_id is not None}


def wanted(checkpoint: Path) -> dict[int, list[int]]:
    """What each batch that was counted must have kept; ``stop`` may have cut off one more, that has a decision and no counts."""
    keeps = keeps_of(checkpoint)
    return {number: expected(number, keeps[number]) for number in sorted(ledger_of(checkpoint))}


def flatten(batches: dict[int, list[int]]) -> list[int]:
    return [value for number in sorted(batches) for value in batches[number]]


def committed_files(path: Path) -> dict[int, list[Path]]:
    """The files that Spark's file sink has committed in each batch, from its own log."""
    files = {}
    for entry in (path / "_spark_metadata").glob("[0-9]*"):
        if entry.name.isdigit():  # these jobs are too short for Spark to compact its log
            lines = entry.read_text().splitlines()[1:]
            files[int(entry.name)] = [Path(json.loads(line)["path"].removeprefix("file://")) for line in lines]
    return files


def committed_values(path: Path) -> dict[int, list[int]]:
    return {
        number: sorted(value for file in files for value in pq.read_table(file, partitioning=None)["value"].to_pylist())
        for number, files in committed_files(path).items()
    }


def unlink_from(log: Path, batch_id: int) -> None:
    """Remove the entries of a batch and of all later ones from one of Spark's logs."""
    for entry in log.iterdir():
        if int(entry.name.strip(".").partition(".")[0]) >= batch_id:
            entry.unlink()


def crash_in(checkpoint: Path, batch_id: int, *, record: bool = False, sink: Path | None = None) -> None:
    """Make a checkpoint what a crash in a batch leaves: before Spark's commit; before the counts are journaled, with ``record``;
    before the file sink has committed, with ``sink``.
    """
    unlink_from(checkpoint / "offsets", batch_id + 1)
    unlink_from(checkpoint / "commits", batch_id)
    if sink is not None:
        unlink_from(sink / "_spark_metadata", batch_id)
    journal = checkpoint / "penstock"
    while record and batch_id in read_journal(journal).batches:
        max(journal.glob("0*.json")).unlink()


@pytest.fixture
def writer_of(tmp_path: Path) -> Callable[..., DataStreamWriter]:
    def make(df: DataFrame, kind: str = "parquet") -> DataStreamWriter:
        writer = df.writeStream.format(kind).option("path", str(tmp_path / "out"))
        return writer.option("checkpointLocation", str(tmp_path / "cp"))

    return make


# -- files ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "orc", "text"])
def test_files_are_committed_in_sparks_own_log(
    ticks: Ticks, session: SparkSession, tmp_path: Path, kind: str, writer_of: Callable[..., DataStreamWriter]
) -> None:
    shedder = Shedder("2s", controller=Cycle(2.0))
    rows = gated(shedder, ticks(ROWS)).select(F.col("value").cast("string" if kind == "text" else "long").alias("value"))
    query = run(shedder, writer_of(rows, kind), 4)
    (ledger,) = shedder.report().queries
    assert ledger.how == "by batch"
    want = wanted(tmp_path / "cp")
    assert ledger_of(tmp_path / "cp") == {number: (ROWS, len(values)) for number, values in want.items()}
    assert len({len(values) for values in want.values()}) > 2
    assert sorted(committed_files(tmp_path / "out"))[: len(want)] == sorted(want)
    reader = session.read.format(kind).schema("value string" if kind == "text" else "value long")
    read = reader.load(str(tmp_path / "out")).collect()
    assert sorted(value for row in read if (value := int(row["value"])) < ROWS * len(want)) == flatten(want)
    assert not query.isActive


def test_a_writers_settings_hold(ticks: Ticks, tmp_path: Path, writer_of: Callable[..., DataStreamWriter]) -> None:
    shedder = Shedder("2s", controller="keep-all")
    rows = gated(shedder, ticks(ROWS)).withColumn("Part", F.col("value") % 2)
    writer = writer_of(rows).partitionBy("part").option("maxRecordsPerFile", 30).option("compression", "gzip")
    query = run(shedder, writer.queryName("settled").trigger(processingTime="300 milliseconds"), 3)
    assert query.name == "settled"
    assert query._jsq.streamingQuery().trigger().intervalMs() == 300
    assert WriterSettings(writer).is_paced
    files = [file for files in committed_files(tmp_path / "out").values() for file in files]
    assert {file.parent.name for file in files} == {"Part=0", "Part=1"}
    for file in files:
        parquet = pq.ParquetFile(file)
        assert parquet.metadata.num_rows <= 30
        assert parquet.metadata.row_group(0).column(0).compression == "GZIP"
        assert "Part" not in parquet.schema_arrow.names
    # The writer is the user's: it was not changed, and still starts the plain query.
    assert WriterSettings(writer).format == "parquet"


def test_the_output_is_what_spark_alone_writes(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    """Schema, metadata of columns and files: those of the same job without Penstock."""

    def write(df: DataFrame, name: str) -> DataStreamWriter:
        rows = df.select(F.col("value").alias("value", metadata={"unit": "rows"}), "timestamp").repartition(2, "value")
        return rows.writeStream.option("path", str(tmp_path / name)).option("checkpointLocation", str(tmp_path / f"{name}-cp"))

    plain = write(ticks(ROWS), "plain").start()
    wait_until(lambda: len(committed_files(tmp_path / "plain")) > 2, plain)
    plain.stop()
    shedder = Shedder("2s", controller="keep-all")
    run(shedder, write(gated(shedder, ticks(ROWS)), "shed"), 3)
    both = [committed_files(tmp_path / name) for name in ("plain", "shed")]
    for number in range(3):
        tables = [[pq.read_table(file) for file in sorted(files[number], key=lambda file: file.name)] for files in both]
        assert tables[0] == tables[1]
        assert (
            tables[0][0].schema.metadata[b"org.apache.spark.sql.parquet.row.metadata"]
            == (tables[1][0].schema.metadata[b"org.apache.spark.sql.parquet.row.metadata"])
        )


@pytest.mark.parametrize("record", [False, True], ids=["before Spark's commit", "before the counts are journaled"])
def test_a_batch_that_the_sink_has_is_not_written_again(
    ticks: Ticks, tmp_path: Path, writer_of: Callable[..., DataStreamWriter], record: bool
) -> None:
    """A crash after the sink has committed: the batch is replayed, the sink leaves it alone, and the ledger stays complete."""

    def live(batches: int) -> None:
        shedder = Shedder("2s", controller=Cycle(2.0))
        run(shedder, writer_of(gated(shedder, ticks(ROWS))), batches)

    live(3)
    written, ledger = committed_files(tmp_path / "out"), ledger_of(tmp_path / "cp")
    last = max(ledger)
    crash_in(tmp_path / "cp", last, record=record)
    live(last + 3)
    assert {number: committed_files(tmp_path / "out")[number] for number in ledger} == {n: written[n] for n in ledger}
    assert {number: counts for number, counts in ledger_of(tmp_path / "cp").items() if number in ledger} == ledger
    assert {number: committed_values(tmp_path / "out")[number] for number in wanted(tmp_path / "cp")} == wanted(tmp_path / "cp")


def test_a_batch_that_the_sink_lacks_is_written_with_the_same_rows(
    ticks: Ticks, tmp_path: Path, writer_of: Callable[..., DataStreamWriter]
) -> None:
    """A crash before the sink has committed: its files lie about, are in no log, and the batch is written again."""

    def live(batches: int) -> None:
        shedder = Shedder("2s", controller=Cycle(2.0))
        run(shedder, writer_of(gated(shedder, ticks(ROWS))), batches)

    live(3)
    ledger = ledger_of(tmp_path / "cp")
    last = max(ledger)
    crash_in(tmp_path / "cp", last, record=True, sink=tmp_path / "out")
    live(last + 3)
    assert {number: counts for number, counts in ledger_of(tmp_path / "cp").items() if number in ledger} == ledger
    assert {number: committed_values(tmp_path / "out")[number] for number in wanted(tmp_path / "cp")} == wanted(tmp_path / "cp")


def test_a_checkpoint_of_spark_alone_is_continued_and_given_back(
    ticks: Ticks, tmp_path: Path, writer_of: Callable[..., DataStreamWriter]
) -> None:
    def live_alone(batches: int) -> None:
        plain = writer_of(ticks(ROWS)).start()
        wait_until(lambda: len(committed_files(tmp_path / "out")) >= batches, plain)
        plain.stop()

    live_alone(2)
    first = max(committed_files(tmp_path / "out")) + 1
    shedder = Shedder("2s", controller=Cycle(2.0))
    run(shedder, writer_of(gated(shedder, ticks(ROWS))), 4)
    # A batch that stop() cut off has a decision and no count: Spark alone runs it again, and keeps all of it.
    ours = {number: keep for number, keep in keeps_of(tmp_path / "cp").items() if number in ledger_of(tmp_path / "cp")}
    live_alone(first + len(ours) + 2)
    after = committed_values(tmp_path / "out")
    assert sorted(after) == list(range(len(after)))
    assert min(ours) <= first < max(ours) < max(after)
    for number, values in after.items():
        is_skipped = number < first  # Spark had it in the sink and not in its log of commits
        assert values == expected(number, 1.0 if is_skipped else ours.get(number, 1.0)), number


# -- other sinks ---------------------------------------------------------------------------------------------------------


def test_memory_tables_have_the_querys_name(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle(2.0)) as shedder:
        rows = gated(shedder, ticks(ROWS))
        totals = shedder.gate(ticks(ROWS), name="all", identity="value").groupBy().agg(F.count("*").alias("n"))
        appended = rows.writeStream.format("memory").queryName("appended").option("checkpointLocation", str(tmp_path / "a"))
        complete = totals.writeStream.format("memory").queryName("complete").outputMode("complete")
        queries = [shedder.start(appended), shedder.start(complete.option("checkpointLocation", str(tmp_path / "c")))]
        for query in queries:
            wait_until(lambda: Counter(shedder.report().table["query"].to_pylist())[query.name] > 3, query)  # noqa: B023
    want = wanted(tmp_path / "a")
    values = sorted(row["value"] for row in session.table("appended").collect() if row["value"] < ROWS * len(want))
    assert values == flatten(want)
    (total,) = session.table("complete").collect()
    state = read_journal(tmp_path / "c" / "penstock")
    assert total["n"] in np.cumsum([record.gates["all"][1] for _, record in sorted(state.batches.items())])[-2:]
    with pytest.raises(PenstockError, match="a memory table in append mode can't continue from the checkpoint"):
        shedder.start(appended)
    with Shedder("2s", controller=Cycle(2.0)) as again:  # in complete mode the totals are in the state
        totals = again.gate(ticks(ROWS), name="all", identity="value").groupBy().agg(F.count("*").alias("n"))
        complete = totals.writeStream.format("memory").queryName("complete").outputMode("complete")
        query = again.start(complete.option("checkpointLocation", str(tmp_path / "c")))
        wait_until(lambda: again.report().table.num_rows > len(state.batches), query)
    assert session.table("complete").first()["n"] > total["n"]


class Collector:
    """A ``foreach`` writer that leaves a file for each epoch and partition."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)

    def open(self, partition: int, epoch: int) -> bool:
        self.name = f"{self.directory}/{epoch}-{partition}"
        self.values: list[int] = []
        return True

    def process(self, row: Row) -> None:
        self.values.append(row["value"])

    def close(self, error: Exception | None) -> None:
        Path(self.name).write_text(json.dumps(self.values))


def test_foreach_writers_get_the_batch_as_their_epoch(ticks: Ticks, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    shedder = Shedder("2s", controller=Cycle(2.0))
    writer = gated(shedder, ticks(ROWS)).writeStream.foreach(Collector(tmp_path / "out"))
    run(shedder, writer.option("checkpointLocation", str(tmp_path / "cp")), 4)
    written: dict[int, list[int]] = {}
    for file in (tmp_path / "out").iterdir():
        written.setdefault(int(file.name.partition("-")[0]), []).extend(json.loads(file.read_text()))
    want = wanted(tmp_path / "cp")
    assert {number: sorted(written[number]) for number in want} == want


def test_a_function_of_the_users_own_is_called_by_batch(ticks: Ticks, tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {}

    def twice(df: DataFrame, number: int) -> None:
        df.write.format("noop").mode("overwrite").save()
        seen[number] = sorted(row["value"] for row in df.collect())

    shedder = Shedder("2s", controller=Cycle(2.0))
    writer = gated(shedder, ticks(ROWS)).writeStream.foreachBatch(twice)
    run(shedder, writer.option("checkpointLocation", str(tmp_path / "cp")), 4)
    want = wanted(tmp_path / "cp")
    assert {number: seen[number] for number in want} == want
    assert ledger_of(tmp_path / "cp") == {number: (ROWS, len(values)) for number, values in want.items()}

    def fails(df: DataFrame, number: int) -> None:
        raise KeyError("the user's own")

    with Shedder("2s") as other:
        query = other.start(gated(other, ticks(ROWS)).writeStream.foreachBatch(fails))
        wait_until(lambda: query.exception() is not None, seconds=30)
        assert "the user's own" in str(query.exception())


def test_a_table_of_somebody_elses_is_committed_by_batch(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no data sources in Python")
    from .shelf import Shelf

    (tmp_path / "out").mkdir()
    session.dataSource.register(Shelf)
    shedder = Shedder("2s", controller=Cycle(2.0))
    writer = gated(shedder, ticks(ROWS)).writeStream.format("shelf").option("Directory", str(tmp_path / "out"))
    run(shedder, writer.option("checkpointLocation", str(tmp_path / "cp")), 3)
    written = {int(file.name): json.loads(file.read_text()) for file in (tmp_path / "out").iterdir()}
    assert {number: written[number] for number in wanted(tmp_path / "cp")} == wanted(tmp_path / "cp")


@pytest.mark.parametrize("kind", ["noop", "console"])
def test_sinks_that_keep_nothing(ticks: Ticks, kind: str) -> None:
    with Shedder("2s", controller=Cycle(2.0)) as shedder:
        query = shedder.start(gated(shedder, ticks(ROWS)).writeStream.format(kind).option("numRows", 1))
        wait_until(lambda: shedder.report().table.num_rows > 2, query)
        (ledger,) = shedder.report().queries
    assert ledger.how == "by batch"
    assert all(record.gates["in"][0] == ROWS for record in ledger.state.batches.values())


def test_by_batch_gates_need_no_arrival_and_windows_stay_whole(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    shedder = Shedder("2s", controller=Cycle(2.0))
    source = ticks(ROWS).withWatermark("timestamp", "0 seconds")
    windows = shedder.gate(source, name="in", unit=WholeWindows("timestamp", "1s")).groupBy(F.window("timestamp", "1 second"))
    writer = windows.count().writeStream.format("parquet").option("path", str(tmp_path / "out"))
    run(shedder, writer.option("checkpointLocation", str(tmp_path / "cp")), 8)
    counts = [row["count"] for row in session.read.parquet(str(tmp_path / "out")).collect()]
    assert set(counts) == {ROWS}
    assert sum(kept for _, kept in ledger_of(tmp_path / "cp").values()) < sum(n for n, _ in ledger_of(tmp_path / "cp").values())


def test_spark_knows_its_own_interruption(session: SparkSession) -> None:
    """A query that is stopped within a batch: on a whole stack trace, Spark's own test of the error overflows its stack."""
    jvm: Any = session._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    execution = (streaming.runtime if minor_version(session.version) >= (4, 1) else streaming).StreamExecution

    def is_interruption(text: str) -> bool:
        return bool(execution.isInterruptionException(jvm.py4j.Py4JException(text), session._jsc.sc()))

    known = internals_of(session).knows_interruptions
    trace = "An error occurred while calling o1.addBatch.\n: java.lang.InterruptedException\n" + "\tat a.frame\n" * 2_000
    if known:
        with pytest.raises(Py4JError, match="StackOverflowError"):
            is_interruption(f"py4j.protocol.Py4JJavaError: {trace}")
    with pytest.raises(InterruptedError) as raised:
        shorten_interruption(RuntimeError(trace))
    assert is_interruption(f"Traceback (most recent call last):\n  ...\nInterruptedError: {raised.value}\n") is known
    shorten_interruption(RuntimeError("java.lang.IllegalStateException"))  # the sink's own failure passes


# -- from one way to the other -------------------------------------------------------------------------------------------


def test_by_arrival_continued_by_batch(session: SparkSession, tmp_path: Path) -> None:
    """The batch that was left open was judged by the slots of its rows, and is again; the next ones are decided by batch."""
    register_replay(session)
    start_s = time.time()

    def live(how: str, is_enough: Callable[[Shedder], bool]) -> None:
        reader = session.readStream.format("penstock-replay").option("generator", "constant").option("rate", 3000)
        source = reader.option("duration", "60s").option("start", start_s).load().withColumnRenamed("seq", "value")
        with Shedder("2s", controller=Cycle(2.0)) as shedder:
            rows = shedder.gate(source, name="in", arrival="arrival", identity="value", weight_column="w").select("value", "w")
            writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            query = shedder.start(writer.option("checkpointLocation", str(tmp_path / "cp")), by=how)
            wait_until(lambda: is_enough(shedder), query)

    def is_mixed(shedder: Shedder) -> bool:
        """Whether the last batch has rows of two decisions, so that no table by batch could judge it."""
        (ledger,) = shedder.report().queries
        counted = {number: files for number, files in committed_files(tmp_path / "out").items() if number in ledger.state.batches}
        return len(counted) > 4 and len(weights(max(counted))) > 1

    def weights(number: int) -> set[float]:
        return {weight for file in committed_files(tmp_path / "out")[number] for weight in pq.read_table(file)["w"].to_pylist()}

    live("arrival", is_mixed)
    written, ledger = committed_values(tmp_path / "out"), ledger_of(tmp_path / "cp")
    last = max(number for number in ledger if len(weights(number)) > 1)
    crash_in(tmp_path / "cp", last, sink=tmp_path / "out")
    live("batch", lambda shedder: max(ledger_of(tmp_path / "cp")) > last + 2)
    after = committed_values(tmp_path / "out")
    assert after[last] == written[last]
    assert ledger_of(tmp_path / "cp")[last] == ledger[last]
    keeps = keeps_of(tmp_path / "cp")
    assert min(keeps) == last + 1
    for number in keeps.keys() & after.keys():
        assert all(weight == pytest.approx(1 / keeps[number]) for weight in weights(number))


def test_by_batch_continued_by_arrival(ticks: Ticks, tmp_path: Path, writer_of: Callable[..., DataStreamWriter]) -> None:
    def live(batches: int, by: str) -> None:
        shedder = Shedder("2s", controller=Cycle(2.0))
        run(shedder, writer_of(gated(shedder, ticks(ROWS))), batches, by=by)

    live(3, "batch")
    last = max(ledger_of(tmp_path / "cp"))
    crash_in(tmp_path / "cp", last)
    with pytest.raises(
        PenstockError, match=f"batch {last} of query 'query1' was decided by batch and is not committed or counted yet"
    ):
        live(last + 3, "arrival")
    with Shedder("2s", controller=Cycle(2.0)) as shedder:  # as the message says
        assert shedder.start(writer_of(gated(shedder, ticks(ROWS))).trigger(availableNow=True)).awaitTermination(60)
    decided = keeps_of(tmp_path / "cp")
    live(max(decided) + 3, "arrival")
    assert keeps_of(tmp_path / "cp") == decided
    after = committed_values(tmp_path / "out")
    # The rows of ticks arrived in 2023, before anything was decided by arrival.
    assert after == {number: expected(number, decided.get(number, 1.0)) for number in after}
    assert max(after) > max(decided)


# -- what is refused -----------------------------------------------------------------------------------------------------


def test_triggers_that_cannot_be_controlled(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    rows = shedder.gate(session.readStream.format("rate").load(), name="in", arrival="timestamp", identity="value")
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    triggers = {"continuous": "1 second", "realTime": "5 seconds"}
    for name in triggers.keys() & inspect.signature(writer.trigger).parameters.keys():  # real time came with Spark 4.1
        trigger = {name: triggers[name]}
        message = rf"a query with trigger\({name}=\.\.\.\) can't be controlled"
        for by in (None, "batch", "arrival"):
            with pytest.raises(PenstockError, match=message):
                shedder.start(writer.trigger(**trigger), by=by)
        with pytest.raises(PenstockError, match=message):
            shedder.foreach_batch(rows, lambda *_: None, trigger=trigger)
        with pytest.raises(PenstockError, match=message):
            shedder.write(rows, "parquet", tmp_path / "out", trigger=trigger)
    query = writer.trigger(continuous="1 second").start()
    try:
        with pytest.raises(PenstockError, match=r"trigger\(continuous=\.\.\.\) can't be controlled"):
            shedder.attach(query)
        stream = query._jsq.streamingQuery()
        wait_until(stream.lastExecution, query)  # Spark 4.1 may wait for ever if it is stopped while it starts
    finally:
        query.stop()
    assert shedder.report().queries == []


def test_what_a_sink_lacks(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    rows = gated(shedder, ticks())
    checkpoint = str(tmp_path / "cp")
    for writer, by, message in (
        (rows.writeStream.format("noop"), "row", "by must be 'batch', 'arrival' or None, got 'row'"),
        (rows.writeStream.format("parquet").option("path", checkpoint), None, "format 'parquet' needs a checkpoint"),
        (rows.writeStream.format("memory"), None, r"format 'memory' needs queryName\(...\)"),
        (rows.writeStream.format("memory").queryName("m").partitionBy("value"), None, "format 'memory' can't be partitioned"),
        (
            rows.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true"),
            "batch",
            "a query with asyncProgressTrackingEnabled can't run by batch",
        ),
    ):
        with pytest.raises(PenstockError, match=message):
            shedder.start(writer, by=by)
    for kind, options, mode, columns, message in (
        ("parquet", {}, "append", (), "'path' is not specified"),
        ("parquet", {"path": str(tmp_path / "out")}, "complete", (), "(?i)output mode"),
        ("parquet", {"path": str(tmp_path / "out")}, "append", ("nothing",), "Partition column nothing not found"),
        ("jdbc", {}, "append", (), "does not support streamed writing"),
    ):
        writer = rows.writeStream.format(kind).options(**options).outputMode(mode).option("checkpointLocation", checkpoint)
        writer = writer.partitionBy(*columns) if columns else writer
        with pytest.raises((AnalysisException, IllegalArgumentException, UnsupportedOperationException), match=message):
            shedder.start(writer)
    asynchronous = rows.writeStream.format("noop").option("asyncProgressTrackingEnabled", "true")
    assert open_sink(asynchronous, WriterSettings(asynchronous), list(shedder._gates.values())) is None
    assert shedder.report().queries == []
    assert not (tmp_path / "cp" / "penstock").exists()


def test_a_second_query_of_a_gate_by_arrival_runs_by_arrival(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller="keep-all") as shedder:
        rows = gated(shedder, ticks(ROWS))

        def writer(name: str) -> DataStreamWriter:
            return rows.writeStream.format("noop").queryName(name).option("checkpointLocation", str(tmp_path / name))

        shedder.start(writer("a"), by="arrival")
        shedder.start(writer("b"))
        with pytest.raises(PenstockError, match=r"gate 'in' serves query 'a' already.*or start both queries with by='arrival'"):
            shedder.start(writer("c"), by="batch")
        assert [driver.core.how for driver in shedder._registry.drivers] == ["by arrival", "by arrival"]
