"""A real Prometheus: its tool checks rules, board and metrics, its server scrapes a running job and a journal."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import penstock.metrics
from penstock.journal import BatchRecord, DecisionRecord, Journal

HERE = Path(__file__).parent
FOLDER = Path(penstock.metrics.__file__).parent
MISSING = [program for program in ("promtool", "prometheus") if shutil.which(program) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (Debian: apt-get install prometheus)")


def promtool(*arguments: object, text: str | None = None) -> str:
    ended = subprocess.run(
        ["promtool", *map(str, arguments)], input=text, check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def board_expressions() -> list[str]:
    board = json.loads((FOLDER / "grafana.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$query", ".*") for text in found]


def test_the_rules_are_valid_and_fire_when_they_should(tmp_path: Path) -> None:
    assert "6 rules found" in promtool("check", "rules", FOLDER / "alerts.yml")
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    shutil.copy(HERE / "alert_tests.yml", tmp_path)
    assert "SUCCESS" in promtool("test", "rules", tmp_path / "alert_tests.yml")


def test_every_expression_of_the_board_is_valid(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(board_expressions())]
    (tmp_path / "board.yml").write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", tmp_path / "board.yml")


def test_the_scrape_follows_the_conventions(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "penstock", "me")
    journal.append(
        BatchRecord(0, {"in": (9, 4)}, start_s=1.0, end_s=2.0, delay_target_s=2.0, reachable_s=3.0, backlog_rows=1),
        DecisionRecord({"in": (0.5,)}, 0.5, batch_id=1),
    )
    journal.close()
    command = [sys.executable, "-m", "penstock", "metrics", str(tmp_path), "--once"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert text.count("# HELP") >= 16
    assert promtool("check", "metrics", text=text).strip() == ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], what: str, process: subprocess.Popen[str], seconds: float = 90.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if answer := condition():
                return answer
        except (urllib.error.URLError, ConnectionError):
            pass
        assert process.poll() is None, f"{what}: {process.args} has ended"
        assert time.monotonic() < deadline, f"{what}: not in time"
        time.sleep(0.2)


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the test; its input stays open until then."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)


class Prometheus:
    """The server, asked over its API."""

    def __init__(self, folder: Path, targets: dict[str, int]) -> None:
        self.port = free_port()
        jobs = [
            {
                "job_name": name,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
            }
            for name, port in targets.items()
        ]
        shutil.copy(FOLDER / "alerts.yml", folder)
        settings = {"global": {"evaluation_interval": "1s"}, "rule_files": ["alerts.yml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
        self.command = (
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        )

    def get(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        result = self.get("query", query=expression)["result"]
        return float(result[0]["value"][1]) if result else None

    def answers(self, expression: str) -> bool:
        return self.value(expression) is not None


def read_spark_ui(port: int) -> dict[str, int]:
    """Return what Spark's own UI shows of the gates."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/json/", timeout=30) as answer:
        gauges = json.load(answer)["gauges"]
    marker = ".AccumulatorSource."
    return {name.split(marker)[1]: body["value"] for name, body in gauges.items() if marker in name}


@pytest.mark.long
def test_prometheus_scrapes_a_running_job_and_its_journal(tmp_path: Path) -> None:
    """Once from inside the job, once by ``penstock metrics`` from its journal: both say what the ledger says."""
    inside, outside, checkpoint = free_port(), free_port(), tmp_path / "checkpoint"
    server = Prometheus(tmp_path, {"inside": inside, "outside": outside})
    with (
        running(sys.executable, HERE / "metrics_job.py", inside, checkpoint) as job,
        running(*server.command) as prometheus,
    ):
        wait_for(lambda: (server.value('penstock_batches_total{job="inside"}') or 0) > 2, "the job's metrics", job)
        with running(sys.executable, "-m", "penstock", "metrics", checkpoint, "--port", outside) as exporter:
            wait_for(lambda: (server.value('penstock_batches_total{job="outside"}') or 0) > 2, "the journal's metrics", exporter)
            # A rate needs two scrapes with the metric, and a gate's metrics begin with its first count.
            for text in board_expressions():
                if "reachable" not in text:
                    wait_for(partial(server.answers, text), text, prometheus)
            assert server.value('penstock_query_active{job="inside"}') == 1.0
            assert server.value('penstock_keep_ratio{job="inside"}') == 0.5
            assert server.value('penstock_delay_target_seconds{job="outside"}') == 60.0
            rules = server.get("rules")["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} == {"ok"}
            assert job.stdin is not None
            assert job.stdout is not None
            shown = read_spark_ui(int(job.stdout.readline()))
            assert 0 < shown["penstock._job_.in.rows_kept"] < shown["penstock._job_.in.rows_offered"]
            job.stdin.close()
            offered, kept = map(int, job.stdout.readline().split())

            def has_all() -> bool:
                labels = {"rows_offered_total": offered, "rows_kept_total": kept}
                return all(server.value(f'penstock_{name}{{job="outside"}}') == rows for name, rows in labels.items())

            wait_for(has_all, "the ledger's numbers", exporter)
            names = {series["query"] for series in server.get("series", **{"match[]": "penstock_batches_total"})}
            assert names == {"<job>", "checkpoint"}
