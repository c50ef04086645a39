"""Hard starts on Spark: a capped source, a backlog, restarts, a flood, stalls, a target that can't be reached.

Every case is a job of 1 ms per row (``benchmarks.support.hard_runs`` describes it), with a backlog of 5 ms per row,
under the default controller, which is told nothing. Delays are those of single rows, from the first one on, unless a
bar says after how many seconds. The hour of downtime is simulated only (``hard-starts-simulated``); an hour of backlog
is real.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.support.hard_runs import HardJob, HardRun
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.simulation.plotting import lines
from penstock.spark.fresh_session import fresh_session

__all__ = ["plot", "run"]

_TARGET_S = 2.0


def run(*, quick: bool, say: Say) -> Result:
    """Run all cases."""
    runs: dict[str, HardRun] = {}
    with fresh_session("hard-starts", 2) as (spark, scratch):
        for name, run in _cases(HardJob(spark, scratch), scratch, quick=quick):
            runs[name] = run
            late = run.violations_s()
            say(
                f"{name}: {late.max():.2f} s late at worst, {100 * run.loss:.1f} % lost, {'; '.join(run.notes) or 'nothing said'}"
            )
    return Result("hard-starts", [_row(name, run) for name, run in runs.items()], bars=_bars(runs), lines=_curves(runs))


def _cases(job: HardJob, scratch: Path, *, quick: bool) -> Iterator[tuple[str, HardRun]]:
    seconds = 30.0 if quick else 45.0
    yield "an hour's backlog, 3 times, cold", _backlog(job, 600, seconds)
    overhead_s = job.warm_up()
    yield "an hour's backlog, 1.5 times", _backlog(job, 300, seconds)
    capped = {"generator": "constant", "rate": 4_000, "duration": "120s", "max_rows_per_batch": 1_500}
    yield "capped source", job.run(capped, seconds)
    source = {"generator": "constant", "rate": 1_500, "duration": "300s"}
    checkpoint = job.new_checkpoint()
    yield "before the restart", job.run(source, 20.0, checkpoint=checkpoint)
    time.sleep(5.0 if quick else 60.0)
    yield "restart after 60 s", job.run(source, 20.0, checkpoint=checkpoint)
    yield "flood", job.run({"path": _write_flood(scratch)}, 35.0)
    half = {"generator": "constant", "rate": 500, "duration": "300s"}
    for target_s in (_TARGET_S, 5.0):
        yield f"pauses, target {target_s:g} s", job.run(half, 61.0, target_s=target_s, stall=(15.0, 3.0))
    yield "target 1.2 o", job.run(half, 25.0, target_s=1.2 * overhead_s)
    yield "target 1.2 o, all kept", job.run(half, 25.0, target_s=1.2 * overhead_s, controller="keep-all")


def _backlog(job: HardJob, rate: float, seconds: float) -> HardRun:
    """Rows of 5 ms, since reading an hour of them costs time too, kept or not."""
    source = {"generator": "constant", "rate": rate, "duration": "3700s", "start": time.time() - 3600.0}
    return job.run(source, seconds, row_s=0.005)


def _write_flood(scratch: Path) -> str:
    """Light traffic, and 600,000 rows within a second of it."""
    light = [number / 20.0 for number in range(700)]
    times = sorted([*light, *(15.0 + number / 600_000 for number in range(600_000))])
    path = scratch / "flood.parquet"
    pq.write_table(pa.table({"t": times}), path)
    return str(path)


def _row(name: str, run: HardRun) -> Row:
    offered, kept, expired = run.counts
    late, delays = run.violations_s(), run.delays_s()
    return {
        "case": name,
        "target s": run.target_s,
        "offered": offered,
        "kept": kept,
        "loss %": 100.0 * run.loss,
        "expired %": 100.0 * expired / max(1, offered),
        "mean delay s": float(delays.mean()) if delays.size else None,
        "mean violation s": float(late.mean()),
        "max violation s": float(late.max()),
        "the same after 10 s": float(run.violations_s(10.0).max()),
        "longest batch s": run.longest_batch_s,
    }


def _bars(runs: dict[str, HardRun]) -> list[Bar]:
    bars = [Bar.at_most("capped source: mean violation after 20 s", float(runs["capped source"].violations_s(20.0).mean()), 0.1)]
    for name in ("an hour's backlog, 3 times, cold", "an hour's backlog, 1.5 times"):
        bars.append(Bar.at_most(f"{name}: longest batch, s", runs[name].longest_batch_s, max(_TARGET_S, 3.0)))
        bars.append(Bar.at_most(f"{name}: mean violation after 10 s", float(runs[name].violations_s(10.0).mean()), 0.1))
    restart = runs["restart after 60 s"].violations_s().max()
    bars.append(Bar.at_most("restart after 60 s: worst violation, s", float(restart), 0.7))
    bars.append(Bar.at_most("flood: worst violation, s", float(runs["flood"].violations_s().max()), 2.0))
    offered, kept, expired = runs["pauses, target 2 s"].counts
    bars.append(Bar.at_most("pauses, target 2 s: loss beyond the expired rows", (offered - kept - expired) / offered, 0.03))
    bars.append(Bar.at_most("pauses, target 5 s: loss", runs["pauses, target 5 s"].loss, 0.03))
    unreachable, everything = runs["target 1.2 o"], runs["target 1.2 o, all kept"]
    bars.append(Bar.at_most("target 1.2 o at half load: loss", unreachable.loss, 0.05))
    ratio = unreachable.delays_s(10.0).mean() / everything.delays_s(10.0).mean()
    bars.append(Bar.at_most("target 1.2 o at half load: mean delay relative to keeping all", float(ratio), 1.2))
    return bars


def _curves(runs: dict[str, HardRun]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the worst delay of the rows kept in each batch, cut off at 10 s."""
    curves = {}
    for name, one in runs.items():
        points = [
            (record.end_s - one.begin_s, min(10.0, record.end_s - float(one.kept[number].min())))
            for number, record in sorted(one.state.batches.items())
            if record.end_s is not None and number in one.kept and one.kept[number].size
            if record.end_s >= one.begin_s
        ]
        curves[name] = ([x for x, _ in points], [y for _, y in points])
    return curves


def plot(result: Result, path: Path) -> None:
    """Draw the delay of the oldest row kept in each batch, cut off at 10 s."""
    panels = {f"{name}, s": {"delay of the oldest row kept": curve} for name, curve in result.lines.items()}
    lines(panels, path, title="Hard starts on Spark, target 2 s", target=_TARGET_S)
