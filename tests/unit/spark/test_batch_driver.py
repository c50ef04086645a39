"""When the counts of a batch are read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.spark.batch_driver import GateCounter


def make_counter(steps: list[str], *, is_local: bool) -> Any:
    """A counter whose parts note what is asked of them."""

    def note(step: str, answer: Any) -> Any:
        return lambda *_: steps.append(step) or answer

    counter: Any = GateCounter.__new__(GateCounter)
    counter._gates, counter.persists, counter._proven_jobs = (), False, 1
    counter._counter = SimpleNamespace(read=note("read", {}))
    counter._watch = SimpleNamespace(is_local=is_local, has_repeats=note("look for tasks that ran twice", False))
    counter._jobs = SimpleNamespace(count=note("count jobs", 1))
    return counter


RUNNING: Any = SimpleNamespace(plan=lambda: None, job_ids=list)


def test_on_a_cluster_counts_are_read_before_it_is_asked_whether_tasks_ran_twice() -> None:
    """A copy of a task that ends in between would count, and nobody would know."""
    steps: list[str] = []
    read = make_counter(steps, is_local=False).count(RUNNING, None)
    assert steps == ["count jobs", "read", "look for tasks that ran twice"]
    read()
    assert len(steps) == 3


def test_in_one_process_they_are_read_beside_the_batch() -> None:
    steps: list[str] = []
    read = make_counter(steps, is_local=True).count(RUNNING, None)
    assert steps == ["count jobs"]
    read()
    assert steps == ["count jobs", "read"]
