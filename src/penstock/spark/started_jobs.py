"""How many Spark jobs a query started during a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StartedJobs"]

_PATIENCE_S = 0.2


class StartedJobs:
    """Counts jobs by the number that Spark's scheduler gives to the next one.

    That is one call, and it is right at once. It counts those of other queries too. Only where that matters, Spark's list of jobs
    is read: it is long, the events that fill it come later, and it forgets old jobs.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark._jsc.sc()
        self._scheduler, self._tracker = context.dagScheduler(), context.statusTracker()
        self.begin()

    def begin(self) -> None:
        """A batch begins."""
        self._first = self._next()

    def count(self, list_jobs: Callable[[], Iterable[int]], enough: int) -> int:
        """Return how many jobs the query has started since the batch began.

        Parameters
        ----------
        list_jobs
            Lists the jobs of the query, the newest first.
        enough
            As long as there are no more, those of other queries may be among them.
        """
        upcoming = self._next()
        if upcoming - self._first <= enough:
            return upcoming - self._first
        deadline = time.monotonic() + _PATIENCE_S
        while not self._tracker.getJobInfo(upcoming - 1).isDefined() and time.monotonic() < deadline:
            time.sleep(0.002)
        started = 0
        for number in list_jobs():  # each is a call to the JVM
            if number < self._first:
                break
            started += 1
        return started

    def _next(self) -> int:
        return int(self._scheduler.numTotalJobs())
