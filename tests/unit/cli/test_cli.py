"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import fails, runner


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str]) -> None:
    found = runner.invoke(app, arguments)
    assert found.exit_code == 0
    for command in ("demo", "simulate", "plan", "network", "watch"):
        assert command in found.stdout


@pytest.mark.parametrize("command", ["demo", "simulate", "plan", "network", "watch"])
def test_every_command_has_help(command: str) -> None:
    found = runner.invoke(app, [command, "--help"])
    assert found.exit_code == 0
    assert "--json" in found.stdout


def test_version() -> None:
    found = runner.invoke(app, ["--version"])
    assert found.exit_code == 0
    assert found.stdout.startswith("penstock ")


def test_the_command_line_loads_neither_spark_nor_matplotlib() -> None:
    code = "import sys, penstock.cli; sys.exit(bool({'pyspark', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--delay-target", "soon"], "'soon'"),
        (["demo", "--delay-target", "-1s"], "'-1s'"),
        (["demo", "--seconds", "many"], "--seconds"),
        (["nothing"], "nothing"),
        (["watch"], "DIR"),
        (["demo", "--fast"], "--fast"),
        (["bench"], "bench"),
    ],
)
def test_bad_input_is_one_line_with_status_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in fails(capsys, *arguments)
    assert not list(tmp_path.iterdir()), "nothing may be made before the input is checked"
