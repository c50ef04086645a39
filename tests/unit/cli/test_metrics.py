"""``penstock metrics``."""

from __future__ import annotations

import json
from pathlib import Path

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
