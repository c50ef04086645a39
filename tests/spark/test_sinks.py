"""Sinks of ``Shedder.write`` that know a batch by its number; a database in memory stands for all databases."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pyspark
from pyspark.sql import functions as F

from penstock import PenstockError, Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.spark.sinks import jdbc_sink

from .conftest import KEEPS, Cycle, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCALA = "2.12:3." if pyspark.__version__.startswith("3.") else "2.13:4."
Ticks = Callable[..., "DataFrame"]
ROWS = 200
NUMBERS = itertools.count()


@pytest.fixture
def url() -> str:
    """A database of its own, in the JVM's memory: Derby comes with Spark."""
    return f"jdbc:derby:memory:db{next(NUMBERS)};create=true"


def expected(batches: int) -> Counter[int]:
    """What the gate keeps of so many batches, from the numpy twin alone."""
    kept: Counter[int] = Counter()
    for batch_id in range(batches):
        values = np.arange(ROWS * batch_id, ROWS * (batch_id + 1))
        keep = 1.0 if batch_id == 0 else KEEPS[batch_id % 3]
        kept.update(values[uniform(gate_seed("in"), [pa.array(values)]) < keep].tolist())
    return kept


def run(source: DataFrame, checkpoint: Path, batches: int, **options: Any) -> None:
    """Write until so many batches are counted."""
    shape = options.pop("shape", lambda gated: gated.select("value"))
    with Shedder("2s", controller=Cycle()) as shedder:
        gated = shedder.gate(source, name="in", identity="value")
        query = shedder.write(shape(gated), "jdbc", checkpoint=checkpoint, trigger="20ms", **options)
        wait_until(lambda: len(read_journal(checkpoint / "penstock").batches) >= batches, query)


def read(spark: SparkSession, url: str, table: str) -> list[Any]:
    return spark.read.format("jdbc").option("url", url).option("dbtable", table).load().collect()


def forget_commits(checkpoint: Path, number: int) -> int:
    """Leave the checkpoint as a crash before the last commits would, and return the batch that is replayed."""
    commits = sorted(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for batch_id in commits[-number:]:
        (checkpoint / "commits" / str(batch_id)).unlink()
        (checkpoint / "commits" / f".{batch_id}.crc").unlink(missing_ok=True)
        if batch_id > commits[-number]:
            (checkpoint / "offsets" / str(batch_id)).unlink()
            (checkpoint / "offsets" / f".{batch_id}.crc").unlink(missing_ok=True)
    return commits[-number]


def test_a_replayed_batch_is_in_the_database_once(session: SparkSession, ticks: Ticks, tmp_path: Path, url: str) -> None:
    run(ticks(ROWS), tmp_path, 3, url=url, table="results")
    replayed = forget_commits(tmp_path, 1)
    run(ticks(ROWS), tmp_path, replayed + 3, url=url, table="results")
    ledger = read_journal(tmp_path / "penstock").batches
    rows = Counter(row[0] for row in read(session, url, "results"))
    assert rows == expected(len(ledger))
    assert sum(rows.values()) == sum(record.gates["in"][1] for record in ledger.values())
    assert ledger[replayed].gates["in"] == (ROWS, sum(expected(replayed + 1).values()) - sum(expected(replayed).values()))
    assert [tuple(row)[1:] for row in read(session, url, "penstock_batches")] == [("results", max(ledger))]


def test_a_transaction_that_fails_leaves_nothing(
    session: SparkSession, ticks: Ticks, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(ticks(ROWS), tmp_path, 2, url=url, table="results")
    before = len(read(session, url, "results"))
    real = jdbc_sink.build_statements

    def build(*arguments: Any) -> Any:
        yield from real(*arguments)
        yield "INSERT INTO no_such_table VALUES (1)"

    monkeypatch.setattr(jdbc_sink, "build_statements", build)
    with pytest.raises(AssertionError, match="StreamingQueryException"):
        run(ticks(ROWS), tmp_path, 99, url=url, table="results")
    assert len(read(session, url, "results")) == before
    monkeypatch.undo()
    run(ticks(ROWS), tmp_path, 4, url=url, table="results")
    assert Counter(row[0] for row in read(session, url, "results")) == expected(len(read_journal(tmp_path / "penstock").batches))


def test_rows_replace_those_of_their_key(session: SparkSession, ticks: Ticks, tmp_path: Path, url: str) -> None:
    def count(gated: DataFrame) -> DataFrame:
        return gated.groupBy((F.col("value") % 5).alias("rest")).count()

    run(ticks(ROWS), tmp_path, 4, url=url, table="counts", key="rest", output_mode="update", shape=count)
    kept = expected(len(read_journal(tmp_path / "penstock").batches))
    assert dict(map(tuple, read(session, url, "counts"))) == Counter(value % 5 for value in kept)


def test_a_complete_result_replaces_the_last(session: SparkSession, ticks: Ticks, tmp_path: Path, url: str) -> None:
    run(ticks(ROWS), tmp_path, 3, url=url, table="total", output_mode="complete", shape=lambda gated: gated.groupBy().count())
    kept = expected(len(read_journal(tmp_path / "penstock").batches))
    assert [row[0] for row in read(session, url, "total")] == [sum(kept.values())]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("mongodb", {}, "format must be one of csv, json, parquet, console, memory, delta, iceberg, jdbc, kafka, got 'mongodb'"),
        ("kafka", {"topic": "t", "servers": "x:1"}, f"add org.apache.spark:spark-sql-kafka-0-10_{SCALA}"),
        ("delta", {"table": "t"}, "format 'delta' needs its connector"),
        ("iceberg", {"table": "t"}, "format 'iceberg' needs its connector"),
        ("jdbc", {"url": "jdbc:postgresql://x/y", "table": "t"}, "add org.postgresql:postgresql:"),
        ("jdbc", {"table": "t"}, "format 'jdbc' needs url= and table="),
        ("jdbc", {"url": "jdbc:derby:memory:none", "table": "t"}, "no connection to jdbc:derby:memory:none: "),
        ("jdbc", {"url": "jdbc:derby:memory:x", "table": "t", "output_mode": "update"}, "needs key="),
        ("jdbc", {"url": "jdbc:derby:memory:x", "table": "t", "key": "nothing"}, "there is no key column 'nothing'"),
        ("jdbc", {"url": "jdbc:derby:memory:x", "table": "t", "path": "/x"}, "takes no path, got '/x': name its table"),
    ],
)
def test_bad_sinks_are_refused_in_one_line(
    ticks: Ticks, tmp_path: Path, kind: str, options: dict[str, Any], message: str
) -> None:
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(ROWS))
    with pytest.raises(PenstockError) as refusal:
        shedder.write(gated, kind, checkpoint=tmp_path, **options)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_a_table_with_other_columns_is_refused(session: SparkSession, ticks: Ticks, tmp_path: Path, url: str) -> None:
    session.createDataFrame([("a",)], "value string").write.jdbc(url, "texts")
    session.createDataFrame([(1,)], "other long").write.jdbc(url, "others")
    shedder = Shedder("2s")
    gated = shedder.gate(ticks(ROWS)).select("value")
    with pytest.raises(PenstockError, match="column 'value' is string in table texts and bigint in the rows"):
        shedder.write(gated, "jdbc", checkpoint=tmp_path, url=url, table="texts")
    with pytest.raises(PenstockError, match="table others has no column 'value'; its columns are other"):
        shedder.write(gated, "jdbc", checkpoint=tmp_path, url=url, table="others")
    assert not list(tmp_path.iterdir())
