"""Backlogs, strange clocks, a target that changes: the default controller on Spark, from the first row on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import Shedder, register_replay
from penstock.errors import PenstockError
from penstock.journal import read_journal

from .conftest import to_arrow, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def replay(session: SparkSession, **options: Any) -> DataFrame:
    register_replay(session)
    text = {"generator": "constant", "payload_bytes": "0"} | {name: str(value) for name, value in options.items()}
    return session.readStream.format("penstock-replay").options(**text).load()


def collect_into(batches: dict[int, pa.Table]) -> Callable[[DataFrame, int], None]:
    def collect(df: DataFrame, batch_id: int) -> None:
        batches[batch_id] = to_arrow(df)

    return collect


def run(shedder: Shedder, df: DataFrame, checkpoint: Path, batches: int) -> dict[int, pa.Table]:
    seen: dict[int, pa.Table] = {}
    with shedder:
        query = shedder.foreach_batch(df, collect_into(seen), checkpoint=checkpoint)
        wait_until(lambda: len(seen) >= batches, query)
    return seen


def test_a_backlog_of_minutes_leaves_only_fresh_rows(session: SparkSession, tmp_path: Path) -> None:
    """Nothing is known: the first batch sheds what can't be in time, and says how much that was."""
    rows = replay(session, rate=2_000, duration="600s", start=time.time() - 300.0)
    shedder = Shedder("2s")
    gated = shedder.gate(rows, name="in", arrival="arrival", identity="seq")
    seen = run(shedder, gated.select("seq", F.unix_micros("arrival").alias("micros")), tmp_path / "cp", batches=3)
    journal = read_journal(tmp_path / "cp" / "penstock")
    first = journal.batches[0]
    offered, kept = first.gates["in"]
    assert offered > 550_000
    assert kept == seen[0].num_rows <= 2_000
    assert (first.expired or {})["in"] >= 0.99 * (offered - 10_000)
    decision = journal.decision_for(0)
    assert decision is not None
    assert decision.older is not None
    assert all(micros >= decision.older["in"].line for micros in seen[0]["micros"].to_pylist())
    report = str(shedder.report())
    assert "of those expired" in report
    assert "nothing is known of the cost of a row yet" in report
    table = shedder.report().table.to_pylist()
    assert all(row["offered"] == row["kept"] + row["shed"] and 0 <= row["expired"] <= row["shed"] for row in table)


def test_those_who_would_rather_catch_up_lose_no_row_for_its_age(session: SparkSession, tmp_path: Path) -> None:
    rows = replay(session, rate=5, duration="600s", start=time.time() - 60.0)  # fewer than the first rows that it tries
    shedder = Shedder("2s", expired="keep")
    gated = shedder.gate(rows, name="in", arrival="arrival", identity="seq")
    seen = run(shedder, gated.select("seq"), tmp_path / "cp", batches=2)
    assert seen[0].num_rows >= 298


def test_a_clock_that_is_ahead_loses_nothing_and_is_told_once(session: SparkSession, tmp_path: Path) -> None:
    rows = replay(session, rate=200, duration="600s").withColumn("arrival", F.col("arrival") + F.expr("INTERVAL 1 HOUR"))
    shedder = Shedder("2s")
    gated = shedder.gate(rows, name="in", arrival="arrival", identity="seq")
    seen = run(shedder, gated.select("seq"), tmp_path / "cp", batches=4)
    journal = read_journal(tmp_path / "cp" / "penstock")
    assert sum(record.from_future for record in journal.batches.values()) == sum(batch.num_rows for batch in seen.values()) > 0
    assert sum("a clock is ahead" in line for line in journal.errors) == 1
    assert all(record.gates["in"][0] == record.gates["in"][1] for record in journal.batches.values()), "age zero"


def test_the_target_may_change_while_the_job_runs(session: SparkSession, tmp_path: Path) -> None:
    rows = replay(session, rate=500, duration="600s")
    seen: dict[int, pa.Table] = {}
    with Shedder("2s") as shedder:
        gated = shedder.gate(rows, name="in", arrival="arrival", identity="seq")
        query = shedder.foreach_batch(gated.select("seq"), collect_into(seen), checkpoint=tmp_path / "cp")
        wait_until(lambda: len(seen) >= 2, query)
        shedder.delay_target = "5s"
        after = len(seen) + 2
        wait_until(lambda: len(seen) >= after, query)
        with pytest.raises(PenstockError, match="delay_target must be positive, got"):
            shedder.delay_target = -1.0
        assert shedder.delay_target == 5.0
    targets = [record.delay_target_s for _, record in sorted(read_journal(tmp_path / "cp" / "penstock").batches.items())]
    assert targets[0] == 2.0
    assert targets[-1] == 5.0
    assert targets == sorted(targets, key=float)


def test_options_that_belong_elsewhere(session: SparkSession) -> None:
    with pytest.raises(PenstockError, match="controller 'seamless' has no prefer"):
        Shedder("2s", controller="seamless", prefer="fresh")
    with pytest.raises(PenstockError, match=r"max_loss must lie in \[0, 1\], got 1.5"):
        Shedder("2s", max_loss=1.5)
    with pytest.raises(PenstockError, match=r"floor must lie in \[0, 1\), got -0.1"):
        Shedder("2s", floor=-0.1)
    with pytest.raises(PenstockError, match="first_cost must be"):
        Shedder("2s", first_cost="0s")
