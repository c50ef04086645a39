"""Running the command line in tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import main

runner = CliRunner()
NETWORK = str(Path(__file__).parents[3] / "examples" / "table1.yaml")


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the console script, see that it fails as it should, and return the line it said."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert not said.out
    assert said.err.startswith("penstock: ")
    assert said.err.count("\n") == 1
    return said.err
