"""``penstock run``: the status of a network."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.cli.run import _describe_status


def test_run_shows_the_same_status(directory: Path) -> None:
    status = json.loads((directory / "nodes" / "A" / "status.json").read_text())
    assert _describe_status(status) == ("3", "6,000", "600 (10%)", "2.0 s", "plan 1")
    status = json.loads((directory / "coordinator" / "status.json").read_text())
    assert _describe_status(status)[-1] == f"exact: plan 1, {status['plans_computed']} computed"
    assert _describe_status(None)[-1] == "starting"
