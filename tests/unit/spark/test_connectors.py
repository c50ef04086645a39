"""What is said about connectors that are missing or built for another Spark, and the sinks of tables, with fakes."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType

from penstock.errors import PenstockError
from penstock.spark.sinks import connectors, lakehouse
from penstock.spark.sinks.batch_identity import BatchIdentity

SCHEMA = StructType().add("value", LongType())


class FakeSpark:
    def __init__(self, version: str) -> None:
        self.version = version


@pytest.mark.parametrize(
    ("kind", "version", "jar", "message"),
    [
        (
            "delta",
            "4.3.0",
            None,
            "no release for Spark 4.3 is known; the newest is for Spark 4.2 (io.delta:delta-spark_4.2_2.13:",
        ),
        ("kafka", "3.5.7", None, "add org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7 to spark.jars.packages"),
        ("delta", "4.2.1", None, "add io.delta:delta-spark_4.2_2.13:"),
        ("iceberg", "4.1.4", None, "add org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:"),
        (
            "iceberg",
            "4.3.0",
            "iceberg-spark-runtime-4.1_2.13-1.12.0.jar",
            "1.12.0.jar is built for Spark 4.1, and this is Spark 4.3.0, where it fails inside itself",
        ),
    ],
)
def test_a_connector_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: str, version: str, jar: str | None, message: str
) -> None:
    monkeypatch.setattr(connectors, "_find_jar", lambda *_: jar)
    monkeypatch.setattr(connectors, "_find_scala", lambda _: "2.12", raising=False)
    with pytest.raises(PenstockError) as refusal:
        connectors.check_connector(FakeSpark(version), kind)  # type: ignore[arg-type]
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("jar", ["delta-spark_4.2_2.13-4.4.0.jar", "delta-spark_2.13-9.9.9.jar", ""])
def test_a_connector_that_fits_is_taken(monkeypatch: pytest.MonkeyPatch, jar: str) -> None:
    monkeypatch.setattr(connectors, "_find_jar", lambda *_: jar)
    connectors.check_connector(FakeSpark("4.2.1"), "delta")  # type: ignore[arg-type]


class Recorder:
    """Stands for Spark's writers: every call returns itself and is written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Recorder:
            self.calls.append((name, *arguments, *named.items()))
            return self

        return call


class FakeCatalog:
    def __init__(self, *, exists: bool) -> None:
        self.exists = exists

    def tableExists(self, name: str) -> bool:
        assert name == "db.t"
        return self.exists


class FakeTables(FakeSpark):
    """A session with one table, and the frame of a batch."""

    def __init__(self) -> None:
        super().__init__("4.1.4")
        self.catalog = FakeCatalog(exists=True)
        self.schema = SCHEMA
        self.sparkSession = self
        self.write = Recorder()
        self.writer = Recorder()

    def table(self, name: str) -> FakeTables:
        assert name == "db.t"
        return self

    def writeTo(self, name: str) -> Recorder:
        assert name == "db.t"
        return self.writer


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> FakeTables:
    monkeypatch.setattr(lakehouse, "check_connector", lambda *_: None)
    monkeypatch.setattr(BatchIdentity, "read", lambda _, number: BatchIdentity("q1", "r1", number))
    return FakeTables()


def test_delta_gets_the_query_and_the_number(tables: FakeTables) -> None:
    sink = lakehouse.DeltaSink(tables, SCHEMA, None, "append", {"table": "db.t"})  # type: ignore[arg-type]
    sink(tables, 7)  # type: ignore[arg-type]
    calls = tables.write.calls
    assert ("option", "txnAppId", "q1") in calls
    assert ("option", "txnVersion", "7") in calls
    assert ("mode", "append") in calls
    assert calls[-1] == ("saveAsTable", "db.t")


def test_iceberg_leaves_out_a_first_batch_that_it_has(tables: FakeTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakehouse.IcebergSink, "_last_batch", lambda _, session, query: {"q1": 7}[query])
    for first, appended in ((7, []), (8, [8]), (3, [])):
        sink = lakehouse.IcebergSink(tables, SCHEMA, "append", {"table": "db.t"})  # type: ignore[arg-type]
        tables.writer.calls.clear()
        sink(tables, first)  # type: ignore[arg-type]
        numbers = [int(call[2]) for call in tables.writer.calls if call[:2] == ("option", "snapshot-property.penstock-batch")]
        assert numbers == appended
        sink(tables, 9)  # type: ignore[arg-type] # only the first can be a replay
        assert tables.writer.calls[-1] == ("append",)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: lakehouse.DeltaSink(s, SCHEMA, None, "append", {}), "format 'delta' needs a path, or table="),
        (lambda s: lakehouse.DeltaSink(s, SCHEMA, None, "update", {"table": "db.t"}), "not 'update': merge in a function"),
        (lambda s: lakehouse.IcebergSink(s, SCHEMA, "append", {}), "format 'iceberg' needs table="),
        (lambda s: lakehouse.IcebergSink(s, StructType().add("x", LongType()), "append", {"table": "db.t"}), "has no column 'x'"),
        (
            lambda s: lakehouse.DeltaSink(s, StructType().add("x", LongType()), None, "append", {"table": "db.t"}),
            "table db.t has no column 'x'; its columns are value",
        ),
    ],
)
def test_bad_tables_are_refused(tables: FakeTables, make: Any, message: str) -> None:
    with pytest.raises(PenstockError) as refusal:
        make(tables)
    assert message in str(refusal.value)
