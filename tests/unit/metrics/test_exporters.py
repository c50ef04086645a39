"""Metrics on their way out: Prometheus, OpenTelemetry, and what happens if one of them fails."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import PenstockError
from penstock.journal import BatchRecord, DecisionRecord, JournalState
from penstock.metrics import Observers, build_exporters
from penstock.metrics.instruments import COUNTERS, GAUGES, HISTOGRAMS

BATCH = BatchRecord(
    0, {"in": (100, 40)}, start_s=10.0, end_s=12.0, mean_arrival_s=11.7, delay_target_s=2.0, expired={"in": 20}, backlog_rows=3
)
DECISION = DecisionRecord({"in": (0.4,)}, 0.4, batch_id=1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scrape(registry: Any) -> dict[tuple[str, ...], float]:
    """Return what Prometheus would read: (name, values of labels) to value."""
    text = prometheus_client.generate_latest(registry).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_happened() -> None:
    registry = prometheus_client.CollectorRegistry()
    observers = Observers(build_exporters(registry), "q", JournalState())
    observers.record([BATCH, DECISION], 12.5)
    observers.fail()
    read = scrape(registry)
    assert read["penstock_rows_offered_total", "in", "q"] == 100
    assert read["penstock_rows_kept_total", "in", "q"] == 40
    assert read["penstock_rows_shed_total", "in", "q", "overload"] == 40
    assert read["penstock_rows_shed_total", "in", "q", "expired"] == 20
    assert read["penstock_delay_seconds_bucket", "0.25", "q"] == 0
    assert read["penstock_delay_seconds_bucket", "0.5", "q"] == 1
    assert read["penstock_delay_seconds_sum", "q"] == pytest.approx(0.3)
    assert read["penstock_batch_seconds_count", "q"] == 1
    assert read["penstock_delay_target_seconds", "q"] == 2.0
    assert read["penstock_keep_ratio", "q"] == 0.4
    assert read["penstock_decision_errors_total", "q"] == 1
    assert read["penstock_journal_last_write_timestamp_seconds", "q"] == 12.5
    assert read["penstock_batch_start_timestamp_seconds", "q"] == 12.5


def test_two_shedders_share_a_registry() -> None:
    registry = prometheus_client.CollectorRegistry()
    for number in (1, 2):
        Observers(build_exporters(registry), "q", JournalState()).record([BatchRecord(0, {"in": (number, 0)})], 1.0)
    read = scrape(registry)
    assert read["penstock_rows_offered_total", "in", "q"] == 1
    assert read["penstock_rows_offered_total", "in", "q (2)"] == 2


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", 'a"b\\c\nd', "{query=1}", "äöü 日本", "a\ud800b", ""])
def test_names_from_data_are_escaped(name: str) -> None:
    registry = prometheus_client.CollectorRegistry()
    observers = Observers(build_exporters(registry), name, JournalState())
    observers.record([BatchRecord(0, {name: (5, 5)})], 1.0)
    shown = name.replace("\ud800", "?")
    assert scrape(registry)["penstock_rows_offered_total", shown, shown] == 5


def read_otel(reader: Any) -> dict[tuple[str, ...], Any]:
    data = reader.get_metrics_data()
    return {
        (metric.name, *(value for _, value in sorted(point.attributes.items()))): (metric.unit, point)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_opentelemetry_reads_what_happened() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    state = JournalState()
    state.add(BatchRecord(0, {"in": (1_000, 1_000)}))
    observers = Observers(build_exporters(provider), "q", state)
    observers.record([BatchRecord(1, {"in": (100, 40)}, start_s=10.0, end_s=12.0, mean_arrival_s=11.7, expired={"in": 20})], 12.0)
    read = read_otel(reader)
    unit, point = read["penstock.rows.offered", "in", "q"]
    assert (unit, point.value) == ("{row}", 100)  # without what the journal had: a delta must not begin with all of it
    assert read["penstock.rows.shed", "in", "q", "expired"][1].value == 20
    unit, delay = read["penstock.delay", "q"]
    assert (unit, delay.count, delay.sum) == ("s", 1, pytest.approx(0.3))
    assert read["penstock.batch", "q"][1].sum == 2.0
    assert read["penstock.query.active", "q"][1].value == 1.0
    again = Observers(build_exporters(provider), "q", JournalState())  # the instruments exist already
    again.record([BatchRecord(0, {"in": (7, 7)})], 1.0)
    assert read_otel(reader)["penstock.rows.offered", "in", "q (2)"][1].value == 7
    provider.shutdown()


def test_a_port_serves_and_is_shared() -> None:
    port = free_port()
    first, second = (Observers(build_exporters(port), "q", JournalState()) for _ in range(2))
    first.record([BATCH], 1.0)
    second.record([BATCH], 1.0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'penstock_rows_offered_total{gate="in",query="q"} 100.0' in text
    assert 'penstock_rows_offered_total{gate="in",query="q (2)"} 100.0' in text


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PenstockError, match=rf"can't be served at 127.0.0.1:{port}: .*give another port"):
            build_exporters(port)


@pytest.mark.parametrize("value", [True, 0, -1, 65_536, "", "prom", "host:", "host:99999", 9464.0, object(), {"port": 1}])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(PenstockError, match="metrics must be a port such as 9464"):
        build_exporters(value)


def test_nothing_and_lists() -> None:
    assert build_exporters(None) == []
    registry = prometheus_client.CollectorRegistry()
    named = Raising()
    assert build_exporters([registry, "mine"], {"mine": lambda: named})[1] is named


@pytest.mark.parametrize(
    ("value", "package"),
    [("'prometheus'", "prometheus_client"), ("9464", "prometheus_client"), ("'opentelemetry'", "opentelemetry")],
)
def test_a_missing_package_is_named(value: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom penstock.metrics import build_exporters\nbuild_exporters({value})"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'penstock[metrics]'" in run.stderr.splitlines()[-1]


class Raising:
    """An exporter that fails in every way."""

    def watch(self, query: str, state: JournalState) -> Raising:
        return self

    def record(self, *_: object) -> None:
        raise RuntimeError("no way out\nmore of it")

    def miss(self, *_: object) -> None:
        raise RuntimeError

    def fail(self) -> None:
        raise RuntimeError

    def close(self) -> None:
        raise RuntimeError


class Refusing(Raising):
    def watch(self, query: str, state: JournalState) -> Raising:
        raise RuntimeError


def test_an_exporter_that_fails_is_named_once_and_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    registry = prometheus_client.CollectorRegistry()
    observers = Observers([Raising(), Refusing(), *build_exporters(registry)], "q", JournalState())
    with caplog.at_level(logging.WARNING, logger="penstock"):
        observers.record([BATCH], 1.0)
        observers.miss([BatchRecord(1, {"in": (5, 5)}), DECISION], 2.0)
        observers.fail()
        observers.close()
    assert [record.getMessage() for record in caplog.records] == [
        "metrics could not be updated: RuntimeError: no reason given; the job goes on"
    ]
    read = scrape(registry)
    assert read["penstock_rows_offered_total", "in", "q"] == 105
    assert ("penstock_keep_ratio", "q") not in read  # a decision that is not durable never held


def test_an_exporter_that_fails_again_and_again_is_left_alone() -> None:
    class Flaky(Raising):
        calls = 0

        def record(self, *_: object) -> None:
            self.calls += 1
            if self.calls != 5:
                raise RuntimeError

    flaky = Flaky()
    observers = Observers([flaky], "q", JournalState())
    for _ in range(100):
        observers.record([BATCH], 1.0)
    assert flaky.calls == 15  # ten failures in a row; the fifth call worked


def test_every_name_in_rules_and_board_is_exported() -> None:
    """What a rule asks for must exist; a misspelt name would never fire."""
    import re

    import penstock.metrics

    exported = set()
    for group in (COUNTERS, GAUGES, HISTOGRAMS):
        for instrument in group.values():
            endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_sum", "_count", "_bucket")}[instrument.kind]
            exported |= {instrument.prometheus_name + ending for ending in endings}
    folder = Path(penstock.metrics.__file__).parent
    for name in ("alerts.yml", "grafana.json"):
        asked = set(re.findall(r"\bpenstock_\w+", (folder / name).read_text()))
        assert asked
        assert asked <= exported
