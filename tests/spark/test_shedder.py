"""The shedder as a user meets it."""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import (
    Controller,
    Decision,
    JournalError,
    KeepAll,
    Observation,
    PenstockError,
    Priorities,
    Report,
    Shedder,
    read_journal,
    register_replay,
)
from penstock import filesystem as filesystem_module
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import SLOT_SHIFT
from penstock.journal import DecisionRecord, Journal
from penstock.simulation.traffic import b_model

from .conftest import Cycle, to_arrow, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]


class Broken(Controller):
    def update(self, observation: Observation) -> Decision:
        raise RuntimeError(f"no idea\nat all about batch {observation.batch_id}")


def expected(first: int, last: int, keep: float, gate: str = "in") -> list[int]:
    values = np.arange(first, last)
    return values[uniform(gate_seed(gate), [pa.array(values)]) < keep].tolist()


def collect_into(seen: dict[int, list[int]]) -> Callable[[DataFrame, int], None]:
    def function(df: DataFrame, number: int) -> None:
        seen[number] = sorted(to_arrow(df.select("value"))["value"].to_pylist())

    return function


def test_by_batch_each_batch_has_its_own_table(ticks: Ticks, tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {}
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: len(seen) > 6, query)
    table = shedder.report().table
    decisions = read_journal(tmp_path / "cp" / "penstock")
    for number, values in seen.items():
        keep = decisions.decision_for(number).keep
        assert values == expected(1_000 * number, 1_000 * (number + 1), keep)
    ledger = {row["batch_id"]: (row["offered"], row["kept"], row["shed"]) for row in table.to_pylist()}
    assert ledger == {number: (1_000, len(values), 1_000 - len(values)) for number, values in seen.items()}
    assert not query.isActive


def test_the_observation_is_complete(ticks: Ticks, tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(start_ms=now_ms, advance_ms=1), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, collect_into(seen := {}), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(seen) > 4, query)
        controller = shedder._registry.drivers[0].core.controller
    assert isinstance(controller, Cycle)
    observed = [o for o in controller.seen if o.offered]
    assert [o.batch_id for o in observed] == sorted({o.batch_id for o in observed})
    for o in observed:
        assert o.offered == 1_000
        assert o.upcoming_rows == 1_000
        assert o.gates["in"].kept == len(seen[o.batch_id])
        assert 0 < o.busy_s <= o.period_s
        assert o.delay_s is not None
        assert 0 < o.delay_s < 120
        assert o.taken_s is not None
        assert o.taken_s >= o.end_s - 0.01


def test_sparks_own_rate_source_says_how_many_rows_come(session: SparkSession, tmp_path: Path) -> None:
    """Its offsets are seconds, and it says how many rows it makes in each."""
    with Shedder("2s", controller=Cycle()) as shedder:
        source = session.readStream.format("rate").option("rowsPerSecond", 700).load()
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, collect_into(seen := {}), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(seen) > 3, query)
        controller = shedder._registry.drivers[0].core.controller
    assert isinstance(controller, Cycle)
    offered = {number: count["in"][0] for number, count in _counts(tmp_path / "cp").items()}
    sizes = {o.batch_id + 1: o.upcoming_rows for o in controller.seen}
    assert len(offered) > 3
    assert sum(offered.values()) % 700 == 0
    assert sizes == {number: offered[number] for number in sizes}


def _counts(checkpoint: Path) -> dict[int, Any]:
    return {number: batch.gates for number, batch in read_journal(checkpoint / "penstock").batches.items()}


def test_by_arrival_the_journal_decides(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    """Arrival times follow the wall clock, so that decisions fall among them."""
    register_replay(session)
    reader = session.readStream.format("penstock-replay").option("generator", "constant").option("rate", 3000)
    source = reader.option("duration", "60s").load()
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(source, name="in", arrival="arrival", identity="seq", weight_column="w")
        kept = gated.select("seq", "arrival", "w")
        writer = kept.writeStream.format("memory").queryName("arrivals").option("checkpointLocation", str(tmp_path / "cp"))
        query = shedder.start(writer, by="arrival")
        # A decision holds for rows that arrive later, and nine quick batches may all be of rows that came before.
        wait_until(lambda: shedder.report().table.num_rows > 8 and not session.table("arrivals").where("w > 1").isEmpty(), query)
    ledger = shedder.report().table.to_pylist()
    rows = to_arrow(session.table("arrivals"))
    micros = rows["arrival"].cast(pa.int64()).to_numpy()
    gate = shedder._gates["in"]
    keep = gate.state.ring.table().lookup(micros >> SLOT_SHIFT)
    assert len(set(keep.tolist())) > 1
    assert (uniform(gate_seed("in"), [rows["seq"].combine_chunks()]) < keep).all()
    assert rows["w"].to_numpy() == pytest.approx(1 / keep)
    # Every row that should be there is, and the ledger counts them; stop() may have cut off a batch that is in neither's log.
    last = sum(row["offered"] for row in ledger)
    assert sum(seq < last for seq in rows["seq"].to_pylist()) == sum(row["kept"] for row in ledger)
    assert [row["batch_id"] for row in ledger] == list(range(len(ledger)))
    assert read_journal(tmp_path / "cp" / "penstock").decisions


@pytest.mark.parametrize("how", ["by batch", "by arrival"])
def test_not_overloaded_the_output_is_the_same(session: SparkSession, tmp_path: Path, how: str) -> None:
    register_replay(session)
    traffic = {"generator": "b-model", "rate": "2000", "duration": "4s", "bias": "0.6", "seed": "5"}
    rows = b_model(2000, 4, 0.6, 5).size

    def job(df: DataFrame) -> DataFrame:
        return df.groupBy((F.col("seq") % 7).alias("k")).agg(F.count("*").alias("n"), F.sum("seq").alias("s"))

    def result(name: str, query: StreamingQuery) -> list[tuple[int, int, int]]:
        def found() -> list[tuple[int, int, int]]:
            return sorted(tuple(row) for row in session.table(name).collect())

        wait_until(lambda: sum(n for _, n, _ in found()) >= rows, query)
        return found()

    def source() -> DataFrame:
        return session.readStream.format("penstock-replay").options(**traffic).load()

    def writer(df: DataFrame, name: str) -> DataStreamWriter:
        sink = df.writeStream.outputMode("complete").format("memory").queryName(name)
        return sink.option("checkpointLocation", str(tmp_path / name))

    plain = writer(job(source()), "plain").start()
    want = result("plain", plain)
    plain.stop()
    with Shedder("20s") as shedder:  # far above what a batch takes here, far below what a stall of the test would take
        gated = job(shedder.gate(source(), arrival="arrival"))
        if how == "by batch":
            query = shedder.write(gated, "memory", checkpoint=str(tmp_path / "shed"), name="shed", output_mode="complete")
            wait_until(lambda: session.catalog.tableExists("shed"), query)
        else:
            query = shedder.start(writer(gated, "shed"), by="arrival")
        assert result("shed", query) == want
    assert sum(n for _, n, _ in want) == rows
    assert sum(shedder.report().table["shed"].to_pylist()) == 0


@pytest.mark.parametrize("how", ["by batch", "by arrival"])
def test_a_broken_controller_does_not_stop_the_job(
    ticks: Ticks, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"), Shedder("2s", controller=Broken(2.0)) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        if how == "by batch":
            query = shedder.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "cp")
        else:
            writer = gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
            query = shedder.start(writer, by="arrival")
        wait_until(lambda: shedder.report().table.num_rows > 3, query)
    report = shedder.report()
    assert report.table["shed"].to_pylist() == [0] * report.table.num_rows
    assert any("RuntimeError: no idea" in line for line in report.errors)
    assert "RuntimeError: no idea" in str(report)
    assert "RuntimeError: no idea" in caplog.text


def test_a_function_that_evaluates_the_batch_twice_is_counted_once(ticks: Ticks, tmp_path: Path) -> None:
    sums: dict[int, int] = {}

    def twice(df: DataFrame, number: int) -> None:
        if not df.isEmpty():
            sums[number] = len(df.collect())
            df.write.format("noop").mode("overwrite").save()

    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, twice, checkpoint=tmp_path / "cp")
        wait_until(lambda: len(sums) > 4, query)
    ledger = {row["batch_id"]: (row["offered"], row["kept"]) for row in shedder.report().table.to_pylist()}
    assert {number: ledger[number] for number in sums} == {number: (1_000, kept) for number, kept in sums.items()}


def test_counts_that_may_be_too_high_are_noted_in_the_report(
    ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor is lost, and the batch can't be counted again."""

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no executor is left")

    monkeypatch.setattr("penstock.spark.batch_driver.count_once", fail)
    monkeypatch.setattr("penstock.spark.repeated_tasks.RepeatWatch.has_repeats", lambda *_: True)
    done: list[int] = []

    def count_twice(df: DataFrame, number: int) -> None:  # in local mode, only who starts several jobs is looked at
        done.append(number + 0 * df.count() * df.count())

    with Shedder("2s") as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp")
        query = shedder.foreach_batch(gated, count_twice, checkpoint=tmp_path / "cp")
        wait_until(lambda: len(done) > 2, query)
    assert str(shedder.report()).count("executors were lost, and rows of a batch may have been counted twice") == 1


def test_restart_takes_up_where_it_was(ticks: Ticks, tmp_path: Path) -> None:
    seen: dict[int, list[int]] = {}
    for lives in (1, 2):
        with Shedder("2s", controller=Cycle()) as shedder:
            gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
            query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp", name="q")
            wait_until(lambda: len(seen) > 3 * lives, query)  # noqa: B023 - used at once
    ledger = {row["batch_id"]: row["kept"] for row in shedder.report().table.to_pylist()}
    assert ledger == {number: len(values) for number, values in seen.items()}
    assert sorted(seen) == list(range(len(seen)))


def test_a_batch_whose_counts_a_crash_took_is_counted_again(ticks: Ticks, tmp_path: Path) -> None:
    """The last file of the journal is gone: Spark has committed the batch, the ledger does not know it."""
    checkpoint = tmp_path / "cp"

    def live(batches: int) -> Report:
        with Shedder("2s", controller=Cycle()) as shedder:
            gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
            counted = gated.groupBy((F.col("value") % 7).alias("k")).count()
            writer = counted.writeStream.outputMode("update").format("noop").option("checkpointLocation", str(checkpoint))
            query = shedder.start(writer, by="arrival")
            wait_until(lambda: shedder.report().table.num_rows > batches, query)
        return shedder.report()

    live(3)
    before = read_journal(checkpoint / "penstock")
    lost = max(before.batches)
    newest = max((checkpoint / "penstock").glob("0*.json"))
    newest.unlink()
    assert max(read_journal(checkpoint / "penstock").batches) == lost - 1
    live(lost + 3)
    after = read_journal(checkpoint / "penstock")
    assert after.batches[lost].recounted
    assert after.batches[lost].gates == before.batches[lost].gates
    assert not list((checkpoint / "penstock").glob(".recount*"))


def test_the_first_batch_is_counted_again_too(ticks: Ticks, tmp_path: Path) -> None:
    """By arrival, a crash came before anything was counted: the journal has nothing but the mark of the run."""
    checkpoint = tmp_path / "cp"

    def live(batches: int) -> None:
        with Shedder("2s", controller=Cycle()) as shedder:
            gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
            writer = gated.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            query = shedder.start(writer, by="arrival")
            wait_until(lambda: shedder.report().table.num_rows >= batches, query)

    live(1)
    before = read_journal(checkpoint / "penstock")
    for counted in sorted((checkpoint / "penstock").glob("0*.json"))[1:]:
        counted.unlink()
    assert not read_journal(checkpoint / "penstock").batches
    live(max(before.batches) + 2)
    after = read_journal(checkpoint / "penstock").batches
    assert sorted(after) == list(range(len(after)))
    assert after[0].recounted
    assert after[0].gates == before.batches[0].gates


def test_several_gates_and_several_queries(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        left = shedder.gate(ticks(), name="left", arrival="timestamp", identity="value")
        right = shedder.gate(ticks(500), name="right", arrival="timestamp", identity="value")
        both = left.select("value").union(right.select("value"))
        first = shedder.foreach_batch(both, collect_into(seen := {}), checkpoint=tmp_path / "one", name="one")
        third = shedder.gate(ticks(300), name="third", arrival="timestamp", identity="value")
        second = shedder.start(
            third.writeStream.format("noop").queryName("two").option("checkpointLocation", str(tmp_path / "two")), by="arrival"
        )
        wait_until(lambda: len(seen) > 3, first)
        wait_until(lambda: "third" in shedder.report().table["gate"].to_pylist(), second)
    table = shedder.report().table.to_pylist()
    assert {(row["query"], row["gate"]) for row in table} == {("one", "left"), ("one", "right"), ("two", "third")}
    decisions = read_journal(tmp_path / "one" / "penstock")
    for number, values in seen.items():
        keep = decisions.decision_for(number).keep
        one = expected(1_000 * number, 1_000 * (number + 1), keep, "left")
        two = expected(500 * number, 500 * (number + 1), keep, "right")
        assert values == sorted(one + two)
        offered = {
            row["gate"]: (row["offered"], row["kept"]) for row in table if row["batch_id"] == number and row["query"] == "one"
        }
        assert offered == {"left": (1_000, len(one)), "right": (500, len(two))}


def test_two_queries_by_arrival_may_read_one_gate(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        queries = [
            shedder.start(
                gated.writeStream.format("noop").queryName(n).option("checkpointLocation", str(tmp_path / n)), by="arrival"
            )
            for n in ("a", "b")
        ]
        for query in queries:
            wait_until(lambda: {"a", "b"} <= set(shedder.report().table["query"].to_pylist()), query)
        wait_until(lambda: len(shedder._gates["in"].state.ring.changes) > 3)
        changes = dict(shedder._gates["in"].state.ring.changes)  # one may decide when the other has ended
    for name in ("a", "b"):
        decisions = [decision for decision in read_journal(tmp_path / name / "penstock").decisions if decision.gates]
        journaled = {decision.from_slot: decision.gates["in"] for decision in decisions}
        assert {slot: journaled[slot] for slot in changes} == changes


def test_attach_to_a_query_that_runs(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp")).start()
        assert shedder.attach(query) is query
        wait_until(lambda: shedder.report().table.num_rows > 3, query)
    assert not query.isActive
    with pytest.raises(PenstockError, match="has ended"):
        shedder.attach(query)


def test_attach_warns_of_answers_that_weights_cannot_correct(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        highest = gated.groupBy().agg(F.max("value"))
        writer = highest.writeStream.format("noop").outputMode("complete")
        shedder.attach(writer.option("checkpointLocation", str(tmp_path / "cp")).start())
        assert any("max over a gate of rows covers only the rows kept" in line for line in shedder.report().errors)


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files_are_written_once_a_batch(ticks: Ticks, session: SparkSession, tmp_path: Path, kind: str) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value").select("value")
        options = {"header": True} if kind == "csv" else {}
        query = shedder.write(gated, kind, tmp_path / "out", checkpoint=tmp_path / "cp", **options)
        wait_until(lambda: shedder.report().table.num_rows > 2, query)
    read = session.read.format(kind).options(**options).load(str(tmp_path / "out"))
    written = {row["batch_id"]: row["count"] for row in read.groupBy("batch_id").count().collect()}
    kept = {row["batch_id"]: row["kept"] for row in shedder.report().table.to_pylist()}
    assert written == {number: rows for number, rows in kept.items() if rows}


def test_console(ticks: Ticks, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Shedder("2s") as shedder:
        gated = shedder.gate(ticks(5), name="in", arrival="timestamp")
        query = shedder.write(gated, "console", checkpoint=tmp_path / "cp", numRows=2)
        wait_until(lambda: shedder.report().table.num_rows > 1, query)
    printed = capsys.readouterr().out
    assert "-- batch 0: 5 rows" in printed
    assert "-- batch 1: 5 rows" in printed


def test_without_a_checkpoint_the_journal_lies_in_the_one_that_spark_made(ticks: Ticks) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        first = shedder.gate(ticks(), name="a", arrival="timestamp", identity="value")
        second = shedder.gate(ticks(), name="b", arrival="timestamp", identity="value")
        queries = {
            "a": shedder.foreach_batch(first, lambda df, n: df.collect()),
            "b": shedder.start(second.writeStream.format("memory").queryName("nowhere"), by="arrival"),
        }
        wait_until(lambda: {"a", "b"} <= set(shedder.report().table["gate"].to_pylist()), queries["a"])
        for gate, query in queries.items():  # Spark removes such a checkpoint when the query stops
            made_by_spark = query._jsq.streamingQuery().resolvedCheckpointRoot()
            state = read_journal(f"{made_by_spark}/penstock")
            assert state.owner["job"] == query.id
            assert {name for record in state.batches.values() for name in record.gates} == {gate}


def test_a_journal_of_ones_own_choice(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle(), journal=tmp_path / "journals") as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: shedder.report().table.num_rows > 1, query)
    assert read_journal(tmp_path / "journals" / "q").batches
    # A new checkpoint is a new job: it must not go on with the old one's journal.
    with Shedder("2s", journal=tmp_path / "journals") as other:
        gated = other.gate(ticks(), name="in", arrival="timestamp", identity="value")
        with pytest.raises(JournalError, match="but the checkpoint is new"):
            other.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "cp2", name="q")
    # Nor may two jobs that run at the same time.
    with Shedder("2s", journal=tmp_path / "journals") as one, Shedder("2s", journal=tmp_path / "journals") as two:
        gated = one.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = one.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "cp", name="q")
        again = two.gate(ticks(), name="in", arrival="timestamp", identity="value")
        with pytest.raises(JournalError, match="in use by another job"):
            two.foreach_batch(again, lambda df, n: df.collect(), checkpoint=tmp_path / "cp3", name="q")
        assert query.isActive


def test_a_full_disk_keeps_the_last_table_and_the_job(ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, list[int]] = {}
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, collect_into(seen), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(seen) > 3, query)

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(filesystem_module.os, "fsync", full)
        mark = len(seen)
        wait_until(lambda: len(seen) > mark + 3, query)
        during = range(mark + 1, mark + 3)
        monkeypatch.undo()
        mark = len(seen)
        wait_until(lambda: len(seen) > mark + 3, query)
    state = read_journal(next((tmp_path / "cp").glob("penstock")))
    assert sorted(state.batches) == list(range(len(seen)))  # no count is lost
    assert {number: b.gates["in"][1] for number, b in state.batches.items()} == {n: len(v) for n, v in seen.items()}
    shares = {len(seen[number]) / 1_000 for number in during}
    assert max(shares) - min(shares) < 0.06  # the last table stayed
    assert any("No space left on device" in line for line in shedder.report().errors)


def test_the_users_own_error_passes_through(ticks: Ticks, tmp_path: Path) -> None:
    def fails(df: DataFrame, number: int) -> None:
        raise KeyError("the user's own")

    with Shedder("2s") as shedder:
        gated = shedder.gate(ticks(), arrival="timestamp")
        query = shedder.foreach_batch(gated, fails, checkpoint=tmp_path / "cp")
        wait_until(lambda: query.exception() is not None, seconds=30)
        assert "the user's own" in str(query.exception())


def test_what_was_kept_of_each_class_is_in_the_report(ticks: Ticks, tmp_path: Path) -> None:
    class Half(Controller):
        def update(self, observation: Observation) -> Decision:
            return Decision(keep=0.5)

    with Shedder("2s", controller=Half(2.0)) as shedder:
        gated = shedder.gate(
            ticks(rows=1_000), name="in", identity="value", priorities=Priorities(F.col("value") % 2, {0: 3, 1: 1})
        )
        query = shedder.foreach_batch(gated, lambda df, _: df.collect(), checkpoint=tmp_path)
        wait_until(lambda: shedder.report().table.num_rows > 4, query)
    (ledger,) = shedder.report().queries
    even, odd, other = ledger.shares()
    offered, kept = ledger.state.totals()["in"]
    assert (even.offered, odd.offered, other.offered) == (offered / 2, offered / 2, 0)
    assert even.kept + odd.kept == kept
    assert even.kept > 2 * odd.kept
    assert even.spread < odd.spread


def test_unnamed_classes_are_reported(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(
            ticks(), name="in", arrival="timestamp", identity="value", priorities=Priorities(F.col("value") % 3, {0: 9, 1: 1})
        )
        query = shedder.foreach_batch(gated, collect_into(seen := {}), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(seen) > 6, query)
    assert any("rows of a class without a weight (known: 0, 1)" in line for line in shedder.report().errors)
    state = read_journal(tmp_path / "cp" / "penstock")
    low = [number for number in seen if state.decision_for(number).keep == 0.1 and number > 2]
    for number in low:
        kept = np.bincount(np.array(seen[number]) % 3, minlength=3)
        assert sum(kept) == pytest.approx(100, abs=40)
        assert kept[0] > 4 * max(kept[1], kept[2])


@pytest.mark.slow
def test_as_many_classes_as_a_plan_can_hold(ticks: Ticks, session: SparkSession, tmp_path: Path) -> None:
    """By arrival, where a table has a row of keeps for each slot of time."""
    keeps = tuple((np.arange(33) / 32).tolist())  # the last one is for all other classes
    journal = Journal(tmp_path / "cp" / "penstock")
    journal.append(DecisionRecord({"in": keeps}, 0.5, from_slot=0))
    journal.close()
    with Shedder("2s", controller=KeepAll(2.0)) as shedder:
        priorities = Priorities(F.col("value") % 40, dict.fromkeys(range(32), 1.0))
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value", priorities=priorities, bounded=False)
        writer = gated.writeStream.format("memory").queryName("classes").option("checkpointLocation", str(tmp_path / "cp"))
        query = shedder.start(writer, by="arrival")
        wait_until(lambda: shedder.report().table.num_rows > 3, query)
    batches = read_journal(tmp_path / "cp" / "penstock").batches
    ids = np.arange(1_000 * len(batches))
    expected = ids[uniform(gate_seed("in"), [pa.array(ids)]) < np.array(keeps)[np.minimum(ids % 40, 32)]]
    rows = to_arrow(session.table("classes"))["value"].to_numpy()
    assert sorted(rows[rows < len(ids)].tolist()) == expected.tolist()
    assert sum(batch.gates["in"][1] for batch in batches.values()) == len(expected)


def test_triggers_are_written_as_durations_are(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(), name="in")
    with pytest.raises(PenstockError, match="trigger must be a duration such as '2s', '500ms' or '1 min', got 'soon'"):
        shedder.foreach_batch(gated, lambda *_: None, checkpoint=tmp_path, trigger="soon")
    seen: list[float] = []
    with shedder:  # and nothing of it was left behind
        query = shedder.foreach_batch(gated, lambda *_: seen.append(time.time()), checkpoint=tmp_path, trigger="300ms")
        wait_until(lambda: len(seen) > 8, query)
    # The first batch is slow, and the next ones catch up with the clock.
    assert np.median(np.diff(seen)[3:]) == pytest.approx(0.3, abs=0.1)


def test_durations(ticks: Ticks) -> None:
    assert Shedder("500ms").delay_target == 0.5
    assert Shedder(3).delay_target == 3.0


def test_a_query_stopped_by_the_user_lets_go_of_its_journal(ticks: Ticks, tmp_path: Path) -> None:
    shedder = Shedder("2s")
    gated: Any = shedder.gate(ticks(), name="in", arrival="timestamp")
    writer = gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    query = shedder.start(writer, by="arrival")
    wait_until(lambda: shedder.report().table.num_rows > 1, query)
    query.stop()
    wait_until(lambda: shedder._registry.drivers[0].is_closed)
    Journal(tmp_path / "cp" / "penstock").close()
    shedder.stop()


def test_reports_that_come_late_twice_or_never(ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three reports one is lost, one comes twice, and one comes again after the next; garbage comes too."""
    from penstock.spark.arrival_driver import ArrivalDriver

    deliver, kept_back = ArrivalDriver.report, []

    def unreliable(self: ArrivalDriver, text: str) -> None:
        number = json.loads(text)["batchId"]
        if number % 3 == 1:
            return
        deliver(self, text)
        for old in kept_back:
            deliver(self, old)
        kept_back[:] = [text]
        deliver(self, "{")

    monkeypatch.setattr(ArrivalDriver, "report", unreliable)
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        writer = gated.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "cp"))
        query = shedder.start(writer, by="arrival")
        wait_until(lambda: shedder.report().table.num_rows > 8, query)
        controller = shedder._registry.drivers[0].core.controller
    assert isinstance(controller, Cycle)
    seen = [o.batch_id for o in controller.seen]
    assert seen == sorted(set(seen))
    ledger = shedder.report().table.to_pylist()
    assert [row["batch_id"] for row in ledger] == list(range(len(ledger)))
    assert [row["offered"] for row in ledger] == [1_000] * len(ledger)
    assert any("could not take in a batch" in line for line in shedder.report().errors)


def test_without_arrival_times_there_is_no_delay(ticks: Ticks, tmp_path: Path) -> None:
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(ticks(), name="in", identity="value")
        query = shedder.foreach_batch(gated, lambda df, n: df.collect(), checkpoint=tmp_path / "cp")
        wait_until(lambda: shedder.report().table.num_rows > 3, query)
    assert shedder.report().table["delay_s"].null_count == shedder.report().table.num_rows
    assert sum(shedder.report().table["shed"].to_pylist()) > 0
