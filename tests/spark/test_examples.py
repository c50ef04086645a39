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
    """Both nodes build: what they read, gate, do and write."""
    from penstock.cluster.deployment import Deployment
    from penstock.cluster.transport import DirectoryTransport
    from penstock.network import load_network
    from penstock.spark.replay import register_replay

    monkeypatch.syspath_prepend(str(EXAMPLES))
    register_replay(session)
    network = load_network(EXAMPLES / "ads.yaml")
    nodes = {name: Deployment(session, network, name, DirectoryTransport(tmp_path), tmp_path) for name in network.nodes}
    assert [query.plan.operators for query in nodes["edge"].queries] == [("shown",), ("scored", "genuine")]
    gates = [gate.name for node in nodes.values() for query in node.queries for gate in query.gates]
    assert gates == ["views", "clicks", "shown->seen", "genuine->alarm"]
    seen, alarm = nodes["centre"].queries
    assert seen.df.columns == ["window", "key", "views", "arrival"]
    assert "score" in alarm.df.columns


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
