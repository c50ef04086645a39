"""``penstock feedback``: what a job admits, published by a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.errors import PenstockError
from penstock.journal import BatchRecord, Journal


def test_it_publishes_what_a_job_admits_until_it_is_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "penstock", "job-1")
    journal.append(BatchRecord(0, {"in": (1000, 475)}))
    command = [sys.executable, "-m", "penstock", "feedback", str(tmp_path), "--topic", "in=clicks", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("rates at http://127.0.0.1:")
            records: list[dict[str, object]] = []
            end_s = time.monotonic() + 30.0
            while not records and time.monotonic() < end_s:
                with urllib.request.urlopen(f"{line.split()[-1]}/clicks", timeout=5) as answer:  # noqa: S310 - our own
                    records = json.loads(answer.read())
                time.sleep(0.05)
            assert [(record["topic"], record["job"], record["share"]) for record in records] == [("clicks", "job-1/in", 0.5)]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "clicks"], "--topic 'clicks': write it as gate=topic"),
        (["--http", "-"], "give --http HOST:PORT or --servers, or both: where to publish"),
        (["--http", "nowhere"], "must be host:port"),
        (["--expires", "soon"], "--expires"),
    ],
)
def test_bad_options_are_refused_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = CliRunner().invoke(app, ["feedback", str(tmp_path), *arguments])
    assert isinstance(refused.exception, PenstockError)
    assert message in str(refused.exception)
    assert "\n" not in str(refused.exception)


def test_an_address_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path would lose one of its slashes."""

    def refuse(checkpoint: object, *_: object, **__: object) -> None:
        raise PenstockError(f"asked for {checkpoint}")

    monkeypatch.setattr("penstock.feedback.Feedback", refuse)
    assert str(CliRunner().invoke(app, ["feedback", "s3a://bucket/c"]).exception) == "asked for s3a://bucket/c"
