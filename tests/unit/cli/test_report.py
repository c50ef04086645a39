"""``penstock report``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from penstock.journal import Journal
from tests.journals import write_journal
from tests.unit.cli.helpers import fails, runner


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_journal(tmp_path / "orders" / "penstock", 60, has_classes=True)
    write_journal(tmp_path / "pipe|and*star" / "penstock", 3)
    return tmp_path


def test_text_has_a_table_and_a_screen_for_each_query(root: Path) -> None:
    shown = runner.invoke(app, ["report", str(root)], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    for part in ("orders", "class 2", "the clock of a source is ahead", "per row", "rows fit", "pipe|and*star"):
        assert part in shown.stdout


def test_json_adds_up(root: Path) -> None:
    report = json.loads(runner.invoke(app, ["report", str(root), "--json"]).stdout)
    assert len(report["queries"]) == 2
    for query in report["queries"].values():
        summary = query["summary"]
        assert summary["offered"] == summary["kept"] + summary["shed"]


def test_markdown_escapes_names(root: Path) -> None:
    text = runner.invoke(app, ["report", str(root), "--markdown"]).stdout
    assert r"## pipe\|and\*star" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 2  # of two kinds of tables


def test_html_is_one_file(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    said = runner.invoke(app, ["report", str(root), "--html", str(file)])
    assert said.stdout == f"report: {file}\n"
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_an_empty_journal_is_no_error(tmp_path: Path) -> None:
    Journal(tmp_path, "job").close()
    for more in ([], ["--json"], ["--markdown"], ["--html", str(tmp_path / "x.html")]):
        assert runner.invoke(app, ["report", str(tmp_path), *more]).exit_code == 0


def test_what_can_not_be_is_one_line(capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path) -> None:
    assert "no directory" in fails(capsys, "report", str(tmp_path / "none"))
    assert "one of --json and --markdown" in fails(capsys, "report", str(root), "--json", "--markdown")
    assert "can't be written" in fails(capsys, "report", str(root), "--html", str(tmp_path / "none" / "x.html"))
