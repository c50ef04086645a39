"""Jobs on a standalone cluster whose executors are killed while batches run, and what must come out of them.

Which rows a batch must keep is known: a hash of the row's number, and the keep that was journaled for the batch or, by arrival,
for the slot of time in which its rows arrived.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.drop.hashing import gate_seed, uniform
from penstock.drop.tables import slot_of
from penstock.errors import PenstockError
from penstock.journal import DecisionRecord, Journal, JournalState, read_journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.testing.standalone import StandaloneCluster

__all__ = ["ARMS", "Found", "cluster_session", "run_arm"]

ARMS = ("function", "aggregate", "arrival", "plain")
"""A function that shuffles; an aggregation with state; a shuffle in a query by arrival; files without any shuffle."""
_ROWS, _PARTITIONS, _KEYS = 2_000, 8, 7
_KEEPS = (0.9, 0.2, 0.5)
_PATIENCE_S = 240.0
_FROZEN_S = 4.0
_MOST_BATCHES, _BEFORE_S = 500, 600.0
"""By arrival: all batches that may come, a second of arrivals each, from so long ago on, which the table of slots still knows."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one arm did."""

    arm: str
    kills: int
    batches: int
    rows: int
    wrong_rows: int
    """Rows that are in the sink and should not be, or the other way round."""
    wrong_counts: int
    """Batches whose counts in the ledger are not those of their rows."""
    lossy_batches: int
    """Batches that lost an executor, and were counted again where that mattered."""
    miscounts: int = 0
    """Those of them of which Spark itself had added up too many rows, or too few."""
    repairs: bool = True
    """Whether they were counted again; without that their counts are what Spark added up."""
    speculated_tasks: int = 0
    """Tasks that Spark ran elsewhere too because they were slow, and that were faster there."""
    gone: tuple[str, ...] = ()
    """Why executors went away, each reason once."""


class _Cycle(Controller):
    def update(self, observation: Observation) -> Decision:
        return Decision(keep=_KEEPS[(observation.batch_id + 1) % len(_KEEPS)])


class _Silent(Controller):
    """Leaves what was decided as it is."""

    def update(self, observation: Observation) -> Decision:  # noqa: ARG002 - it looks at nothing
        return Decision()


@dataclass(slots=True)
class _Losses:
    """What became of batches that lost an executor, while they are watched."""

    batches: int = 0
    miscounts: int = 0


@contextmanager
def _spy_on_counts(*, repairs: bool) -> Iterator[_Losses]:
    """Note which batches lost an executor, and which of those Spark itself had counted wrong; without ``repairs``, leave that."""
    from penstock.spark.plan_counts import PlanCounter  # noqa: PLC0415 - needs Spark
    from penstock.spark.repeated_tasks import RepeatWatch  # noqa: PLC0415

    losses = _Losses()
    raw: list[int] = []  # of the batch that ended last, until the watch has looked at it
    original_look, original_read = RepeatWatch.has_repeats, PlanCounter.read

    def look(self: RepeatWatch, *arguments: Any, **options: Any) -> bool:
        is_lossy = original_look(self, *arguments, **options)
        losses.batches += is_lossy
        losses.miscounts += is_lossy and any(rows != _ROWS for rows in raw)
        raw.clear()
        return is_lossy and repairs

    def read(self: PlanCounter, plan: Any) -> dict[str, GateCount]:
        counts = original_read(self, plan)
        raw[:] = [counts["in"].offered]
        return counts

    RepeatWatch.has_repeats, PlanCounter.read = look, read  # type: ignore[method-assign]
    try:
        yield losses
    finally:
        RepeatWatch.has_repeats, PlanCounter.read = original_look, original_read  # type: ignore[method-assign]


@contextmanager
def _stopping(spark: SparkSession) -> Iterator[None]:
    try:
        yield
    finally:
        spark.stop()


def cluster_session(master: str, scratch: Path, **conf: str) -> SparkSession:
    """Start Spark on a cluster whose executors may be lost at any time."""
    from penstock.spark.session import local_session  # noqa: PLC0415 - needs Spark

    settings: dict[str, Any] = {
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1000",
        "spark.stage.maxConsecutiveAttempts": "1000",
        "spark.sql.shuffle.partitions": "4",
        "spark.shuffle.io.retryWait": "1s",
        "spark.shuffle.io.maxRetries": "1",
    }
    return local_session("cluster", scratch=scratch, **(settings | conf | {"master": master}))


def run_arm(
    arm: str,
    cluster: StandaloneCluster,
    scratch: Path,
    kills: int,
    *,
    most_kills: int = 0,
    is_polite: bool = False,
    freezes: bool = False,
    repairs: bool = True,
    partitions: int = _PARTITIONS,
    **conf: str,
) -> Found:
    """Run one arm until so many executors were killed, each in a batch of its own; every other one is asked to go if polite.

    Up to ``most_kills``, it goes on until Spark itself has counted a batch wrong: many a kill costs no task its output.

    With ``freezes``, executors hang first, until Spark has run a task of one elsewhere. Without ``repairs`` a batch that lost an
    executor is not counted again. With one of the ``partitions`` an executor is idle.
    """
    from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

    spark = cluster_session(cluster.master, scratch, **conf)
    checkpoint, output = scratch / "checkpoint", scratch / "rows"
    first_ms = round(1e3 * (time.time() - _BEFORE_S))
    if arm == "arrival":
        _decide_slots(checkpoint / "penstock", first_ms)
    by_batch: dict[int, Counter[int]] = {}

    def write(df: DataFrame, number: int) -> None:
        counted = _count_keys(df) if arm == "function" else df
        by_batch[number] = Counter({int(row["key"]): int(row["count"]) for row in counted.collect()})

    controller = (_Silent if arm == "arrival" else _Cycle)(60.0)
    with _spy_on_counts(repairs=repairs) as losses, _stopping(spark), Shedder("60s", controller=controller) as shedder:
        source = _read(spark, partitions, first_ms)
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value", bounded=False)
        slow = _add_work(gated)
        if arm == "function":
            query = shedder.foreach_batch(slow, write, checkpoint=checkpoint)
        elif arm == "aggregate":
            query = shedder.foreach_batch(_count_keys(slow), write, checkpoint=checkpoint, output_mode="update")
        else:
            spread = slow.repartition(4) if arm == "arrival" else slow
            writer = spread.writeStream.format("parquet").option("path", str(output))
            query = shedder.start(
                writer.option("checkpointLocation", str(checkpoint)), by="arrival" if arm == "arrival" else "batch"
            )
        if freezes:
            _freeze(cluster, spark, query, checkpoint / "penstock")
        killed = _kill(cluster, range(kills, most_kills), losses, query, checkpoint / "penstock", is_polite=is_polite)
        speculated, gone = _count_speculated(spark), _list_reasons(spark)
    state = read_journal(checkpoint / "penstock")
    keep_of = _keep_of_slots if arm == "arrival" else partial(_keep_of_batch, state)
    expected = {number: _expect(keep_of(number), number) for number in state.batches}
    wrong = {number for number, record in state.batches.items() if record.gates["in"] != (_ROWS, len(expected[number]))}
    wrong_rows = _audit(arm, expected, by_batch, output)
    rows = _ROWS * len(state.batches)
    return Found(
        arm, killed, len(state.batches), rows, wrong_rows, len(wrong), losses.batches, losses.miscounts, repairs, speculated, gone
    )


def _list_reasons(spark: SparkSession) -> tuple[str, ...]:
    """Return why executors went away, each reason once."""
    executors = spark._jsc.sc().statusStore().executorList(False)
    gone = {
        str(one.removeReason().get())
        for one in (executors.apply(position) for position in range(executors.size()))
        if not one.isActive() and one.removeReason().isDefined()
    }
    return tuple(sorted({reason.split(":")[0].split(".")[0].strip() for reason in gone}))


def _count_speculated(spark: SparkSession) -> int:
    """Return how many tasks ended first where Spark ran them a second time."""
    from penstock.spark.java_errors import Py4JJavaError  # noqa: PLC0415 - needs Spark

    store = spark._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    total = 0
    for position in range(jobs.size()):
        stages = jobs.apply(position).stageIds()
        for stage in (stages.apply(number) for number in range(stages.size())):
            try:
                summary = store.speculationSummary(stage, store.lastStageAttempt(stage).attemptId())
            except Py4JJavaError:  # a stage that was left out, or that Spark has let go of
                continue
            total += int(summary.get().numCompletedTasks()) if summary.isDefined() else 0
    return total


def _decide_slots(journal: Path, first_ms: int) -> None:
    """Leave the journal of an earlier run that has decided for all batches: a keep for each second."""
    keeps = [_keep_of_slots(number) for number in range(_MOST_BATCHES)]
    earlier = Journal(journal)
    earlier.append(*(DecisionRecord({"in": (k,)}, k, from_slot=slot_of(first_ms / 1e3 + n)) for n, k in enumerate(keeps)))
    earlier.close()


def _keep_of_slots(number: int) -> float:
    return _KEEPS[number % len(_KEEPS)]


def _keep_of_batch(state: JournalState, number: int) -> float:
    decision = state.decision_for(number)
    return 1.0 if decision is None else decision.gates["in"][0]


def _read(spark: SparkSession, partitions: int, first_ms: int) -> DataFrame:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", partitions)
    reader = reader.option("startTimestamp", first_ms).option("advanceMillisPerBatch", 1_000)
    return reader.load().selectExpr("*", f"value % {_KEYS} AS key")


def _add_work(df: DataFrame, when: str = "value % 40 = 0") -> DataFrame:
    """Sleep now and then on the executors, so that they can be killed in the middle; native, because they need no Python."""
    return df.where(f"if({when}, reflect('java.lang.Thread', 'sleep', 30L), 'none') IS NOT NULL")


def _count_keys(df: DataFrame) -> DataFrame:
    """Count with a shuffle, and with work on both sides of it."""
    return _add_work(df.groupBy("key").count(), "key >= 0")


def _freeze(cluster: StandaloneCluster, spark: SparkSession, query: Any, journal: Path) -> None:
    """Let executors hang until a task of one was faster elsewhere: a moment may be between two batches."""
    _wait(lambda: _count(journal) >= 1, query, "no batch ended")
    deadline = time.monotonic() + _PATIENCE_S
    while not _count_speculated(spark):
        if time.monotonic() > deadline:
            raise PenstockError(f"Spark ran no task of an executor that hangs elsewhere within {_PATIENCE_S:g} s")
        _wait(lambda: len(cluster.executors()) >= 2, query, "a new executor did not come")
        cluster.freeze_executor(_FROZEN_S)
        ended = _count(journal)
        _wait(lambda ended=ended: _count(journal) > ended, query, "no batch ended after an executor hung")


def _kill(cluster: StandaloneCluster, most: range, losses: _Losses, query: Any, journal: Path, *, is_polite: bool) -> int:
    """Kill as many executors as the range begins with, and up to its end until Spark has miscounted; return how many."""
    kills = most.start
    chance = random.Random(kills)  # noqa: S311 - not for secrets
    _wait(lambda: _count(journal) >= 1, query, "no batch ended")
    killed = 0
    while killed < kills or (killed < most.stop and not losses.miscounts):
        _wait(lambda: len(cluster.executors()) >= (1 if is_polite else 2), query, "a new executor did not come")
        time.sleep(chance.uniform(0.0, 2.0))
        ended = _count(journal)
        asks = is_polite and killed % 2 == 0
        pid = cluster.kill_executor(chance.randrange(2), is_polite=asks)
        _wait(lambda ended=ended: _count(journal) > ended, query, "no batch ended after a kill")
        if asks:  # it hands over what it has first, and must not be killed meanwhile
            _wait(lambda pid=pid: pid not in cluster.executors(), query, "an executor did not go when it was asked to")
        killed += 1
    ended = _count(journal)
    _wait(lambda: _count(journal) > ended, query, "no batch ended after the last kill")
    return killed


def _count(journal: Path) -> int:
    return len(read_journal(journal).batches) if journal.exists() else 0


def _wait(condition: Any, query: Any, message: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if query.exception() is not None:
            raise PenstockError(f"the query failed: {str(query.exception()).splitlines()[0]}")
        if time.monotonic() > deadline:
            raise PenstockError(f"{message} within {_PATIENCE_S:g} s")
        time.sleep(0.1)


def _expect(keep: float, number: int) -> list[int]:
    """Return the numbers of the rows that a batch must keep."""
    ids = np.arange(_ROWS * number, _ROWS * (number + 1))
    return [int(value) for value in ids[uniform(gate_seed("in"), [pa.array(ids)]) < keep]]


def _read_rows(output: Path) -> list[int]:
    """Return the rows that Spark's own log has committed."""
    logs = [path for path in (output / "_spark_metadata").iterdir() if path.name.split(".")[0].isdigit()]
    names = {
        line.split('"path":"')[1].split('"')[0].rsplit("/", 1)[1]
        for log in logs
        for line in log.read_text().splitlines()
        if '"path":"' in line
    }
    table = ds.dataset([str(output / name) for name in sorted(names)], format="parquet").to_table(columns=["value"])
    return [int(value) for value in table["value"].to_pylist()]


def _audit(arm: str, expected: dict[int, list[int]], by_batch: dict[int, Counter[int]], output: Path) -> int:
    """Return how many rows are missing or too many."""
    if arm in ("plain", "arrival"):
        differences = Counter(_read_rows(output))
        differences.subtract(value for values in expected.values() for value in values)
        return sum(abs(count) for count in differences.values())
    wrong, total = 0, Counter[int]()
    for number in sorted(expected):
        keys = Counter(value % _KEYS for value in expected[number])
        total += keys
        right = {key: total[key] for key in by_batch[number]} if arm == "aggregate" else keys
        wrong += sum(abs(by_batch[number][key] - right.get(key, 0)) for key in {*by_batch[number], *right})
    return wrong
