"""A version of Spark that was never tested: a warning, and a gate that works."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import pyspark

from penstock import Controller, Decision, Observation, Shedder, read_journal
from penstock.drop.hashing import gate_seed, uniform
from penstock.spark.versions import Internals, find_internals

from .conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 1_000


class Half(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=0.5)


def test_a_gate_works_on_a_version_that_was_never_tested(
    session: SparkSession,
    ticks: Callable[..., DataFrame],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if type(find_internals(pyspark.__version__)) is not Internals:
        pytest.skip("a version that was never tested is treated as the newest one")
    monkeypatch.setattr(type(session), "version", "4.9.0")
    monkeypatch.setattr(pyspark, "__version__", "4.9.0")
    find_internals.cache_clear()
    rows: dict[int, list[int]] = {}

    def write(df: DataFrame, number: int) -> None:
        rows[number] = sorted(row[0] for row in df.select("value").collect())

    with caplog.at_level(logging.WARNING, "penstock"), Shedder("2s", controller=Half(2.0)) as shedder:
        gated = shedder.gate(ticks(ROWS), name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, write, checkpoint=tmp_path / "checkpoint")
        wait_until(lambda: len(rows) >= 2, query)
    state = read_journal(tmp_path / "checkpoint" / "penstock")
    decision = state.decision_for(1)
    assert decision is not None
    ids = np.arange(ROWS, 2 * ROWS)
    assert rows[1] == ids[uniform(gate_seed("in"), [pa.array(ids)]) < decision.gates["in"][0]].tolist()
    assert 0 < len(rows[1]) < ROWS
    assert state.batches[0].gates["in"] == (ROWS, len(rows[0]))
    assert len([line for line in caplog.messages if "Spark 4.9.0 was never tested with Penstock" in line]) == 1, caplog.messages
    find_internals.cache_clear()
