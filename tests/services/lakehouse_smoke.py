"""A lakehouse sink on one Spark version, run by that version's Python: ``lakehouse_smoke.py delta|iceberg DIRECTORY JARS``.

``Shedder.write`` and, through ``Shedder.start``, the format's own streaming sink. The last commits are forgotten, as a crash
would leave them, and the batch that is replayed must be in the table once. While everything is kept, the table is that of the
job without a gate. Prints ``fine`` at the end.
"""

# ruff: noqa: T201 - it says how far it got

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock import Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.spark.session import local_session
from tests.services.version_smoke import ROWS, Cycle, count_batches, ticks, wait

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # by default 50 tasks for each look at the table
    },
    "iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def start(shedder: Shedder, gated: DataFrame, kind: str, way: str, root: Path) -> Any:
    """Start the query: by ``write``, or with the format's own sink."""
    checkpoint = root / way
    if way == "write":
        target: dict[str, Any] = {"path": root / "table"} if kind == "delta" else {"table": "lake.db.written"}
        return shedder.write(gated, kind, checkpoint=checkpoint, **target)
    writer = gated.writeStream.format(kind).option("checkpointLocation", str(checkpoint))
    where = str(root / "started") if kind == "delta" else "lake.db.started"
    return shedder.start(writer.option("path", where))


def read(spark: SparkSession, kind: str, way: str, root: Path) -> list[int]:
    if kind == "delta":
        rows = spark.read.format("delta").load(str(root / ("table" if way == "write" else "started")))
    else:
        table = f"lake.db.{'written' if way == 'write' else 'started'}"
        spark.catalog.refreshTable(table)
        rows = spark.table(table)
    return sorted(row[0] for row in rows.select("value").collect())


def set_back(checkpoint: Path) -> None:
    """Leave the checkpoint as it was in its last batch but one: that is replayed, and the next one is planned again."""
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for folder, first in (("commits", last - 1), ("offsets", last)):
        for path in (checkpoint / folder).iterdir():
            if int(path.name.strip(".").split(".")[0]) >= first:
                path.unlink()


def check(spark: SparkSession, kind: str, way: str, root: Path) -> None:
    """Run, lose the last commits, run again: every row that the journaled keeps say is there, and once."""
    for batches in (4, 7):
        with Shedder("2s", controller=Cycle(2.0)) as shedder:
            gated = shedder.gate(ticks(spark), name="in", arrival="timestamp", identity="value")
            query = start(shedder, gated, kind, way, root)
            wait(lambda batches=batches: count_batches(root / way) >= batches, query)
        if batches == 4:
            set_back(root / way)
    state = read_journal(root / way / "penstock")
    expected: list[int] = []
    for number, batch in state.batches.items():
        decision = state.decision_for(number)
        assert decision is not None
        ids = np.arange(ROWS * number, ROWS * (number + 1))
        kept = ids[uniform(gate_seed("in"), [pa.array(ids)]) < decision.gates["in"][0]].tolist()
        assert batch.gates["in"] == (ROWS, len(kept)), (number, batch, len(kept))
        expected += kept
    found = read(spark, kind, way, root)
    assert found == sorted(expected), (len(found), len(expected))


def compare_without_shedding(spark: SparkSession, kind: str, root: Path) -> None:
    """While everything is kept, the table is that of the job without a gate."""
    tables: dict[str, list[Any]] = {}
    for name in ("plain", "gated"):
        checkpoint = root / f"{name}-checkpoint"
        where = str(root / name) if kind == "delta" else f"lake.db.{name}"
        if kind == "iceberg":
            spark.sql(f"CREATE TABLE {where} (timestamp timestamp, value bigint) USING iceberg")
        with Shedder("2s", controller="keep-all") as shedder:
            rows = ticks(spark)
            if name == "gated":
                rows = shedder.gate(rows, name="in", arrival="timestamp", identity="value")
            writer = rows.writeStream.format(kind).option("checkpointLocation", str(checkpoint)).option("path", where)
            query = shedder.start(writer) if name == "gated" else writer.start()
            wait(lambda commits=checkpoint / "commits": (commits / "3").exists(), query)
            query.stop()
        if kind == "iceberg":
            spark.catalog.refreshTable(where)
        written = spark.read.format("delta").load(where) if kind == "delta" else spark.table(where)
        tables[name] = sorted(written.where(f"value < {3 * ROWS}").select("value", "timestamp").collect())
    assert tables["gated"] == tables["plain"]
    assert len(tables["plain"]) == 3 * ROWS
    batches = read_journal(root / "gated-checkpoint" / "penstock").batches
    assert len(batches) >= 3
    assert {batch.gates["in"] for batch in batches.values()} == {(ROWS, ROWS)}


def main() -> None:
    kind, root, jars = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    settings = SETTINGS[kind] | {"spark.jars": jars}
    if kind == "iceberg":
        settings["spark.sql.catalog.lake.warehouse"] = str(root / "lake")
    spark = local_session("lake", scratch=root / "spark", **settings)
    if kind == "iceberg":
        spark.sql("CREATE TABLE lake.db.started (timestamp timestamp, value bigint) USING iceberg")
    for way in ("write", "start"):
        begin = time.monotonic()
        check(spark, kind, way, root)
        print(f"{kind}, {way}: {time.monotonic() - begin:.0f} s", flush=True)
    compare_without_shedding(spark, kind, root)
    spark.stop()
    print("fine")


if __name__ == "__main__":
    main()
