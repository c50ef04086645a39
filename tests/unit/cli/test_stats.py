"""``penstock stats``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import fails, runner


def test_shows_what_was_measured(directory: Path) -> None:
    result = runner.invoke(app, ["stats", str(directory)], env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.output
    for part in (
        "node A: capacity",
        "plan 1",
        "10 ± 10",
        "6,000",
        "90.0%",
        "mean delay 1.50 s",
        "no message from coordinator",
    ):
        assert part in result.stdout
    for part in ("coordinator: exact", "plan 1 in force", "reporting nodes: A", "messages ignored: 1 unusable"):
        assert part in result.stdout


def test_json_is_all_of_it(directory: Path) -> None:
    status = json.loads(runner.invoke(app, ["stats", str(directory), "--json"]).stdout)
    assert status["A"]["reason"] == "plan 1"
    assert status["coordinator"]["plan"] == 1


def test_a_directory_without_a_network_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    assert "no node has reported there" in fails(capsys, "stats", str(tmp_path))
