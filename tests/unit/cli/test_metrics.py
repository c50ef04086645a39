"""``penstock metrics``."""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from penstock.cli import main
from penstock.journal import BatchRecord, Journal


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["metrics", *arguments])
    return int(ended.value.code or 0)


def test_once_prints_what_a_journal_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client")
    journal = Journal(tmp_path / "penstock", "me")
    journal.append(BatchRecord(0, {"in": (100, 40)}))
    journal.close()
    assert run(str(tmp_path), "--once") == 0
    out = capsys.readouterr().out
    assert f'penstock_rows_shed_total{{gate="in",query="{tmp_path.name}",reason="overload"}} 60.0' in out
    assert "penstock_query_active{" not in out


def test_rules_and_board_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--rules") == 0
    assert {rule["alert"] for rule in yaml.safe_load(capsys.readouterr().out)["groups"][0]["rules"]} >= {
        "PenstockDelayTargetMissed",
        "PenstockLossAboveBudget",
        "PenstockJournalNotWritten",
    }
    assert run("--board") == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Penstock"


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client")
    for arguments, words in (
        ((), "metrics needs a directory"),
        ((str(tmp_path), "--once"), f"there is no journal in {tmp_path}"),
        ((str(tmp_path / "no"), "--once"), "there is no directory"),
        ((str(tmp_path), "--port", "70000"), "--port"),
        ((str(tmp_path), "--otlp", "localhost"), "--otlp must be a URL"),
    ):
        assert run(*arguments) == 2
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1


class Collector(BaseHTTPRequestHandler):
    """What an OpenTelemetry collector does with a request: take it."""

    received: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_collector_gets_them(tmp_path: Path) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from penstock.cli.metrics import _connect
    from penstock.metrics.journal_poll import JournalPoll
    from penstock.metrics.opentelemetry_meter import export_to

    journal = Journal(tmp_path / "penstock", "me")
    journal.append(BatchRecord(0, {"in": (100, 40)}))
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        provider = _connect(f"http://127.0.0.1:{server.server_port}")
        poll = JournalPoll([tmp_path], [export_to(provider)])
        poll.refresh()
        journal.append(BatchRecord(1, {"in": (7, 5)}, start_s=1.0, end_s=2.0))
        poll.refresh()
        provider.shutdown()
        server.shutdown()
    journal.close()
    path, body = Collector.received[-1]
    assert path == "/v1/metrics"
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    found = {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
    (offered,) = found["penstock.rows.offered"].sum.data_points
    assert (offered.as_double or offered.as_int) == 7
    assert found["penstock.batch"].histogram.data_points[0].sum == 1.0
