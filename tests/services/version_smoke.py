"""A smoke test of one Spark version, run by that version's Python: ``version_smoke.py DIRECTORY [crash] [brief]``.

By batch with a crash and its replay, a journal through Hadoop, by arrival, whole windows and whole keys. With ``crash`` the
process kills itself in the middle of a batch; without it, it goes on from there and then runs the rest, which ``brief`` ends
after the rows by arrival.
Prints one line per part, then ``fine``.
"""

# ruff: noqa: T201 - it says how far it got

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from penstock import Controller, Decision, Shedder, WholeKeys, WholeWindows, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000
KEEPS = (0.9, 0.1, 0.5)
START_MS = 1_700_000_000_000
CRASH_IN = 3


class Cycle(Controller):
    def update(self, observation: Any) -> Decision:
        return Decision(keep=KEEPS[(observation.batch_id + 1) % 3])


class Half(Controller):
    def update(self, observation: Any) -> Decision:
        return Decision(keep=0.5)


def wait(condition: Any, query: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.05)


def ticks(spark: SparkSession) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    return reader.option("startTimestamp", START_MS).option("advanceMillisPerBatch", 1_000).load()


def count_batches(checkpoint: Path) -> int:
    return len(read_journal(checkpoint / "penstock").batches) if (checkpoint / "penstock").exists() else 0


def by_batch(spark: SparkSession, root: Path, *, is_crashing: bool) -> None:
    """Every batch keeps the rows that its journaled keep says, also the one that a crash repeats."""
    seen, checkpoint = root / "seen", root / "by-batch"
    seen.mkdir(exist_ok=True)

    def write(df: DataFrame, number: int) -> None:
        values = sorted(row[0] for row in df.select("value").collect())
        place = seen / f"{number}.json"
        if number == CRASH_IN and place.exists():
            assert json.loads(place.read_text()) == values, "the replay kept other rows"
        place.write_text(json.dumps(values))
        if is_crashing and number == CRASH_IN:
            os.kill(os.getpid(), signal.SIGKILL)

    with Shedder("2s", controller=Cycle(2.0)) as shedder:
        gated = shedder.gate(ticks(spark), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, write, checkpoint=checkpoint)
        wait(lambda: count_batches(checkpoint) >= CRASH_IN + 3, query)
    state = read_journal(checkpoint / "penstock")
    for number, batch in state.batches.items():
        decision = state.decision_for(number)
        assert decision is not None
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        expected = ids[uniform(gate_seed("in"), [pa.array(ids)]) < decision.gates["in"][0]].tolist()
        assert json.loads((seen / f"{number}.json").read_text()) == expected, number
        assert batch.gates["in"] == (ROWS, len(expected)), batch
    assert len({decision.keep for decision in state.decisions}) == len(KEEPS)


def by_arrival(spark: SparkSession, root: Path) -> None:
    """A query that runs by itself, with Spark's own file sink: the ledger counts what Spark read and what is there."""
    source = spark.readStream.format("rate").option("rowsPerSecond", 2_000).option("numPartitions", 2).load()
    checkpoint = root / "by-arrival"
    with Shedder("2s", controller=Half(2.0)) as shedder:
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        writer = (
            gated.writeStream.format("parquet").option("path", str(root / "rows")).option("checkpointLocation", str(checkpoint))
        )
        query = shedder.start(writer.trigger(processingTime="500 milliseconds"), by="arrival")
        wait(lambda: any(kept < offered for offered, kept in _counts(checkpoint)), query)
    offered, kept = map(sum, zip(*_counts(checkpoint), strict=True))
    written = spark.read.parquet(str(root / "rows"))
    last = max(read_journal(checkpoint / "penstock").batches)
    assert last + 1 >= 2
    assert written.count() == written.select("value").distinct().count() == kept < offered, (written.count(), kept, offered)


def _counts(checkpoint: Path) -> list[tuple[int, int]]:
    if not (checkpoint / "penstock").exists():
        return []
    return [batch.gates["in"] for batch in read_journal(checkpoint / "penstock").batches.values()] or [(0, 0)]


def whole_windows(spark: SparkSession, root: Path) -> None:
    """Windows that come out are whole: those of two seconds have two batches."""
    checkpoint = root / "windows"
    with Shedder("2s", controller=Half(2.0)) as shedder:
        source = ticks(spark).withWatermark("timestamp", "1 seconds")
        gated = shedder.gate(source, name="w", unit=WholeWindows("timestamp", "2s"))
        counts = gated.groupBy(F.window("timestamp", "2 seconds")).count()
        writer = counts.writeStream.format("memory").queryName("windows").outputMode("complete")
        query = shedder.start(writer.option("checkpointLocation", str(checkpoint)))
        wait(lambda: count_batches(checkpoint) >= 12, query)
    found = [(row[0], row[1]) for row in spark.table("windows").select(F.unix_millis("window.start"), "count").collect()]
    last = max(start for start, _ in found)
    state = read_journal(checkpoint / "penstock")
    batches = len(state.batches)
    assert all(count == 2 * ROWS for start, count in found if start < last), found
    assert 0 < len(found) < batches // 2, "no window was shed"
    offered, kept = state.totals()["w"]
    assert (offered, kept) == (ROWS * batches, sum(count for _, count in found)), (offered, kept, found)


def whole_keys(spark: SparkSession, root: Path) -> None:
    """Keys are kept whole, or not at all; to a function that evaluates its batch twice."""
    checkpoint, rows = root / "keys", Counter()

    def write(df: DataFrame, number: int) -> None:
        counted = {row[0]: row[1] for row in df.groupBy("key").count().collect()}
        assert df.count() == sum(counted.values())
        rows.update(counted)

    with Shedder("2s", controller=Half(2.0)) as shedder:
        source = ticks(spark).withColumn("key", F.col("value") % 100)
        gated = shedder.gate(source, name="k", unit=WholeKeys("key"))
        query = shedder.foreach_batch(gated, write, checkpoint=checkpoint)
        wait(lambda: count_batches(checkpoint) >= 6, query)
    state = read_journal(checkpoint / "penstock")
    batches = len(state.batches)
    assert state.totals()["k"] == (ROWS * batches, sum(rows.values())), (state.totals(), rows)
    whole = {key for key, count in rows.items() if count >= (batches - 1) * ROWS / 100}
    assert 30 < len(whole) < 70, len(whole)
    first = state.batches[0].gates["k"][1]  # the first decision may keep other keys
    assert sum(rows.values()) == first + (batches - 1) * (state.batches[batches - 1].gates["k"][1])


def files_through_hadoop(spark: SparkSession, root: Path) -> None:
    """A journal where Spark's checkpoint manager writes its files, as in HDFS: a class that moved between versions."""
    from penstock.journal import DecisionRecord, Journal
    from penstock.spark.hadoop_store import HadoopStore
    from penstock.spark.versions import internals_of
    from penstock.storage import Lease

    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    location = f"file:{root / 'store'}"
    filesystem = jvm.org.apache.hadoop.fs.Path(location).getFileSystem(conf)
    store = HadoopStore(jvm, filesystem, conf, location, internals_of(spark))
    store.make()
    store.create("a", b"first")
    try:
        store.create("a", b"second")
        raise AssertionError("a file was created twice")
    except FileExistsError:
        assert store.read("a") == b"first"
    store.replace("a", b"third")
    store.replace("b", b"")
    assert (store.read("a"), store.read("b"), sorted(store.list_names())) == (b"third", b"", ["a", "b"])
    store.delete("a")
    assert store.list_names() == ["b"]
    for number in (1, 2):
        lease = Lease(store, 1.0)
        lease.acquire()
        lease.renew()
        assert (lease.number, lease.is_fresh) == (number, True)
        lease.release()
    for number in range(2):
        journal = Journal(store.below("journal"), "job")
        journal.append(DecisionRecord({"in": (0.5,)}, 0.5, batch_id=number))
        journal.close()
    assert [decision.batch_id for decision in read_journal(store.below("journal")).decisions] == [0, 1]


def main() -> None:
    root, is_crashing = Path(sys.argv[1]), "crash" in sys.argv[2:]
    spark = local_session("smoke", scratch=root / "spark")
    begin = time.monotonic()
    by_batch(spark, root, is_crashing=is_crashing)
    files_through_hadoop(spark, root)
    for part in (by_arrival,) if "brief" in sys.argv[2:] else (by_arrival, whole_windows, whole_keys):
        print(f"{part.__name__} after {time.monotonic() - begin:.0f} s", flush=True)
        part(spark, root)
    spark.stop()
    print("fine")


if __name__ == "__main__":
    main()
