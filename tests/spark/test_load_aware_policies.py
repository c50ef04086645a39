"""The policies of LAS on Spark: the same rows as the classes of ``penstock.las`` drop, exact counts, a state that survives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F

from penstock import PenstockError, load_aware
from penstock.journal import JournalState, read_journal
from penstock.las import ABS, AVG, FullKnowledge, Las, StrawMan
from penstock.las.shedder_state import ShedderState
from penstock.las.tuple_shedder import ClockShedder
from penstock.spark.catalyst import seeded_hash
from penstock.spark.gates.clock_filter import KEY_SEED
from penstock.spark.load_aware import LoadAware
from penstock.spark.load_aware_policies import ClockPolicy

from .conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]
ROWS, KEYS = 400, 20
OPTIONS: dict[str, Any] = {"columns": "value", "returns": "bigint", "window": ROWS, "mu": 10.0}


def cost_s(key: int) -> float:
    return 5e-3 if key % 5 == 0 else 1e-4


def spend(value: int) -> int:
    """Every fifth key costs fifty times as much."""
    end_s = time.perf_counter() + cost_s(value % KEYS) / 4
    while time.perf_counter() < end_s:
        pass
    return value


def arriving(df: DataFrame) -> DataFrame:
    """Rows that arrived up to four seconds ago, in no order, so that the wait decides about some of them in every batch."""
    ago_ms = F.pmod(F.col("value") * 7919, F.lit(4_000))
    arrival = F.timestamp_micros(F.unix_micros(F.current_timestamp()) - ago_ms * 1000)
    return df.select("value", (F.col("value") % KEYS).alias("key"), arrival.alias("arrival"))


def run(aware: LoadAware, df: DataFrame, place: Path, batches: int = 6) -> dict[int, list[dict[str, Any]]]:
    """Run some batches and return the rows of each."""
    found: dict[int, list[dict[str, Any]]] = {}

    def sink(batch: DataFrame, number: int) -> None:
        found[number] = batch.toArrow().to_pylist()

    query = aware.foreach_batch(df, sink, checkpoint=place / "cp")
    wait_until(lambda: len(found) >= batches, query, 90.0)
    aware.stop()
    return found


def state_of(journal: JournalState, batch_id: int, aware: LoadAware) -> ShedderState:
    """What the journal says the shedders knew, with the matrices that an earlier batch may have had with it."""
    assert isinstance(aware.policy, ClockPolicy)
    (shedder,) = aware.policy.shedders
    known = shedder.new_sketch()
    for decision in journal.decisions:
        state = ShedderState.from_entries(decision.gates["in"], known)
        known = state.sketch
        if decision.batch_id == batch_id:
            return state
    raise AssertionError(f"batch {batch_id} has no decision")


def oracle_of(state: ShedderState, partition: int, costs: dict[int, float]) -> ClockShedder:
    """The plain classes of ``penstock.las``, with what the shedder of one partition knew."""
    instance = state.instance(partition)
    constraint: ABS | AVG = ABS(state.tau_s)
    if state.bound == "avg":
        constraint = AVG(state.tau_s)
        constraint._total_s, constraint._count = instance.total_s, instance.count
    oracle: ClockShedder
    if state.policy == "las":
        oracle = Las(constraint, state.sketch)
        oracle.state = "RUN"
    elif state.policy == "straw-man":
        assert state.mean_s is not None
        oracle = StrawMan(constraint, state.mean_s)
    else:
        oracle = FullKnowledge(constraint, costs.__getitem__)
    oracle.clock_s = instance.offset_s
    return oracle


@pytest.mark.parametrize(
    ("policy", "constraint", "more"),
    [
        ("las", "abs", {}),
        ("las", "avg", {}),
        ("straw-man", "abs", {}),
        ("full-knowledge", "avg", {"cost": "cost"}),
    ],
)
def test_each_policy_drops_what_the_paper_drops(
    policy: Any, constraint: Any, more: dict[str, Any], session: SparkSession, tmp_path: Path
) -> None:
    """Tuple for tuple: from what the journal says was known, the plain classes drop the same rows, partition by partition."""
    arrivals = tmp_path / "arrivals"
    arrivals.mkdir()
    begun_s = time.time()
    rng = np.random.default_rng(3)
    sent: list[list[dict[str, Any]]] = []
    aware = load_aware(
        spend, key="key", delay_target="2s", policy=policy, constraint=constraint, **OPTIONS | {"columns": "seq"}, **more
    )
    source = session.readStream.schema("seq bigint, key bigint, cost double, arrival timestamp").option("maxFilesPerTrigger", 1)
    df = aware(source.parquet(str(arrivals)), name="in", arrival="arrival")
    found: dict[int, list[int]] = {}

    def sink(batch: DataFrame, number: int) -> None:
        found[number] = [row["result"] for row in batch.toArrow().to_pylist()]

    query = aware.foreach_batch(df, sink, checkpoint=tmp_path / "cp")
    for number in range(5):  # one file, one partition, one batch at a time, with waits around tau
        waits_s = 1.0 + 0.5 * rng.standard_normal(ROWS)
        seqs = number * ROWS + np.arange(ROWS)
        now_s = time.time()
        rows = [
            {"seq": int(seq), "key": int(seq * 7 % KEYS), "us": round((now_s - max(0.0, wait_s)) * 1e6)}
            for seq, wait_s in zip(seqs, waits_s, strict=True)
        ]
        sent.append(rows)
        table = pa.table(
            {
                "seq": [row["seq"] for row in rows],
                "key": [row["key"] for row in rows],
                "cost": [cost_s(row["key"]) for row in rows],
                "arrival": pa.array([row["us"] for row in rows], pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, tmp_path / "file")
        (tmp_path / "file").rename(arrivals / f"{number}.parquet")
        wait_until(lambda number=number: number in found, query)  # type: ignore[misc]
    aware.stop()
    assert time.time() - begun_s < 60
    journal = read_journal(tmp_path / "cp" / "penstock")
    keys = session.createDataFrame([(key,) for key in range(KEYS)], "key bigint")
    hashed = {row["key"]: row["h"] for row in keys.select("key", seeded_hash(session, KEY_SEED, [F.col("key")]).alias("h")).collect()}
    costs = {value: cost_s(key) for key, value in hashed.items()}
    shed = 0
    for number, rows in enumerate(sent):
        state = state_of(journal, number, aware)
        if state.phase == "NOP":
            expected = [row["seq"] for row in rows]
        else:
            oracle = oracle_of(state, 0, costs)
            elapsed = [min(0.0, (row["us"] - state.begin_us) / 1e6) for row in rows]
            expected = [
                row["seq"] for row, now_s in zip(rows, elapsed, strict=True) if not oracle.shed(hashed[row["key"]], now_s)
            ]
        assert found[number] == expected, f"batch {number}"
        assert journal.batches[number].gates["in"] == (ROWS, len(expected))
        shed += ROWS - len(expected)
    assert 0 < shed < 5 * ROWS
    assert state.phase != "NOP"
