"""``penstock network``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import NETWORK, fails, runner


def test_network_shows_what_follows() -> None:
    found = runner.invoke(app, ["network", NETWORK])
    assert found.exit_code == 0
    for part in ("i1", "a tree", "drop locations (2): i1, i2", "fragments"):
        assert part in found.stdout
    values = json.loads(runner.invoke(app, ["network", NETWORK, "--json"]).stdout)
    assert values["inputs"]["i1"]["node_loads"] == {"A": 1.0, "B": 3.0}
    assert values["inputs"]["i2"]["max_feasible_rate"] == 0.5
    assert values["locations"] == ["i1", "i2"]
    assert values["tree"] is True


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "can't be read" in fails(capsys, "network", str(tmp_path / "none.yaml"))
