"""What the load-aware benchmarks on Spark share: a job whose rows carry their cost, and its runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from penstock.control import Controller, controller_named
from penstock.demo.summary import ArmRun, Batch, Summary, summarise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.las.knapsack import How
    from penstock.spark.shedder import Shedder

__all__ = ["Arm", "Arrivals", "LoadJob", "TARGET_S"]

TARGET_S = 2.0
_LEAD_S = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows: when each arrives, its key, and the CPU seconds that it takes."""

    t: NDArray[np.float64]
    keys: NDArray[np.int64]
    costs_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arm:
    """How an arm sheds: by costs that it learns, or by a mean cost that it is given."""

    name: str
    how: How = "threshold"
    known_cost_s: float | None = None


def spend(cost_s: float) -> float:
    """Keep a core busy for a number of seconds."""
    end_s = time.thread_time() + cost_s
    rounds = 0
    while time.thread_time() < end_s:
        rounds += 1
    return float(rounds)


class LoadJob:
    """Replayed rows, a gate by key, a Python function that takes as long as the row says, and a count by key."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        from penstock.spark.replay import register_replay  # noqa: PLC0415 - needs Spark

        self._spark, self._scratch = spark, scratch
        self._runs = count(1)
        self._cores = spark.sparkContext.defaultParallelism
        register_replay(spark)

    def capacity(self, mean_cost_s: float) -> float:
        """Measure the capacity in rows per second at this cost: the best of several batches, all with a backlog."""
        rows = round(0.5 * TARGET_S * self._cores / mean_cost_s)
        arrivals = Arrivals(np.linspace(0.0, 0.1, 5 * rows), np.zeros(5 * rows, dtype=np.int64), np.full(5 * rows, mean_cost_s))
        run = self._run(Arm("keep-all"), arrivals, seconds=60.0, until=5, max_rows_per_batch=rows, controller="keep-all")
        return max(batch.kept / (batch.end_s - batch.start_s) for batch in run.batches[1:])

    def run(self, arm: Arm, arrivals: Arrivals, seconds: float, *, from_s: float, capacity: float) -> tuple[ArmRun, Summary]:
        """Run an arm for some time and summarise the rows that arrive from ``from_s`` on."""
        run = self._run(arm, arrivals, seconds=seconds)
        return run, summarise(run, arrivals.t[arrivals.t < seconds], TARGET_S, capacity, from_s=from_s)

    def _run(
        self,
        arm: Arm,
        arrivals: Arrivals,
        *,
        seconds: float,
        until: int | None = None,
        controller: str | None = None,
        **source: Any,
    ) -> ArmRun:
        from penstock.journal import read_journal  # noqa: PLC0415

        folder = self._scratch / f"las{next(self._runs)}"
        folder.mkdir()
        table = pa.table({"t": arrivals.t, "entity": arrivals.keys, "cost": arrivals.costs_s})
        parquet.write_table(table, folder / "trace.parquet")
        begin_s = time.time() + _LEAD_S
        options = {"path": folder / "trace.parquet", "start": f"{begin_s:.6f}", "partitions": self._cores, **source}
        rows = self._spark.readStream.format("penstock-replay").options(**{k: str(v) for k, v in options.items()}).load()
        shedder, results = self._shed(arm, rows, controller)
        done: list[int] = []

        def sink(batch: DataFrame, number: int) -> None:
            batch.collect()
            done.append(number)

        query = shedder.foreach_batch(results.groupBy("entity").count(), sink, checkpoint=folder / "cp", output_mode="update")
        try:
            while time.time() - begin_s < seconds and (until is None or len(done) < until):
                if (failure := query.exception()) is not None:
                    raise failure
                time.sleep(0.25)
            state = read_journal(folder / "cp" / "penstock")
        finally:
            shedder.stop()
        batches = [
            Batch(
                r.start_s - begin_s, r.end_s - begin_s, *r.gates["rows"], r.keep or 1.0, r.end_s - (r.mean_arrival_s or r.start_s)
            )
            for _, r in sorted(state.batches.items())
            if r.start_s is not None and r.end_s is not None
        ]
        keep = state.decisions[-1].keep if state.decisions else 1.0
        return ArmRun(arm.name, seconds, tuple(batches), keep, tuple(state.errors))

    def _shed(self, arm: Arm, rows: DataFrame, controller: str | None) -> tuple[Shedder, DataFrame]:
        """Apply the arm's gate and the function. All arms time the function, so that they differ only in what they shed."""
        from penstock.spark.load_aware import LoadAware  # noqa: PLC0415 - needs Spark
        from penstock.spark.shedder import Shedder  # noqa: PLC0415

        law: str | Controller = controller or "micro-batch"
        if arm.known_cost_s is None:
            aware = LoadAware(
                spend, key="entity", delay_target=TARGET_S, columns="cost", returns="double", how=arm.how, controller=law
            )
            return aware.shedder, aware(rows, name="rows", arrival="arrival", identity="seq")
        shedder = Shedder(TARGET_S, controller=controller_named("aurora", TARGET_S, cost_s=arm.known_cost_s / self._cores))
        kept = shedder.gate(rows, name="rows", arrival="arrival", identity="seq")
        timer = LoadAware(spend, key="entity", delay_target=TARGET_S, columns="cost", returns="double")
        return shedder, timer.time_only(kept)
