"""What the load-aware benchmarks on Spark share: a job whose rows carry their cost, its arms, and its runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from benchmarks.support.results import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.shedder import Shedder

__all__ = ["Arm", "ArmRun", "Arrivals", "LoadJob", "TARGET_S", "paper_arms"]

TARGET_S = 2.0
TAU_S = 0.5 * TARGET_S
"""Of the paper's arms. It bounds the wait until a row begins; the row comes out when its batch ends, up to as much later."""
_LEAD_S = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Arrivals:
    """Rows: when each arrives, its key, and the CPU seconds that it takes."""

    t: NDArray[np.float64]
    keys: NDArray[np.int64]
    costs_s: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Arm:
    """How an arm sheds: the options of ``load_aware``, or not at all."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sheds: bool = True


def paper_arms(mean_cost_s: float) -> list[Arm]:
    """Return the arms of the paper, with AVG as in its figures, and ours. Straw-Man is given the mean cost."""
    paper = {"constraint": "avg", "tau": TAU_S}
    return [
        Arm("no shedding", sheds=False),
        Arm("Straw-Man", paper | {"policy": "straw-man", "cost": mean_cost_s}),
        Arm("LAS", paper | {"policy": "las"}),
        Arm("Full Knowledge", paper | {"policy": "full-knowledge", "cost": "cost"}),
        Arm("ours"),
    ]


@dataclass(frozen=True, slots=True, eq=False)
class ArmRun:
    """What became of each row of an arm, until the time was up."""

    name: str
    seconds: float
    arrivals_s: NDArray[np.float64]
    """Of the rows that arrived."""
    delays_s: NDArray[np.float64]
    """Of these: the end of the batch minus the arrival; of those still queued, their age; nan of those shed."""
    finished: int
    """How many of these, the first ones, were in batches that ended."""
    notes: tuple[str, ...] = ()

    def row(self, from_s: float = 0.0) -> Row:
        """Return the results over rows that arrive from a time on. Those still queued count as kept, and as late as they are."""
        delays_s = self.delays_s[self.arrivals_s >= from_s]
        kept_s = delays_s[~np.isnan(delays_s)]
        done = np.arange(self.arrivals_s.size) < self.finished
        offered = int((done & (self.arrivals_s >= from_s)).sum())
        kept = int((done & (self.arrivals_s >= from_s) & ~np.isnan(self.delays_s)).sum())
        return {
            "shedder": self.name,
            "mean delay s": float(kept_s.mean()) if kept_s.size else 0.0,
            "p99 s": float(np.quantile(kept_s, 0.99)) if kept_s.size else 0.0,
            "mean violation s": float(np.maximum(kept_s - TARGET_S, 0.0).mean()) if kept_s.size else 0.0,
            "dropped %": 100.0 * (1.0 - kept / max(1, offered)),
            "rows kept": kept,
            "queued": int(delays_s.size - offered),
        }

    def curve(self, what: str, step_s: float = 1.0) -> tuple[list[float], list[float]]:
        """Return by second of arrival the ``"dropped, %"``, or the mean ``"delay, s"`` where rows were kept, up to 10 s."""
        slots = (self.arrivals_s // step_s).astype(int)
        points: list[tuple[float, float]] = []
        for slot in np.unique(slots).tolist():
            delays_s = self.delays_s[slots == slot]
            is_kept = ~np.isnan(delays_s)
            if what == "dropped, %":
                points.append((step_s * (slot + 0.5), 100.0 * float(1.0 - is_kept.mean())))
            elif is_kept.any():
                points.append((step_s * (slot + 0.5), min(10.0, float(delays_s[is_kept].mean()))))
        return [x for x, _ in points], [y for _, y in points]


def spend(cost_s: float) -> float:
    """Keep a core busy for a number of seconds."""
    end_s = time.thread_time() + cost_s
    rounds = 0
    while time.thread_time() < end_s:
        rounds += 1
    return float(rounds)


class LoadJob:
    """Replayed rows, a gate by key, and a Python function that takes as long as the row says."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        from penstock.spark.replay import register_replay  # noqa: PLC0415 - needs Spark

        self._spark, self._scratch = spark, scratch
        self._runs = count(1)
        self._cores = spark.sparkContext.defaultParallelism
        register_replay(spark)

    def capacity(self, mean_cost_s: float) -> float:
        """Measure the capacity in rows per second at this cost: the best of several batches, all with a backlog.

        They hold four seconds of work, so that the overhead counts for little: as in the paper, an operator is under-provisioned
        if rows cost more time than there is. Of the capacity of short batches, a job without shedding would make do with longer
        ones.
        """
        rows = round(2.0 * TARGET_S * self._cores / mean_cost_s)
        arrivals = Arrivals(np.linspace(0.0, 0.1, 4 * rows), np.zeros(4 * rows, dtype=np.int64), np.full(4 * rows, mean_cost_s))
        _, batches, _ = self._run(Arm("no shedding", sheds=False), arrivals, seconds=60.0, until=4, max_rows_per_batch=rows)
        return max(rows / (end_s - start_s) for start_s, end_s, rows in batches[1:])

    def run(self, arm: Arm, arrivals: Arrivals, seconds: float) -> ArmRun:
        """Run an arm for some time."""
        kept, batches, notes = self._run(arm, arrivals, seconds=seconds)
        arrived_s = arrivals.t[arrivals.t < seconds]
        delays_s = np.full(arrived_s.size, np.nan)
        first = 0
        for number, (_, end_s, offered) in enumerate(batches):
            seqs = kept.get(number, np.array([], dtype=np.int64))
            seqs = seqs[seqs < arrived_s.size]
            delays_s[seqs] = end_s - arrived_s[seqs]
            first += offered
        delays_s[first:] = seconds - arrived_s[first:]
        return ArmRun(arm.name, seconds, arrived_s, delays_s, min(first, arrived_s.size), tuple(notes))

    def _run(
        self, arm: Arm, arrivals: Arrivals, *, seconds: float, until: int | None = None, **source: Any
    ) -> tuple[dict[int, NDArray[np.int64]], list[tuple[float, float, int]], Sequence[str]]:
        """Return the rows kept by batch, (start, end, rows offered) of each batch, and what the shedder noted."""
        from penstock.journal import read_journal  # noqa: PLC0415

        folder = self._scratch / f"las{next(self._runs)}"
        folder.mkdir()
        table = pa.table({"t": arrivals.t, "entity": arrivals.keys, "cost": arrivals.costs_s})
        parquet.write_table(table, folder / "trace.parquet")
        begin_s = time.time() + _LEAD_S
        options = {"path": folder / "trace.parquet", "start": f"{begin_s:.6f}", "partitions": self._cores, **source}
        rows = self._spark.readStream.format("penstock-replay").options(**{k: str(v) for k, v in options.items()}).load()
        shedder, results = self._shed(arm, rows)
        kept: dict[int, NDArray[np.int64]] = {}

        def sink(batch: DataFrame, number: int) -> None:
            kept[number] = batch.toArrow().column("seq").to_numpy()

        query = shedder.foreach_batch(results.select("seq"), sink, checkpoint=folder / "cp")
        try:
            while time.time() - begin_s < seconds and (until is None or len(kept) < until):
                if (failure := query.exception()) is not None:
                    raise failure
                time.sleep(0.25)
            state = read_journal(folder / "cp" / "penstock")
        finally:
            shedder.stop()
        batches: list[tuple[float, float, int]] = []
        for number, record in sorted(state.batches.items()):
            if number != len(batches) or record.start_s is None or record.end_s is None:
                break
            batches.append((record.start_s - begin_s, record.end_s - begin_s, record.gates["rows"][0]))
        return kept, batches, state.errors

    def _shed(self, arm: Arm, rows: DataFrame) -> tuple[Shedder, DataFrame]:
        """Apply the arm's gate and the function. All arms time the function, so that they differ only in what they shed."""
        from penstock.spark.load_aware import LoadAware  # noqa: PLC0415 - needs Spark
        from penstock.spark.shedder import Shedder  # noqa: PLC0415

        function = {"columns": "cost", "returns": "double"}
        if arm.sheds:
            aware = LoadAware(spend, key="entity", delay_target=TARGET_S, **function, **arm.options)  # type: ignore[arg-type]
            return aware.shedder, aware(rows, name="rows", arrival="arrival", identity="seq")
        shedder = Shedder(TARGET_S, controller="keep-all")
        kept = shedder.gate(rows, name="rows", arrival="arrival", identity="seq")
        timer = LoadAware(spend, key="entity", delay_target=TARGET_S, **function)  # type: ignore[arg-type]
        return shedder, timer.time_only(kept)
