"""What the dashboard costs, and how soon it shows something.

- A journal of 1,000,000 batches, as a job with the default settings leaves it: the latest 4,096 one by one, the older ones
  in buckets of time. A new process reads it and makes all that the page asks for; the time is from the
  first look at the journal to the last answer, without importing Python's modules, and the memory is the largest that
  the process ever had. Where a browser is installed, it then opens the page, and the time until its charts are drawn is
  added.
- A journal gets a batch every half second, and a page is open on it. The time from the end of a batch, as the journal
  has it, to the frame in which the page shows it, by the clock of this machine.
- A Spark job of batches of 200,000 rows, in turn with nobody watching and with 200 pages open: a dashboard in a process
  of its own, and 200 connections that read every event. What reads them runs only when nobody else wants to, since
  browsers are on other machines. The shortest round of each arm counts.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.support.browser import find_browser, open_browser, run_dashboard
from benchmarks.support.dashboard_jobs import make_batches, write_long_journal
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run"]

_BATCHES, _QUICK_BATCHES = 1_000_000, 50_000
_READY_S, _READY_MB, _PIXEL_S, _RATIO = 1.0, 300.0, 1.0, 0.03
_PAGES, _QUICK_PAGES = 200, 20
_ROWS = 200_000
_ROUNDS, _QUICK_ROUNDS = 10, 2
_WARM_UP, _MEASURED = 6, 30
_READ = """
import json, resource, sys, time
from penstock.observe import Observatory
began = time.perf_counter()
observatory = Observatory([sys.argv[1]])
(number,) = observatory.queries
parts = (observatory.overview(), observatory.detail(number), observatory.curves(number, points=700))
sizes = [len(json.dumps(part)) for part in parts]
took_s = time.perf_counter() - began
batches = observatory.queries[number].tail.series.batches
print(json.dumps([took_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, batches, sum(sizes)]))
"""
_SEEN = """
window.seen = {};
const look = () => {
  const tile = [...document.querySelectorAll('.tile')].find(t => t.textContent.startsWith('Batches'));
  const text = tile ? tile.querySelector('.value').textContent : null;
  if (text !== null && !(text in window.seen)) window.seen[text] = Date.now() / 1000;
  requestAnimationFrame(look);
};
look();
"""
_READER = """
import asyncio, os, sys
if hasattr(os, "SCHED_IDLE"): os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
host, port, query, pages = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
async def follow():
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET /api/events?query={query} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    while await reader.read(65536): pass
async def main():
    tasks = [asyncio.create_task(follow()) for _ in range(pages)]
    await asyncio.sleep(1.0)
    print("open", flush=True)
    await asyncio.gather(*tasks, return_exceptions=True)
asyncio.run(main())
"""


def run(*, quick: bool, say: Say) -> Result:
    """Measure all three."""
    with TemporaryDirectory(prefix="penstock-dashboard-load-") as scratch:
        root = Path(scratch)
        ready = _measure_ready(root / "long", _QUICK_BATCHES if quick else _BATCHES, say)
        pixel = _measure_pixel(root / "live", 10 if quick else 40, say)
    shared = _measure_pages(_QUICK_PAGES if quick else _PAGES, _QUICK_ROUNDS if quick else _ROUNDS, say)
    rows: list[Row] = [*ready["rows"], *pixel["rows"], *shared["rows"]]
    return Result("dashboard-load", rows, bars=[*ready["bars"], *pixel["bars"], *shared["bars"]])


def _measure_ready(path: Path, batches: int, say: Say) -> dict[str, Any]:
    say(f"a journal of {batches:,} batches")
    write_long_journal(path, batches)
    runs = []
    for _ in range(5):
        ended = subprocess.run([sys.executable, "-c", _READ, str(path)], check=True, capture_output=True, text=True)  # noqa: S603
        runs.append(json.loads(ended.stdout))
    if any(run[2] != batches for run in runs):
        raise RuntimeError(f"the page would show {runs[0][2]} batches of {batches}")
    read_s, memory_mb = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
    drawn_s = _draw_page(path) if find_browser() is not None else 0.0
    megabytes = sum(file.stat().st_size for file in path.iterdir()) / 1e6
    rows: list[Row] = [
        {"what": f"a journal of {batches:,} batches: read and described", "value": read_s, "unit": "s"},
        {"what": "the same: drawn by the browser", "value": drawn_s, "unit": "s"},
        {"what": "the same: memory", "value": memory_mb, "unit": "MB"},
        {"what": "the same: on disk", "value": megabytes, "unit": "MB"},
    ]
    ready = Bar.at_most(f"page ready on {batches:,} batches, s", read_s + drawn_s, _READY_S)
    return {"rows": rows, "bars": [ready, Bar.at_most("memory of the reader, MB", memory_mb, _READY_MB)]}


def _draw_page(path: Path) -> float:
    """Return the seconds from asking for the page until all of its charts are drawn, as the browser measures them."""
    script = """
        const done = arguments[0];
        const isDrawn = () => document.querySelectorAll('.chart canvas').length >= 6;
        const look = () => isDrawn() ? done(performance.now() / 1000) : requestAnimationFrame(look);
        look();
    """
    times = []
    with run_dashboard(path) as address, open_browser() as browser:
        for _ in range(5):
            browser.get("about:blank")
            browser.get(address)
            times.append(float(browser.execute_async_script(script)))
    return statistics.median(times)


def _measure_pixel(path: Path, batches: int, say: Say) -> dict[str, Any]:
    if find_browser() is None:
        return {"rows": [{"what": "from the end of a batch to the pixel: no browser", "value": None, "unit": "s"}], "bars": []}
    say(f"from the end of a batch to the pixel, {batches} times")
    journal = Journal(path, owner="job")
    ends: dict[str, float] = {}
    with run_dashboard(path) as address, open_browser() as browser:
        browser.get(address)
        browser.execute_script(_SEEN)
        for number, (decision, batch) in enumerate(make_batches(batches + 5)):
            time.sleep(0.5)
            shift_s = time.time() - (batch.end_s or 0.0)
            arrival_s = (batch.mean_arrival_s or 0.0) + shift_s
            ends[str(number + 1)] = time.time()
            journal.append(
                decision, replace(batch, start_s=(batch.start_s or 0.0) + shift_s, end_s=time.time(), mean_arrival_s=arrival_s)
            )
        time.sleep(2.0)
        seen = browser.execute_script("return window.seen")
    journal.close()
    delays_s = [seen[number] - end_s for number, end_s in list(ends.items())[5:] if number in seen]
    if len(delays_s) < batches // 2:
        raise RuntimeError(f"the page showed {len(delays_s)} of {batches} batches")
    rows: list[Row] = [
        {"what": "from the end of a batch to the pixel, median", "value": statistics.median(delays_s), "unit": "s"},
        {"what": "the same, longest", "value": max(delays_s), "unit": "s"},
    ]
    return {"rows": rows, "bars": [Bar.at_most("from the end of a batch to the pixel, longest, s", max(delays_s), _PIXEL_S)]}


def _measure_pages(pages: int, rounds: int, say: Say) -> dict[str, Any]:
    from penstock.spark.fresh_session import fresh_session  # noqa: PLC0415 - needs Spark

    medians_ms: dict[str, list[float]] = {"alone": [], "watched": []}
    with fresh_session("dashboard-load", 2) as (spark, scratch):
        job = _Job(spark, scratch)
        job.run()
        for number in range(rounds):
            say(f"{pages} pages, round {number + 1} of {rounds}")
            order = ("alone", "watched") if number % 2 else ("watched", "alone")
            for arm in order:
                medians_ms[arm].append(statistics.median(job.run(pages if arm == "watched" else 0)))
    ratio = min(medians_ms["watched"]) / min(medians_ms["alone"])
    rows: list[Row] = [
        {"what": f"batch of {_ROWS:,} rows, {name}", "value": min(times), "unit": "ms", "median round": statistics.median(times)}
        for name, times in medians_ms.items()
    ]
    bar = Bar(f"{pages} pages open: ratio of batch times", ratio, 1.0 + _RATIO, abs(ratio - 1.0) <= _RATIO)
    return {"rows": rows, "bars": [bar]}


@contextlib.contextmanager
def _watch(checkpoint: Path, pages: int) -> Iterator[None]:
    """Serve a checkpoint and let so many pages follow it."""
    with run_dashboard(checkpoint) as address:
        with urllib.request.urlopen(f"{address}api/overview") as answer:  # noqa: S310 - loopback
            number = json.load(answer)["queries"][0]["id"]
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        command = [sys.executable, "-c", _READER, host, port, number, str(pages)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as readers:  # noqa: S603 - this program
            try:
                if readers.stdout is None or readers.stdout.readline().strip() != "open":
                    raise RuntimeError("the pages could not be opened")
                yield
            finally:
                readers.terminate()


class _Job:
    """A job whose batches are all alike."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark, self._scratch = spark, scratch
        self._numbers = count()

    def run(self, pages: int = 0) -> list[float]:
        """Run batches, with so many pages open, and return the milliseconds that Spark reports for each."""
        from penstock import Shedder  # noqa: PLC0415 - needs Spark

        checkpoint = self._scratch / f"checkpoint-{next(self._numbers)}"
        source = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).option("numPartitions", 2).load()
        with Shedder("2s", controller="keep-all") as shedder:
            rows = shedder.gate(source, name="rows", arrival="timestamp")
            query = shedder.foreach_batch(rows, _spend, checkpoint=str(checkpoint))
            _wait_for(query, _WARM_UP)
            with _watch(checkpoint, pages) if pages else contextlib.nullcontext():
                first = (query.lastProgress.batchId if query.lastProgress is not None else 0) + 2
                _wait_for(query, first + _MEASURED)
                reports = [progress for progress in query.recentProgress if first <= progress.batchId < first + _MEASURED]
        return [float(progress.durationMs["triggerExecution"]) for progress in reports]


def _wait_for(query: StreamingQuery, batch_id: int) -> None:
    while query.lastProgress is None or query.lastProgress.batchId < batch_id:
        if (failure := query.exception()) is not None:
            raise failure
        time.sleep(0.1)


def _spend(df: DataFrame, _: int) -> None:
    df.write.format("noop").mode("overwrite").save()
