"""``penstock watch``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import app
from penstock.journal import BatchRecord, DecisionRecord, Journal
from tests.unit.cli.helpers import fails, runner


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with the journal of a job that is running still: it holds the lock."""
    journal = Journal(tmp_path / "penstock", "job")
    journal.append(DecisionRecord({"rows": (0.25,)}, 0.25, batch_id=0))
    journal.append(BatchRecord(0, {"rows": (1000, 250)}, keep=0.25, start_s=10.0, end_s=11.0, mean_arrival_s=9.5, busy_s=0.9))
    journal.append(BatchRecord(1, {"rows": (2000, 500)}, keep=0.25, start_s=11.0, end_s=12.5, mean_arrival_s=10.5))
    journal.append("query1: could not decide: something")
    return tmp_path


@pytest.mark.parametrize("below", ["", "penstock"])
def test_watch_shows_a_journal_and_a_checkpoint(checkpoint: Path, below: str) -> None:
    found = runner.invoke(app, ["watch", str(checkpoint / below)])
    assert found.exit_code == 0
    for part in ("offered 3,000", "kept 750", "shed 2,250", "sheds 75%", "25.0%", "  2 s", "batch 0", "could not decide"):
        assert part in found.stdout.replace("\n", " ")


def test_watch_json_is_the_last_batch(checkpoint: Path) -> None:
    found = runner.invoke(app, ["watch", str(checkpoint), "--json"])
    assert found.exit_code == 0
    record = json.loads(found.stdout)
    assert record["batch_id"] == 1
    assert record["gates"] == {"rows": [2000, 500]}
    assert record["delay_s"] == 2.0


def test_watch_needs_no_spark(checkpoint: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from penstock.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "watch", str(checkpoint), "--json"]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_watch_without_a_journal_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no journal" in fails(capsys, "watch", str(tmp_path))
    assert "no directory" in fails(capsys, "watch", str(tmp_path / "missing"))


def test_watch_json_of_an_empty_journal_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Journal(tmp_path, "job").close()
    assert "no batch yet" in fails(capsys, "watch", str(tmp_path), "--json")
    assert "no batch yet" in runner.invoke(app, ["watch", str(tmp_path)]).stdout


def test_watch_of_a_place_that_needs_more_says_what(capsys: pytest.CaptureFixture[str]) -> None:
    said = fails(capsys, "watch", "warp://bucket/x")
    assert "warp://bucket/x can't be reached without Spark" in said
    assert "copy the directory to a disk" in said
