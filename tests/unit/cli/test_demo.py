"""``penstock demo``: bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.helpers import fails


@pytest.mark.parametrize(
    ("option", "value"), [("--seconds", "1"), ("--overload", "0"), ("--overload", "nan"), ("--seed", "-1"), ("--source", "x")]
)
def test_the_demo_refuses_numbers_that_make_no_sense(
    option: str, value: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert option.lstrip("-") in fails(capsys, "demo", option, value)


def test_out_that_is_a_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in fails(capsys, "demo", "--out", str(tmp_path / "file"))
