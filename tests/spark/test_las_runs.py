"""The runs of the load-aware experiments as a Spark job: the same as here, and taken up again after a stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from benchmarks.support import las_runs
from benchmarks.support.las_runs import Setting, run_one, run_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_runs_on_spark_are_the_runs_here_and_go_on_after_a_stop(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    @contextlib.contextmanager
    def shared(*_: Any) -> Iterator[tuple[SparkSession, Path]]:
        yield session, tmp_path

    monkeypatch.setattr(las_runs, "fresh_session", shared)
    monkeypatch.setattr(las_runs, "_RUNS", 4)
    monkeypatch.setattr(las_runs, "_BLOCK", 3)
    monkeypatch.setattr(las_runs.tempfile, "gettempdir", lambda: str(tmp_path))
    settings = [Setting(25.0, "25%"), Setting(50.0, "50%", under=0.5)]
    said: list[str] = []
    found = run_settings("las-test", settings, quick=False, say=said.append)
    here = np.array([run_one(settings[1], run) for run in range(4)])
    np.testing.assert_allclose(np.sort(found["50%", "las"].wait_ms), np.sort(here[:, 3, 0]))
    folder = next((tmp_path / "penstock-las").iterdir())
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "1.json", "2.json"]
    (folder / "1.json").unlink()  # as if it had been stopped there
    again = run_settings("las-test", settings, quick=False, say=said.append)
    assert any("2 of 3 blocks are there from an earlier run" in line for line in said)
    np.testing.assert_array_equal(np.sort(again["25%", "cost-aware"].dropped), np.sort(found["25%", "cost-aware"].dropped))
