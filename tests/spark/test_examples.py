"""The examples run, and show what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_quickstart(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    report = load("quickstart").main(batches=3)
    assert report.table.num_rows >= 3
    assert report.errors == []
    assert "-- batch 0" in capsys.readouterr().out


def test_priorities(session: SparkSession) -> None:
    share = load("priorities").main(batches=5)
    assert share["alert"] > share["info"] > share["debug"]


def test_load_aware(session: SparkSession) -> None:
    found = load("load_aware").main(batches=10)
    cheap, dear = found["cheap"], found["dear"]
    assert cheap[0] > 5 * dear[0]  # there are four times as many
    assert 3 < cheap[1] / dear[1] < 5  # as the weights know


def test_ads(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes of the network in this session, until both outputs have rows."""
    from penstock.coordination import manager_named
    from penstock.network import load_network
    from penstock.spark.node import NodeRuntime, Workplace

    from .test_network_run import rows_of, run_in_thread, until

    monkeypatch.syspath_prepend(str(EXAMPLES))
    network = load_network(EXAMPLES / "ads.yaml")
    nodes = [
        NodeRuntime(network, name, Workplace(tmp_path), manager_named("local", network, name), pace_s=1.0)
        for name in network.nodes
    ]
    threads = [run_in_thread(node, session) for node in nodes]
    for output in network.outputs:
        until(lambda output=output: rows_of(tmp_path / "outputs" / output), *threads[1])
    for node in nodes:
        node.stop()
    for thread, errors in threads:
        thread.join()
        assert not errors
    alarms = rows_of(tmp_path / "outputs" / "alarms")
    assert all(row["score"] > 0.3 for row in alarms)


def test_dashboard(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    latest = load("dashboard").main(batches=5)
    assert sorted(latest) == [0, 1, 2, 3, 4]
    for row in latest.values():
        assert row["requests"]["lower"] < row["requests"]["estimate"] < row["requests"]["upper"]
    assert "requests, from" in capsys.readouterr().out


def test_join(session: SparkSession) -> None:
    everybody, joined, pairs = load("join").main(batches=4)
    assert 0.3 * everybody < joined < 0.7 * everybody
    # Five rows a user, batch and side: 25 pairs a user and batch. The first batch is kept whole or as the last decision was.
    assert pairs >= 25 * joined * 3
