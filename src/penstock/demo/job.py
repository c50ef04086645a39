"""The demo's job on Spark: replayed rows, a gate, a score in Python, a count by key and window."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from penstock.control import Controller
from penstock.demo.work import SCORED, Work, scorer
from penstock.spark.replay import register_replay
from penstock.spark.shedder import Shedder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Form", "Job", "Running"]

Form = Literal["by batch", "native", "bounded"]
"""How the job ends: in ``foreachBatch``; by arrival in a native sink; the same behind a bounded gate."""

_ROW_OPTIONS = {"partitions": "2", "payload_bytes": "32", "keys": "zipf", "key_count": "50"}
_TINY_ROWS = 20


@dataclass(frozen=True, slots=True)
class Running:
    """The job while it runs."""

    shedder: Shedder
    query: StreamingQuery
    journal: Path
    sink: _Dashboard

    def stop(self) -> None:
        """Stop now, even within a batch: without shedding, the running batch may take as long as all batches before it."""
        self.sink.closed.set()
        self.query._jsq.sparkSession().sparkContext().cancelJobGroup(str(self.query.runId), "the time is up")
        self.shedder.stop()


class Job:
    """The job, for calibration and for both arms: the arms differ only in the controller."""

    def __init__(self, spark: SparkSession, work: Work, scratch: Path, target_s: float) -> None:
        self.spark = spark
        self._work = work
        self._scratch = scratch
        self._target_s = target_s
        self._runs = count(1)
        register_replay(spark)

    def start(
        self,
        source: Mapping[str, Any],
        controller: str | Controller,
        *,
        form: Form = "by batch",
        double_from_s: float = math.inf,
        after: Callable[[int], None] | None = None,
    ) -> Running:
        """Start the job on a source.

        Parameters
        ----------
        source
            Options of the replay source.
        controller
            The controller, or its name. With ``keep-all`` the job behaves as without Penstock.
        form
            By batch, the counts go to the driver; with a native sink, nowhere.
        double_from_s
            Rows that arrive from this time on take twice the work.
        after
            Called with the number of each batch that has ended, by batch only.

        """
        checkpoint = self._scratch / f"run{next(self._runs)}"
        options = {**_ROW_OPTIONS, **{name: str(value) for name, value in source.items()}}
        shedder = Shedder(self._target_s, controller=controller)
        scored = self.read(shedder, options, form).mapInArrow(scorer(self._work.rounds, double_from_s), SCORED)
        counted = scored.groupBy(F.window("arrival", "5 seconds"), "key").agg(F.count("*"), F.avg("score"))
        sink = _Dashboard(after)
        if form == "by batch":
            query = shedder.foreach_batch(counted, sink, checkpoint=checkpoint, output_mode="update")
        else:
            writer = counted.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint))
            query = shedder.start(writer, by="arrival")
        return Running(shedder, query, checkpoint / "penstock", sink)

    def read(self, shedder: Shedder, source: Mapping[str, str], form: Form) -> DataFrame:
        """Return the rows of a source behind the gate: ``arrival``, ``key`` and ``payload``."""
        rows = self.spark.readStream.format("penstock-replay").options(**source).load()
        return shedder.gate(rows, name="rows", arrival="arrival", identity="seq", bounded=form == "bounded")

    def warm_up(self) -> float:
        """Run ten tiny batches, so that code is compiled and Python workers are started; return the seconds that one takes."""
        return statistics.median(self._batch_times(_TINY_ROWS, batches=10)[5:])

    def capacity(self, batch_s: float) -> float:
        """Return the rows per second of the best of several batches of about ``batch_s``, with a source that is always ahead."""
        rows = max(_TINY_ROWS, round(batch_s * 2 / self._work.cost_s))
        times = self._batch_times(rows, batches=4)[1:]
        return rows / min(times)

    def _batch_times(self, rows: int, batches: int) -> list[float]:
        """Run batches of the same size and return the seconds that each took."""
        total = rows * batches
        source = {"generator": "constant", "rate": total, "duration": "1s", "start": time.time() - 60.0}
        running = self.start(source | {"max_rows_per_batch": rows}, "keep-all")
        try:
            running.query.processAllAvailable()
            reports = _list_progress(running.query, 0.9 * rows)
            times = [progress.durationMs["triggerExecution"] / 1e3 for progress in reports]
        finally:
            running.shedder.stop()
        return times


def _list_progress(query: StreamingQuery, least_rows: float) -> list[Any]:
    """Return the progress of each full batch: Kafka divides a cap among partitions, which may leave rows for one more."""
    return [progress for progress in query.recentProgress if progress.numInputRows >= least_rows]


class _Dashboard:
    """The sink: collects the updated counts in the driver, one Spark job per batch, until it is closed."""

    def __init__(self, after: Callable[[int], None] | None = None) -> None:
        self.closed = threading.Event()
        self._after = after

    def __call__(self, counts: DataFrame, batch_id: int) -> None:
        if self.closed.is_set():
            return
        try:
            counts.collect()
        except Exception:
            if not self.closed.is_set():  # otherwise it was cancelled because the time is up
                raise
        if self._after is not None:
            self._after(batch_id)
