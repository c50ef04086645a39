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
from penstock.drop.hashing import xxhash64
from penstock.journal import JournalState, read_journal
from penstock.las import ABS, AVG, FullKnowledge, Las, StrawMan
from penstock.las.shedder_state import ShedderState
from penstock.las.tuple_shedder import ClockShedder
from penstock.spark.gates.clock_filter import KEY_SEED
from penstock.spark.load_aware import LoadAware
from penstock.spark.load_aware_policies import ClockPolicy

from .conftest import to_arrow, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Ticks = Callable[..., "DataFrame"]
ROWS, KEYS, BATCHES = 400, 20, 4
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
        ("straw-man", "avg", {}),
        ("full-knowledge", "abs", {"cost": "cost"}),
    ],
)
def test_each_policy_drops_what_the_paper_drops(
    policy: Any, constraint: Any, more: dict[str, Any], session: SparkSession, tmp_path: Path
) -> None:
    """Tuple for tuple: from what the journal says was known, the plain classes drop the same rows, partition by partition."""
    arrivals = tmp_path / "arrivals"
    arrivals.mkdir()
    rng = np.random.default_rng(3)
    sent: list[list[dict[str, Any]]] = []
    aware = load_aware(
        spend, key="key", delay_target="2s", policy=policy, constraint=constraint, **OPTIONS | {"columns": "seq"}, **more
    )
    source = session.readStream.schema("seq bigint, key bigint, cost double, arrival timestamp").option("maxFilesPerTrigger", 1)
    df = aware(source.parquet(str(arrivals)), name="in", arrival="arrival")
    found: dict[int, list[int]] = {}

    def sink(batch: DataFrame, number: int) -> None:
        found[number] = [row["result"] for row in to_arrow(batch).to_pylist()]

    query = aware.foreach_batch(df, sink, checkpoint=tmp_path / "cp")
    for number in range(BATCHES):  # one file, one partition, one batch at a time, with waits around tau
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
    journal = read_journal(tmp_path / "cp" / "penstock")
    hashed = xxhash64(KEY_SEED, [pa.array(range(KEYS), pa.int64())]).view(np.int64).tolist()
    costs = {value: cost_s(key) for key, value in enumerate(hashed)}
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
    assert 0 < shed < BATCHES * ROWS
    assert state.phase != "NOP"


def test_a_batch_that_failed_drops_the_same_rows_and_the_state_comes_back(ticks: Ticks, tmp_path: Path) -> None:
    def start(fail_at: int | None) -> tuple[LoadAware, Any, dict[int, list[int]]]:
        found: dict[int, list[int]] = {}
        aware = load_aware(spend, key="key", delay_target="4s", policy="las", constraint="avg", **OPTIONS)

        def sink(batch: DataFrame, number: int) -> None:
            found[number] = [row["value"] for row in to_arrow(batch).to_pylist()]
            if number == fail_at:
                raise RuntimeError("the sink is full")

        df = aware(arriving(ticks(rows=ROWS)), name="in", arrival="arrival")
        return aware, aware.foreach_batch(df, sink, checkpoint=tmp_path / "cp"), found

    aware, query, before = start(fail_at=4)
    wait_until(lambda: query.exception() is not None)
    aware.stop()
    assert 0 < len(before[4]) < ROWS
    known = state_of(read_journal(tmp_path / "cp" / "penstock"), 4, aware)
    assert known.phase != "NOP"
    aware, query, after = start(fail_at=None)
    wait_until(lambda: len(after) >= 2, query)
    aware.stop()
    assert min(after) == 4
    assert after[4] == before[4]
    journal = read_journal(tmp_path / "cp" / "penstock")
    continued = state_of(journal, 5, aware)
    assert continued.phase != "NOP"
    assert continued.version == known.version, "the matrices, without new ones so soon"
    assert np.array_equal(continued.sketch.duration, known.sketch.duration)
    assert sum(one.count for one in continued.instances.values()) >= sum(one.count for one in known.instances.values()) > 0
    for number, rows in (before | after).items():
        assert journal.batches[number].gates["in"] == (ROWS, len(rows))


def test_as_large_matrices_as_a_plan_can_hold(ticks: Ticks, tmp_path: Path) -> None:
    found: dict[int, int] = {}
    aware = load_aware(spend, key="key", delay_target="4s", policy="las", constraint="avg", epsilon=0.00055, **OPTIONS)
    df = aware(arriving(ticks(rows=ROWS)), name="in", arrival="arrival")
    query = aware.foreach_batch(
        df, lambda batch, number: found.update({number: len(batch.collect())}), checkpoint=tmp_path / "cp"
    )
    wait_until(lambda: len(found) > 5, query)
    aware.stop()
    journal = read_journal(tmp_path / "cp" / "penstock")
    assert {number: record.gates["in"] for number, record in journal.batches.items()} == {
        number: (ROWS, rows) for number, rows in found.items()
    }
    state = state_of(journal, max(found), aware)
    assert state.phase != "NOP"
    assert state.sketch.frequency.shape == (4, 4942)
    assert min(found.values()) < ROWS


def test_a_new_target_reaches_the_shedders(ticks: Ticks, tmp_path: Path) -> None:
    aware = load_aware(spend, key="key", delay_target="4s", tau="1s", policy="full-knowledge", cost="c", **OPTIONS)
    done: list[int] = []
    df = aware(arriving(ticks(rows=50)).withColumn("c", F.lit(float("nan"))), name="in", arrival="arrival")
    query = aware.foreach_batch(df, lambda batch, number: done.append(batch.count() * 0 + number), checkpoint=tmp_path / "cp")
    wait_until(lambda: done, query)
    aware.shedder.delay_target = "8s"
    wait_until(lambda: len(done) >= 4, query)
    aware.stop()
    journal = read_journal(tmp_path / "cp" / "penstock")
    assert state_of(journal, 0, aware).tau_s == 1.0
    assert state_of(journal, done[-1], aware).tau_s == 2.0
    assert any("'in': some rows have a cost that is negative or no number" in message for message in journal.errors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "best"}, "policy must be one of cost-aware, las, straw-man, full-knowledge, got 'best'"),
        ({"policy": "full-knowledge"}, "policy 'full-knowledge' needs cost="),
        ({"policy": "full-knowledge", "cost": 0.1}, "policy 'full-knowledge' needs cost="),
        ({"policy": "las", "cost": "key"}, "policy 'las' learns what rows cost: leave cost out"),
        ({"policy": "straw-man", "cost": float("nan")}, "the mean seconds per row, got nan"),
        ({"policy": "straw-man", "cost": -1.0}, r"the mean seconds per row, got -1\.0"),
        ({"policy": "las", "kind": "native"}, "policy 'las' times rows in Python, and kind 'native' runs none there"),
        ({"policy": "las", "tau": "-1s"}, "tau must be"),
        ({"policy": "las", "tau": float("nan")}, "tau must be"),
        ({"policy": "las", "constraint": "max"}, "constraint must be one of abs, avg, got 'max'"),
        ({"policy": "las", "how": "root"}, "how is no option of policy 'las'; its options are tau, constraint, cost"),
        ({"policy": "las", "controller": "ctrl"}, "controller is no option of policy 'las'"),
        ({"tau": "1s"}, "tau is no option of policy 'cost-aware'; its options are buckets, how, floor, controller"),
        ({"policy": "las", "epsilon": 3.0}, "epsilon must lie in"),
        ({"policy": "las", "epsilon": 1e-6}, "epsilon=1e-06 and delta=0.1 make .* cells, at most 20,000 .* at least 0.00055"),
        ({"policy": "las", "window": 0}, "window N must be positive"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PenstockError, match=message) as raised:
        load_aware(spend, **{"key": "key", "delay_target": "2s", "columns": "value", "returns": "bigint", **options})
    assert "\n" not in str(raised.value)


def test_data_frames_that_do_not_fit(ticks: Ticks) -> None:
    options = {"key": "value", "delay_target": "2s", "columns": "value", "returns": "bigint"}
    aware = load_aware(spend, policy="las", **options)
    with pytest.raises(PenstockError, match="gate 'load_aware': this policy needs arrival="):
        aware(ticks())
    with pytest.raises(PenstockError, match="not with a probability: leave weight_column out"):
        aware(ticks(), arrival="timestamp", weight_column="w")
    with pytest.raises(PenstockError, match="behind Aggregate a batch run again has another: put load_aware before it"):
        aware(ticks().groupBy("timestamp", "value").count(), arrival="timestamp")
    with pytest.raises(PenstockError, match="behind Repartition"):
        aware(ticks().repartition(3), arrival="timestamp")
    with pytest.raises(PenstockError, match="only the policy 'cost-aware' has buckets"):
        _ = aware.model
    told = load_aware(spend, policy="full-knowledge", cost="price", **options)
    with pytest.raises(PenstockError, match="there is no cost column 'price'; the columns are timestamp, value"):
        told(ticks(), arrival="timestamp")
    df = aware(ticks(), name="in", arrival="timestamp")
    with pytest.raises(PenstockError, match=r"gate 'in' decides on each row of a batch .* start its query by batch"):
        aware.shedder.start(df.writeStream.format("memory").queryName("las"), by="arrival")
