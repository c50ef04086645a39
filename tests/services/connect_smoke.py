"""A smoke test of Spark Connect on one Spark version, run by that version's Python: ``connect_smoke.py DIRECTORY``.

A server of its own, then one query by arrival and one by batch: the rows that come out are those that the journal says, and the
ledger counts them. Prints one line per part, then ``fine``.
"""

# ruff: noqa: T201 - it says how far it got

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Controller, Decision, Observation, Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import SlotRing
from penstock.errors import JournalError

ROWS = 1_000
KEEPS = (0.9, 0.1, 0.5)
START_MS = 1_700_000_000_000


class Cycle(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=KEEPS[observation.batch_id % 3])


def wait_for_batches(journal: Path, batches: int, query: Any) -> None:
    deadline = time.monotonic() + 120.0
    while count_batches(journal) < batches:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "so many batches did not come in time"
        time.sleep(0.05)


def count_batches(journal: Path) -> int:
    try:
        return len(read_journal(journal).batches)
    except JournalError:  # there is none yet
        return 0


def draw(ids: np.ndarray) -> np.ndarray:
    return uniform(gate_seed("in"), [pa.array(ids)])


def by_arrival(spark: SparkSession, root: Path) -> None:
    """What the journal says of a row's arrival is what came out, and the ledger has all of it."""
    source = spark.readStream.format("rate").option("rowsPerSecond", ROWS).option("numPartitions", 2).load()
    with Shedder("2s", controller=Cycle(2.0), journal=root / "journal") as shedder:
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value", weight_column="weight")
        writer = gated.writeStream.format("parquet").option("path", str(root / "rows")).queryName("job")
        # It ends between two batches: one that is stopped may be written, and not reported.
        writer = writer.option("checkpointLocation", str(root / "checkpoint")).trigger(processingTime="2 seconds")
        query = shedder.start(writer, by="arrival")
        wait_for_batches(root / "journal" / "job", 5, query)
    state = read_journal(root / "journal" / "job")
    assert not state.errors, state.errors
    written = spark.read.parquet(str(root / "rows")).select("value", F.unix_micros("timestamp"), "weight").collect()
    ids, micros, weights = (np.array(column) for column in zip(*written, strict=True))
    (first,) = set((micros - ids * 1_000_000 // ROWS).tolist())
    ring = SlotRing(classes=1)
    ring.merge((int(d.from_slot or 0), d.gates["in"]) for d in state.decisions if "in" in d.gates)
    offered, kept = state.totals()["in"]
    everything = np.arange(offered)
    keeps = ring.table().lookup_arrivals(first + everything * 1_000_000 // ROWS)
    assert sorted(ids.tolist()) == everything[draw(everything) < keeps].tolist()
    assert np.allclose(weights, 1.0 / keeps[ids])
    assert len(ids) == kept < offered, (len(ids), kept, offered)
    assert len(set(keeps.tolist())) >= 3, "several decisions were in force"


def by_batch(spark: SparkSession, root: Path) -> None:
    """Every batch keeps the rows that its journaled keep says."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    source = reader.option("startTimestamp", START_MS).option("advanceMillisPerBatch", 1_000).load()
    with Shedder("2s", controller=Cycle(2.0), journal=root / "journal") as shedder:
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        writer = gated.writeStream.format("parquet").option("path", str(root / "rows")).queryName("job")
        query = shedder.start(writer.option("checkpointLocation", str(root / "checkpoint")), by="batch")
        wait_for_batches(root / "journal" / "job", 6, query)
    state, values = read_journal(root / "journal" / "job"), spark.read.parquet(str(root / "rows")).select("value").collect()
    ids = np.sort([row[0] for row in values])
    assert sorted(state.batches) == list(range(len(state.batches)))
    for number, batch in state.batches.items():
        decision = state.decision_for(number)
        assert decision is not None
        whole = np.arange(ROWS * number, ROWS * (number + 1))
        expected = whole[draw(whole) < decision.gates["in"][0]]
        assert ids[ids // ROWS == number].tolist() == expected.tolist(), number
        assert batch.gates["in"] == (ROWS, len(expected)), batch
    assert len({decision.keep for decision in state.decisions}) >= len(KEEPS)


def main() -> None:
    root = Path(sys.argv[1])
    os.chdir(root)  # the server writes there what it writes
    spark, begin = SparkSession.builder.remote("local[2]").getOrCreate(), time.monotonic()
    for part in (by_arrival, by_batch):
        print(f"{part.__name__} on Spark {spark.version} after {time.monotonic() - begin:.0f} s", flush=True)
        part(spark, root / part.__name__)
    spark.stop()
    print("fine")


if __name__ == "__main__":
    main()
