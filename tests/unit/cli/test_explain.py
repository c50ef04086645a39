"""``penstock explain``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from penstock.drop.tables import slot_of
from penstock.journal import BatchRecord, DecisionRecord, Journal
from tests.journals import write_journal
from tests.unit.cli.helpers import fails, runner


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_journal(tmp_path / "penstock", 60)
    return tmp_path


def test_a_batch_in_sentences(checkpoint: Path) -> None:
    said = runner.invoke(app, ["explain", str(checkpoint), "--batch", "17"]).stdout
    assert "batch 17" in said.splitlines()[0]
    for part in ("seen:", "rows waited", "decided:", "The target of 2 s leaves 1 s for a batch", "happened:", "rows were kept"):
        assert part in said


def test_the_last_one_if_none_is_named(checkpoint: Path) -> None:
    said = json.loads(runner.invoke(app, ["explain", str(checkpoint), "--json"]).stdout)
    assert said["batch"] == 59
    assert said["decided"]


def test_by_arrival_the_decision_is_that_of_the_rows(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job")
    for keep, moment_s in ((1.0, 100.0), (0.5, 200.0), (0.25, 300.0)):
        journal.append(DecisionRecord({"in": (keep,)}, keep, from_slot=slot_of(moment_s)))
    journal.append(BatchRecord(0, {"in": (10, 5)}, start_s=251.0, end_s=252.0, mean_arrival_s=250.0))
    journal.close()
    said = runner.invoke(app, ["explain", str(tmp_path), "--batch", "0"]).stdout
    assert "kept 50%" in said


def test_what_can_not_be_explained_is_one_line(capsys: pytest.CaptureFixture[str], checkpoint: Path, tmp_path: Path) -> None:
    assert "batch 99 has not run" in fails(capsys, "explain", str(checkpoint), "--batch", "99")
    assert "batch -1 has not run" in fails(capsys, "explain", str(checkpoint), "--batch", "-1")
    assert "there is no query 'x'" in fails(capsys, "explain", str(checkpoint), "--query", "x")
    empty = tmp_path / "empty"
    Journal(empty, "job").close()
    assert "no batch yet" in fails(capsys, "explain", str(empty))


def test_one_of_several_must_be_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_journal(tmp_path / name, 3)
    assert "name one with --query: 'a', 'b'" in fails(capsys, "explain", str(tmp_path))
    assert runner.invoke(app, ["explain", str(tmp_path), "--query", "b"]).stdout.startswith("b, batch 2")


def test_a_folded_batch_is_said_to_be_gone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    journal = Journal(tmp_path, "job", retain=10)
    for number in range(300):
        journal.append(BatchRecord(number, {"in": (10, 5)}, end_s=float(number)))
    journal.close()
    assert "batch 3 has been folded into totals" in fails(capsys, "explain", str(tmp_path), "--batch", "3")
