"""A gate over public functions: which servers it takes."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from penstock.errors import PenstockError
from penstock.spark.connect.connect_gate import ConnectGate, build_connect_gate
from penstock.spark.gates import GateSpecification
from penstock.spark.versions import TESTED, find_internals
from tests.unit.spark.test_pipelines import SCHEMA


def build(directory: Path, version: str, name: str = "in") -> Any:
    """Make a gate on a DataFrame of a server of that version."""
    df: Any = SimpleNamespace(sparkSession=SimpleNamespace(version=version), schema=SCHEMA)
    with mock.patch.object(ConnectGate, "apply"):
        return build_connect_gate(df, GateSpecification(name, arrival="t"), str(directory))


def test_a_server_that_was_never_tested_gets_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the client's version is, and however the query is planned."""
    find_internals.cache_clear()
    with caplog.at_level(logging.WARNING, "penstock"):
        for name in ("one", "two"):
            build(tmp_path, "4.9.0", name)
    assert caplog.messages == [
        f"Spark 4.9.0 was never tested with Penstock (tested: {', '.join(TESTED)}); it is treated as Spark 4.3"
    ]


@pytest.mark.parametrize("version", [f"{tested}.1" for tested in TESTED if tested != "3.5"])
def test_a_server_that_was_tested_is_taken_without_a_word(version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        build(tmp_path, version)
    assert caplog.messages == []


@pytest.mark.parametrize("version", ["3.5.6", "3.4.4"])
def test_a_server_that_is_too_old_is_refused_and_leaves_nothing_behind(version: str, tmp_path: Path) -> None:
    message = rf"^gates over Spark Connect need a server of Spark 4\.0 or later, and this one is {version}: use a classic"
    with pytest.raises(PenstockError, match=message):
        build(tmp_path, version)
    assert list(tmp_path.iterdir()) == []
