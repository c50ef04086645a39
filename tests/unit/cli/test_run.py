"""``penstock run``: the status of a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.run import _describe_status, _parse_settings
from penstock.errors import PenstockError


def test_run_shows_the_same_status(directory: Path) -> None:
    status = json.loads((directory / "nodes" / "A" / "status.json").read_text())
    assert _describe_status(status) == ("3", "6,000", "600 (10%)", "2.0 s", "plan 1")
    status = json.loads((directory / "coordinator" / "status.json").read_text())
    assert _describe_status(status)[-1] == f"exact: plan 1, {status['plans_computed']} computed"
    assert _describe_status(None)[-1] == "starting"


def test_settings_of_spark() -> None:
    assert _parse_settings(["spark.jars=a.jar,b.jar", "spark.x=y=z"]) == {"spark.jars": "a.jar,b.jar", "spark.x": "y=z"}
    with pytest.raises(PenstockError, match=r"--conf 'jars': write a setting of Spark as spark\.name=value"):
        _parse_settings(["jars"])
