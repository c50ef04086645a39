"""Tasks that ran twice are counted once.

Spark adds up what tasks count: once for each task in the last stage of a job, but for each *run* of a task ahead of a shuffle.
If an executor is lost, so is what its tasks wrote for the shuffle. They run again, and their rows count twice. The rows
themselves are right, only the counts are not. To prevent that costs nothing as long as nothing happens: after each batch on a
cluster, this looks whether an executor went away or a stage failed. Only then the part of the plan that counts is run once more,
alone and with its counters at zero, until that happens without a loss.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.control.base import GateCount

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.plan_counts import PlanCounter

__all__ = ["RepeatWatch", "count_once"]

log = logging.getLogger("penstock")

_ATTEMPTS = 8
_PATIENCE_S = 1.0


class RepeatWatch:
    """Says after a batch whether tasks of it may have run twice. In local mode there is nothing to lose, and nothing to ask."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark._jsc.sc()
        self._store = self._context.statusStore()
        self.is_local = bool(self._context.isLocal())
        self._executors: set[str] = set()
        self._last_job = -1
        self._running: list[int] = []
        self.begin()

    def begin(self) -> None:
        """Remember which executors there are, before a batch begins."""
        if not self.is_local:
            self._executors |= self._list_executors()

    def has_repeats(self, list_jobs: Callable[[], Sequence[int]], *, may_wait: bool = True) -> bool:
        """Whether tasks may have run twice since the last call: an executor is gone, or a stage of one of these jobs failed.

        ``list_jobs`` gives all that Spark remembers; each is looked at once, when it has ended. ``may_wait`` says that all are
        about to.
        """
        if self.is_local:
            return False
        now = self._list_executors()
        is_lost, self._executors = bool(self._executors - now), now
        new = self._list_new(list_jobs())
        self._last_job = max([self._last_job, *new])
        deadline = time.monotonic() + (_PATIENCE_S if may_wait else 0.0)
        looks = {number: self._is_repeated(number, deadline) for number in [*self._running, *new]}
        self._running = [] if may_wait else [number for number, is_repeated in looks.items() if is_repeated is None]
        return is_lost or any(looks.values())

    def _list_executors(self) -> set[str]:
        return set(str(self._context.getExecutorMemoryStatus().keySet().mkString(" ")).split())

    def _list_new(self, jobs: Sequence[int]) -> list[int]:
        """Return the jobs that were not seen yet. Spark lists the newest first, and each element read is a call to the JVM."""
        new = []
        for number in jobs:
            if int(number) <= self._last_job:
                break
            new.append(int(number))
        return new

    def _is_repeated(self, number: int, deadline: float) -> bool | None:
        """Whether a stage of a job failed, or more of its tasks ended than it has; ``None`` if it has not ended."""
        while True:
            try:
                job = self._store.job(number)
            except Exception:  # Spark has let go of it
                return False
            if str(job.status().toString()) != "RUNNING":
                break
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.005)
        return bool(job.numFailedStages() or job.numFailedTasks() or job.numCompletedTasks() > job.numCompletedIndices())


def count_once(
    counter: PlanCounter,
    plan: Any,
    watch: RepeatWatch,
    *,
    run_again: Callable[[], None] | None,
    list_jobs: Callable[[], Sequence[int]],
    prepare: Callable[[], object] = lambda: None,
) -> dict[str, GateCount] | None:
    """Count a batch again, some tasks of which may have run twice.

    Gates ahead of a shuffle of the plan are counted by running the stage that writes it; the others by ``run_again``, which
    evaluates the batch without a shuffle, where the user's function may have added one.

    Parameters
    ----------
    counter
        Finds the gates in the plan.
    plan
        The executed plan of the batch.
    watch
        Knows whether that happened without a loss.
    run_again
        Evaluates the whole batch; ``None`` where its last stage is Spark's own, which counts each task once.
    list_jobs
        Lists the jobs of the query.
    prepare
        Called before each attempt.

    Returns
    -------
    dict
        The counts of the gates that were counted again; ``None`` if there was a loss each time.
    """
    for _ in range(_ATTEMPTS):
        watch.begin()
        prepare()
        counts = counter.count_exchanges(plan)
        if run_again is not None:
            counts |= counter.count_rest(plan, run_again)
        if not watch.has_repeats(list_jobs):
            return counts
    return None
