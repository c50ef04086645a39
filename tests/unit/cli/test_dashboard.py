"""``penstock dashboard``: what it refuses, and how it says so."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from penstock.cli import main
from tests.journals import write_journal
from tests.unit.cli.helpers import fails


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("penstock.dashboard.server", "penstock.dashboard.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    said = fails(capsys, "dashboard", str(tmp_path))
    assert "uvicorn" in said
    assert "pip install 'penstock[dashboard]'" in said


def test_a_taken_port_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    write_journal(tmp_path / "a", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = fails(capsys, "dashboard", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert "can't listen on 127.0.0.1" in said


def test_a_directory_without_a_journal_is_served_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.setattr("penstock.dashboard.server.serve", lambda *_, on_ready, **__: on_ready())
    with pytest.raises(SystemExit) as ended:
        main(["dashboard", str(tmp_path), "--port", "0"])
    assert ended.value.code in (0, None)
    assert "there is no journal yet" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [(["none"], "no directory"), ([".", "--port", "70000"], "70000")])
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    pytest.importorskip("uvicorn")
    monkeypatch.chdir(tmp_path)
    assert message in fails(capsys, "dashboard", *arguments)
