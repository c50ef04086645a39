"""Helpers for tests that run streaming queries."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from penstock import Controller, Decision, Observation, PenstockError
from penstock.spark.versions import find_internals, internals_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

KEEPS = (1.0, 0.5, 0.1)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    """Older versions of Spark have no replay source: a test that needs one is skipped, with the line that says so."""
    try:
        return (yield)
    except (PenstockError, AssertionError) as error:  # a test that expects another line gets this one
        line = re.search(r"the replay source needs Spark .*?rate-micro-batch", str(error))
        if line is not None and not _has_replay():
            pytest.skip(line.group())
        raise


def _has_replay() -> bool:
    import pyspark

    return find_internals(pyspark.__version__).has_replay


class Cycle(Controller):
    """Another keep for every batch, and a memory of what it saw."""

    def __init__(self, delay_target_s: float = 2.0) -> None:
        super().__init__(delay_target_s)
        self.seen: list[Observation] = []

    def update(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        return Decision(keep=KEEPS[(observation.batch_id + 1) % 3])


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session; queries that a failed test left running are stopped."""
    yield spark
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def ticks(session: SparkSession) -> Callable[..., DataFrame]:
    """A stream of a fixed number of rows a batch: value 0, 1, 2, ... in order."""

    def make(rows: int = 1_000, start_ms: int = 1_700_000_000_000, advance_ms: int = 1_000) -> DataFrame:
        reader = session.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 2)
        return reader.option("startTimestamp", start_ms).option("advanceMillisPerBatch", advance_ms).load()

    return make


def wait_until(condition: Callable[[], Any], query: Any = None, seconds: float = 60.0) -> None:
    """Wait for something to come true; fail with the query's error if it ends."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert query is None or query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def to_arrow(df: DataFrame) -> pa.Table:
    """Return the rows of a DataFrame, on any version of Spark."""
    return internals_of(df.sparkSession).to_arrow(df)


def from_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a DataFrame of these rows, on any version of Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return internals_of(spark).from_arrow(spark, table, from_arrow_schema(table.schema))
