"""The examples run, and show what they say."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


@pytest.mark.apart
def test_load_aware(session: SparkSession) -> None:
    counts = load("load_aware").main(batches=10)
    (cheap_kept, cheap_estimate), (expensive_kept, expensive_estimate) = counts["cheap"], counts["expensive"]
    assert cheap_kept > 5 * expensive_kept
    assert 3 < cheap_estimate / expensive_estimate < 5  # there are four times as many cheap rows


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
    assert [query.plan.operators for query in nodes["edge"].queries] == [("clean",), ("score", "suspicious")]
    gates = [gate.name for node in nodes.values() for query in node.queries for gate in query.gates]
    assert gates == ["views", "clicks", "clean->count", "suspicious->alarm"]
    count, alarm = nodes["centre"].queries
    assert count.df.columns == ["window", "key", "views", "arrival"]
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
    # Five rows per user, batch and side: 25 pairs per user and batch. The first batch is kept whole or as the last decision was.
    assert pairs >= 25 * joined * 3


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell in which nobody activated the virtual environment: ``python3`` has no Penstock."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" -I -S "$@"\n')
    python.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    return variables | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


def run(arguments: list[str], environment: dict[str, str], directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
        check=False,
    )


@pytest.mark.apart
def test_quickstart_runs_where_another_python_is_on_the_path(environment: dict[str, str], tmp_path: Path) -> None:
    code = f"import runpy; print(runpy.run_path({str(EXAMPLES / 'quickstart.py')!r})['main'](batches=3))"
    result = run(["-c", code], environment, tmp_path)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "-- batch 0" in result.stdout
    assert "Ledger" in result.stdout


@pytest.mark.apart
def test_a_job_whose_workers_run_another_python_ends_in_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "from pyspark.sql import SparkSession\n"
        "from penstock import register_replay\n"
        "register_replay(SparkSession.builder.master('local[1]').getOrCreate())\n"
    )
    result = run(["-c", code], environment, tmp_path)
    assert result.returncode != 0
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("penstock.errors.PenstockError: ")]
    assert f"can't import penstock: set PYSPARK_PYTHON={sys.executable} before the session starts" in line
    assert result.stderr.rstrip().endswith(line)


def test_the_notebook(session: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Run its cells in order, as a notebook does; a cell that ends in a value shows it."""
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body[-1]
            if isinstance(last, ast.Expr):
                tree.body.pop()
            exec(compile(tree, "notebook", "exec"), names)  # noqa: S102 - our own notebook
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))  # noqa: S307
    tables = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert "<caption>Ledger</caption>" in tables[0]
    assert len(tables) >= 2
    assert "kept" in capsys.readouterr().out
