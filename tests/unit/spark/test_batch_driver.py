"""When the counts of a batch are read, and what a batch does that is stopped before it begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.control import KeepAll
from penstock.decision import ByBatch
from penstock.spark import batch_driver
from penstock.spark.batch_driver import BatchDriver, GateCounter
from penstock.spark.versions.spark35 import Spark35


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


class LostCounter:
    """A counter that Spark interrupts, or fails otherwise."""

    persists = False

    def __init__(self, message: str) -> None:
        self._message = message

    def begin(self) -> None:
        raise RuntimeError(self._message)

    def count(self, *_: object) -> Any:
        raise AssertionError("no batch has run")


@pytest.mark.parametrize(
    ("message", "is_active", "runs"),
    [
        ("An error occurred while calling o1.keySet.\n: java.lang.InterruptedException", False, False),
        ("An error occurred while calling o1.keySet.\n: java.lang.InterruptedException", True, True),
        ("the connection was closed", False, True),
    ],
)
def test_a_batch_does_not_begin_in_a_query_that_is_being_stopped(
    message: str, is_active: bool, runs: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is told of its own interruption, in a form that it knows, and nobody is warned of it."""
    ran: list[int] = []
    spark: Any = None
    counter: Any = LostCounter(message)
    driver = BatchDriver(spark, lambda _, batch_id: ran.append(batch_id), [], ByBatch([], KeepAll(1.0)), counter=counter)
    driver.query = SimpleNamespace(isActive=is_active)  # type: ignore[assignment]
    monkeypatch.setattr(driver, "_find_query", lambda _: None)
    monkeypatch.setattr(driver, "_plan", lambda *_: None)
    monkeypatch.setattr(driver, "_end", lambda *_: None)
    monkeypatch.setattr(driver, "_close", lambda *_: None)
    if runs:
        driver(None, 3)  # type: ignore[arg-type]
    else:
        with pytest.raises(InterruptedError, match=r"java\.lang\.InterruptedException"):
            driver(None, 3)  # type: ignore[arg-type]
    assert ran == ([3] if runs else [])
    assert ("could not look at the executors" in caplog.text) is runs


def test_who_is_interrupted_after_the_batch_says_that_its_counts_are_lost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then Spark may commit the batch, so it can't be left out in silence."""
    driver = make_stopped_driver(lambda *_: None, monkeypatch)

    def end(*_: object) -> None:
        raise RuntimeError("An error occurred while calling o1.keySet.\n: java.lang.InterruptedException")

    monkeypatch.setattr(driver, "_end", end)
    monkeypatch.setattr(driver, "_plan", lambda *_: None)
    driver(None, 3)  # type: ignore[arg-type]
    assert "could not count a batch" in caplog.text


def test_the_size_of_a_batch_that_does_not_begin_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided for it holds for the next run, which begins with it."""
    answers: list[Any] = [RuntimeError("java.lang.InterruptedException"), {"source0": 500}]
    driver = make_stopped_driver(lambda *_: pytest.fail("it begins"), monkeypatch)

    def read(*_: object) -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    planned: list[Any] = []
    monkeypatch.setattr(driver, "_sizes", SimpleNamespace(read=read, rows_per_byte={}))
    monkeypatch.setattr(driver.core, "plan_batch", lambda event: planned.append(event) or [])
    with pytest.raises(InterruptedError):
        driver(None, 3)  # type: ignore[arg-type]
    assert [event.rows for event in planned] == [{"source0": 500}]


def test_a_query_that_is_stopped_before_its_first_batch_is_known_ends_as_spark_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = make_stopped_driver(lambda *_: pytest.fail("it begins"), monkeypatch)

    def find(*_: object) -> None:
        raise RuntimeError("An error occurred while calling o1.get.\n: java.lang.InterruptedException\n\tat a.frame\n")

    monkeypatch.setattr(driver, "_find_query", find)
    with pytest.raises(InterruptedError, match=r"calling a sink: java\.lang\.InterruptedException$"):
        driver(None, 0)  # type: ignore[arg-type]


def make_stopped_driver(function: Any, monkeypatch: pytest.MonkeyPatch) -> BatchDriver:
    """A driver whose query has been told to stop."""
    spark: Any = None
    counter: Any = SimpleNamespace(persists=False, begin=lambda: None)
    driver = BatchDriver(spark, function, [], ByBatch([], KeepAll(1.0)), counter=counter)
    driver.query = SimpleNamespace(isActive=False)  # type: ignore[assignment]
    running = SimpleNamespace(checkpoint=None, progress=lambda _: None)
    monkeypatch.setattr(driver, "_find_query", lambda _: running)
    monkeypatch.setattr(driver, "_end", lambda *_: None)
    monkeypatch.setattr(driver, "_close", lambda *_: None)
    return driver


def test_where_spark_does_not_know_its_interruption_from_python_the_batch_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Spark 3.5, the query would end with an error if the batch were left out."""
    ran: list[int] = []
    driver = make_stopped_driver(lambda _, batch_id: ran.append(batch_id), monkeypatch)
    monkeypatch.setattr(batch_driver, "find_internals", lambda _: Spark35())
    monkeypatch.setattr(driver, "_plan", lambda *_: None)
    monkeypatch.setattr(driver, "_counter", LostCounter("java.lang.InterruptedException"))
    driver(None, 3)  # type: ignore[arg-type]
    assert ran == [3]
