"""By batch, the size of a batch of files is estimated from their bytes; where it can't be, one line says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Shedder, read_journal
from penstock.spark.batch_sizes import NO_RATIO, NO_SIZE

from .conftest import Cycle, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Build = Callable[["DataFrame"], "DataFrame"]


def write_files(directory: Path, sizes: Sequence[int]) -> None:
    """Write a file for each number of rows, the oldest first; Spark takes them in that order."""
    directory.mkdir(exist_ok=True)
    for number, rows in enumerate(sizes, start=len(list(directory.iterdir()))):
        now_us = int(time.time() * 1e6)
        values = pa.table(
            {"value": pa.array(range(rows), pa.int64()), "at": pa.array(range(now_us, now_us + rows), pa.timestamp("us", "UTC"))}
        )
        pq.write_table(values, directory / f"{number:03}.parquet", compression="none", use_dictionary=False)
        time.sleep(0.01)


def run(
    session: SparkSession, tmp_path: Path, sizes: Sequence[int], build: Build = lambda df: df
) -> tuple[Cycle, Any, list[str]]:
    """Run a batch per file; return the controller, the batches of the journal, and the notes."""
    write_files(tmp_path / "files", sizes)
    files = (
        session.readStream.schema("value bigint, at timestamp").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "files"))
    )
    seen: list[int] = []
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(build(files), name="in", arrival="at", identity="value")

        def read(df: DataFrame, number: int) -> None:
            df.write.format("noop").mode("overwrite").save()
            seen.append(number)

        query = shedder.foreach_batch(gated, read, checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: len(seen) == len(sizes), query)
        controller = shedder._registry.drivers[0].core.controller
        assert isinstance(controller, Cycle)
    state = read_journal(tmp_path / "cp/penstock")
    return controller, state.batches, [str(note) for note in state.errors]


def test_bytes_tell_how_many_rows_come(session: SparkSession, tmp_path: Path) -> None:
    sizes = [20_000, 5_000, 80_000, 20_000]
    controller, batches, notes = run(session, tmp_path, sizes)
    estimates = {seen.batch_id + 1: seen.upcoming_rows for seen in controller.seen}
    assert estimates[0] is None  # no batch has shown yet how many rows a byte is
    assert [batches[number].gates["in"][0] for number in range(4)] == sizes
    assert [estimates[number] for number in (1, 2, 3)] == pytest.approx(sizes[1:], rel=0.1)
    assert [note for note in notes if NO_RATIO in note]
    assert not [note for note in notes if NO_SIZE in note]


def test_the_first_batch_after_a_restart_has_a_size(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A job that comes back to a pile of files knows how large it is, from what the run before has journaled."""
    run(session, tmp_path, [10_000, 20_000, 10_000])
    caplog.clear()
    controller, batches, _ = run(session, tmp_path, [160_000, 20_000])
    assert [batches[number].gates["in"][0] for number in (3, 4)] == [160_000, 20_000]
    estimates = {seen.batch_id + 1: seen.upcoming_rows for seen in controller.seen}
    assert [estimates[number] for number in (3, 4)] == pytest.approx([160_000, 20_000], rel=0.1)
    assert NO_RATIO not in caplog.text


def test_tables_that_are_no_streams_do_not_count(session: SparkSession, tmp_path: Path) -> None:
    table = session.range(10).select(F.col("id").alias("value"), F.lit("x").alias("name")).localCheckpoint()
    controller, _, notes = run(session, tmp_path, [10_000, 30_000], lambda df: df.join(table, "value", "left").drop("name"))
    assert controller.seen[-1].upcoming_rows == pytest.approx(30_000, rel=0.1)
    assert not [note for note in notes if NO_SIZE in note]


def test_a_stream_that_is_read_twice_has_no_size_and_a_line_says_so(session: SparkSession, tmp_path: Path) -> None:
    """Spark does not report how many rows such a query reads."""
    controller, _, notes = run(session, tmp_path, [1_000, 1_000, 1_000], lambda df: df.union(df))
    assert {seen.upcoming_rows for seen in controller.seen} == {None}
    assert [note for note in notes if NO_SIZE in note]


def test_of_a_source_that_tells_nothing_a_line_says_so(session: SparkSession, tmp_path: Path) -> None:
    source = session.readStream.format("rate").option("rowsPerSecond", 100).option("rampUpTime", "60s").load()
    ran: list[int] = []
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, lambda df, number: ran.append(number) or df.count(), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(ran) > 2, query)
        controller = shedder._registry.drivers[0].core.controller
    assert isinstance(controller, Cycle)
    assert {seen.upcoming_rows for seen in controller.seen} == {None}
    assert [note for note in read_journal(tmp_path / "cp/penstock").errors if NO_SIZE in str(note)]


def test_who_sheds_nothing_is_told_nothing(session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(tmp_path / "files", [100])
    files = session.readStream.schema("value bigint, at timestamp").parquet(str(tmp_path / "files"))
    with Shedder("2s", controller="keep-all") as shedder:
        gated = shedder.gate(files, name="in", arrival="at", identity="value")
        query = shedder.foreach_batch(gated, lambda df, _: df.count(), checkpoint=tmp_path / "cp")
        query.processAllAvailable()
    assert NO_RATIO not in caplog.text
