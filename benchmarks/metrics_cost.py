"""What metrics add to a micro-batch.

A streaming job under a shedder that keeps everything (``rate-micro-batch``, 20,000 rows per batch, a count by key), with
metrics off and with each way out: Prometheus, scraped ten times per second; OpenTelemetry, exported ten times per second;
Spark's metrics system; all three at once. What the job waits for is timed where it waits: every call by which the driver
tells its observers something, added up over a batch. That is all that metrics do on the job's threads. Batch times from end to
end, medians over all batches but the first, are shown too: they also hold what scrapes take from the job, and the noise of the
machine, which is larger than what is measured.
"""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.metrics import Observers
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run"]

_ROWS = 20_000
_BATCHES, _QUICK_BATCHES, _WARM_UP = 50, 25, 10
_ROUNDS = 2
_PORT = 19_464
_MAX_MS = 1.0


def run(*, quick: bool, say: Say) -> Result:
    """Run the job with each way out, in turn."""
    batches, rounds = (_QUICK_BATCHES, 1) if quick else (_BATCHES, _ROUNDS)
    times_ms: dict[str, list[float]] = {}
    added_ms: dict[str, list[float]] = {}
    with fresh_session("metrics-cost", 2) as (spark, scratch), _scraping(_PORT), _exporting() as provider:
        arms: dict[str, Any] = {
            "off": None,
            "prometheus": _PORT,
            "opentelemetry": provider,
            "spark": "spark",
            "all": [_PORT, provider, "spark"],
        }
        numbers = count()
        for round_number in range(rounds):
            for name, metrics in arms.items():
                say(f"round {round_number + 1} of {rounds}: {name}")
                times, added = _run_job(spark, scratch / f"checkpoint{next(numbers)}", metrics, batches)
                times_ms.setdefault(name, []).extend(times)
                added_ms.setdefault(name, []).extend(added)
    rows: list[Row] = [
        {
            "metrics": name,
            "added per batch, median ms": statistics.median(added_ms[name]),
            "added per batch, mean ms": statistics.mean(added_ms[name]),
            "99% of batches ms": statistics.quantiles(added_ms[name], n=100)[98],
            "batch, median ms": statistics.median(times_ms[name]),
            "batches": len(times_ms[name]),
        }
        for name in arms
    ]
    bars = [
        Bar.at_most(f"added to a batch by {row['metrics']}, mean ms", float(row["added per batch, mean ms"] or 0), _MAX_MS)
        for row in rows[1:]
    ]
    return Result("metrics-cost", rows, bars)


def _run_job(spark: SparkSession, checkpoint: Path, metrics: Any, batches: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each batch, and those that its thread spent on metrics."""
    from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

    spent: list[float] = []
    options = {"rowsPerBatch": _ROWS, "numPartitions": 2, "startTimestamp": int(time.time() * 1e3)}
    source = spark.readStream.format("rate-micro-batch").options(**options).load()
    added: list[float] = []
    durations: list[float] = []

    def write(df: DataFrame, number: int) -> None:  # noqa: ARG001 - foreachBatch's signature
        df.groupBy((df["value"] % 100).alias("key")).count().write.format("noop").mode("overwrite").save()
        added.append(1e3 * sum(spent))  # since the same moment of the batch before: each call counts once
        spent.clear()
        durations.append(time.perf_counter())

    with _timing(spent), Shedder("1 min", controller="keep-all", metrics=metrics) as shedder:
        gated = shedder.gate(source, name="in", arrival="timestamp", identity="value")
        query = shedder.foreach_batch(gated, write, checkpoint=checkpoint, name="job")
        while len(durations) <= batches:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.1)
    steps = [1e3 * (after - before) for before, after in pairwise(durations)]
    return steps[_WARM_UP:], added[_WARM_UP:]


@contextmanager
def _timing(spent: list[float]) -> Iterator[None]:
    """Time every call by which a driver tells its observers something."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            start = time.perf_counter()
            try:
                original(*arguments)
            finally:
                spent.append(time.perf_counter() - start)

        return timed

    with ExitStack() as patches:
        for name in ("record", "miss", "fail"):
            patches.enter_context(mock.patch.object(Observers, name, wrap(getattr(Observers, name))))
        yield


@contextmanager
def _scraping(port: int) -> Iterator[None]:
    """Scrape like a Prometheus in a hurry."""
    is_over = threading.Event()

    def scrape() -> None:
        while not is_over.wait(0.1):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    answer.read()
            except OSError:
                continue  # nothing is served yet

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _exporting() -> Iterator[Any]:
    """A meter provider whose SDK collects and exports, to nowhere."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader  # noqa: PLC0415

    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=nowhere), export_interval_millis=100)
        provider = MeterProvider([reader])
        try:
            yield provider
        finally:
            provider.shutdown()
