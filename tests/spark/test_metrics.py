"""Metrics of running jobs: the same numbers as the ledger, whatever exporters do."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import prometheus_client
import pytest

pytest.importorskip("pyspark")

from penstock import Shedder
from penstock.spark.accumulator_metrics import _REGISTERED

from .conftest import Cycle, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]


def ignore(df: DataFrame, number: int) -> None:
    df.write.format("noop").mode("overwrite").save()


class Failing:
    """An exporter that never works: it takes a query and then fails at everything."""

    def watch(self, query: str, state: object) -> Failing:
        return self

    def __getattr__(self, name: str) -> Any:
        raise OSError(f"no {name} today")


def read(registry: Any, name: str, **labels: str) -> float | None:
    value: float | None = registry.get_sample_value(name, labels)
    return value


def test_metrics_are_the_ledger_by_batch_and_by_arrival(
    ticks: Ticks, session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once with an exporter beside it that fails at everything, and through Spark's own metrics system too."""
    registry = prometheus_client.CollectorRegistry()
    shedder = Shedder("2s", controller=Cycle(), metrics=[registry, "spark"])
    shedder._registry._exporters = [Failing(), *shedder._registry._exporters]
    with shedder:
        one = shedder.gate(ticks(), name="one", arrival="timestamp", identity="value")
        two = shedder.gate(ticks(), name="two", arrival="timestamp", identity="value")
        first = shedder.foreach_batch(one, ignore, checkpoint=tmp_path / "one", name="<b>")
        second = shedder.start(
            two.writeStream.format("noop").option("checkpointLocation", tmp_path / "two").queryName("two"), by="arrival"
        )
        for query, label in ((first, "<b>"), (second, "two")):
            wait_until(lambda label=label: (read(registry, "penstock_batches_total", query=label) or 0) > 3, query)
        assert read(registry, "penstock_query_active", query="<b>") == 1.0
    rows: dict[str, list[int]] = {"one": [0, 0], "two": [0, 0]}
    for row in shedder.report().table.to_pylist():
        rows[row["gate"]][0] += row["offered"]
        rows[row["gate"]][1] += row["kept"]
    shown = read_spark_metrics(session)
    for gate, label, name in (("one", "<b>", "_b_"), ("two", "two", "two")):
        offered, kept = rows[gate]
        assert offered > 0
        assert read(registry, "penstock_rows_offered_total", query=label, gate=gate) == offered
        assert read(registry, "penstock_rows_kept_total", query=label, gate=gate) == kept
        shed = [
            read(registry, "penstock_rows_shed_total", query=label, gate=gate, reason=r) or 0 for r in ("overload", "expired")
        ]
        assert sum(shed) == offered - kept
        assert (read(registry, "penstock_delay_seconds_count", query=label) or 0) > 2
        assert (read(registry, "penstock_batch_seconds_count", query=label) or 0) > 2
        assert read(registry, "penstock_query_active", query=label) == 0.0
        assert read(registry, "penstock_decision_errors_total", query=label) == 0
        assert shown[f"penstock.{name}.{gate}.rows_offered"] == offered
        assert shown[f"penstock.{name}.{gate}.rows_kept"] == kept
    assert sum("metrics could not be updated" in record.getMessage() for record in caplog.records) == 2  # once per query


def read_spark_metrics(session: SparkSession) -> dict[str, int]:
    """Return the accumulators that Spark's metrics system shows; a service test reads them from its UI."""
    application = session.sparkContext.applicationId
    return {name: int(accumulator.value()) for (app, name), accumulator in _REGISTERED.items() if app == application}


def test_a_journal_that_can_t_be_written_is_seen(ticks: Ticks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.storage.local_store import LocalStore

    registry = prometheus_client.CollectorRegistry()
    create, is_full = LocalStore.create, [False]

    def fill(self: LocalStore, name: str, content: bytes) -> None:
        if is_full[0]:
            raise OSError(28, "No space left on device")
        create(self, name, content)

    monkeypatch.setattr(LocalStore, "create", fill)
    with Shedder("2s", controller=Cycle(), metrics=registry) as shedder:
        gated = shedder.gate(ticks(), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, ignore, checkpoint=tmp_path / "cp", name="q")
        wait_until(lambda: (read(registry, "penstock_batches_total", query="q") or 0) > 1, query)
        is_full[0] = True
        wait_until(lambda: read(registry, "penstock_journal_failing", query="q") == 1.0, query)
        wait_until(lambda: (read(registry, "penstock_journal_errors_total", query="q") or 0) > 3, query)
        assert (read(registry, "penstock_decision_errors_total", query="q") or 0) > 0
        is_full[0] = False
        wait_until(lambda: read(registry, "penstock_journal_failing", query="q") == 0.0, query)
    table = shedder.report().table.to_pylist()
    assert read(registry, "penstock_rows_offered_total", query="q", gate="in") == sum(row["offered"] for row in table)
    assert read(registry, "penstock_batches_total", query="q") == len(table)


def test_a_taken_port_stops_nothing_half_way() -> None:
    from penstock import PenstockError

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PenstockError, match="give another port"):
            Shedder("2s", metrics=taken.getsockname()[1])
