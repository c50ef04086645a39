"""The jobs of one query during a batch, with Spark's scheduler and its list of jobs in our hands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.started_jobs import StartedJobs


class Scheduler:
    """Jobs of two queries; the list remembers the last ``retained`` of them."""

    def __init__(self, retained: int = 1_000) -> None:
        self.owners: list[str] = []
        self.retained = retained
        self.listings = 0

    def start(self, *owners: str) -> None:
        self.owners += owners

    def numTotalJobs(self) -> int:
        return len(self.owners)

    def getJobInfo(self, number: int) -> Any:
        return SimpleNamespace(isDefined=lambda: len(self.owners) - self.retained <= number < len(self.owners))

    def list_jobs(self) -> list[int]:
        self.listings += 1
        known = range(len(self.owners) - 1, max(-1, len(self.owners) - 1 - self.retained), -1)
        return [number for number in known if self.owners[number] == "ours"]


def watch(scheduler: Scheduler) -> StartedJobs:
    context = SimpleNamespace(dagScheduler=lambda: scheduler, statusTracker=lambda: scheduler)
    return StartedJobs(SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))  # type: ignore[arg-type]


def test_few_jobs_need_no_list() -> None:
    scheduler = Scheduler()
    jobs = watch(scheduler)
    scheduler.start("ours")
    assert jobs.count(scheduler.list_jobs, enough=1) == 1
    assert scheduler.listings == 0


def test_jobs_of_other_queries_do_not_count_where_it_matters() -> None:
    scheduler = Scheduler()
    scheduler.start("ours", "theirs")
    jobs = watch(scheduler)
    scheduler.start("theirs", "ours", "theirs", "ours", "theirs")
    assert jobs.count(scheduler.list_jobs, enough=1) == 2


@pytest.mark.parametrize("before", [0, 5, 50])
def test_what_spark_has_forgotten_changes_nothing(before: int) -> None:
    """The length of Spark's list stays the same once it is full."""
    scheduler = Scheduler(retained=5)
    scheduler.start(*["ours"] * before)
    jobs = watch(scheduler)
    scheduler.start("ours", "ours", "ours")
    assert jobs.count(scheduler.list_jobs, enough=1) == 3


def test_each_batch_counts_anew() -> None:
    scheduler = Scheduler()
    jobs = watch(scheduler)
    for started in (3, 1, 2):
        jobs.begin()
        scheduler.start(*["ours"] * started)
        assert jobs.count(scheduler.list_jobs, enough=0) == started
