"""Freshest first against an even sample on Spark: rows kept, and the worst delay, at targets of 10, 5 and 3.3 overheads.

The job of ``hard-starts``, 1 ms per row, at three times its capacity, with exponential times between arrivals. Both
arms run in turn, several times; the median counts. What is compared is the rows kept per second and the delay of the
latest row, after 5 s; fresh rows get 2 % less time (``worst=0.98``), so that their worst delay is not the greater
one. A second table has on-off arrivals, as bursty as BC-pAug89: there the newest seconds hold more or fewer rows than
expected, and keeping a margin for that costs part of the gain.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.support.hard_runs import HardJob
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.control import MicroBatch
from penstock.simulation.plotting import bars as draw_bars
from penstock.spark.fresh_session import fresh_session

__all__ = ["plot", "run"]

_TARGETS = {10.0: 1.05, 5.0: 1.15, 3.3: 1.3}
"""The target in overheads, and the bar for the rows kept."""
_LOAD, _START_S = 3_000, 5.0
_WORST: dict[Literal["even", "fresh"], float] = {"even": 1.0, "fresh": 0.98}
"""The longest wait in targets: fresh rows get a little less, so that their worst delay is not the greater one."""


def run(*, quick: bool, say: Say) -> Result:
    """Run both arms at every target."""
    rounds, seconds = (1, 20.0) if quick else (3, 30.0)
    rows: list[Row] = []
    with fresh_session("freshness", 2) as (spark, scratch):
        job = HardJob(spark, scratch)
        tiny_s = job.warm_up()
        say(f"tiny batches take {tiny_s * 1e3:.0f} ms at the start")
        job.measure_overhead(_source("exponential", 30.0, 99))
        for generator in ("exponential",) if quick else ("exponential", "on-off"):
            for multiple in _TARGETS:
                # A session needs minutes until Spark's overhead no longer falls, so it is measured again for each target.
                overhead_s = job.measure_overhead(_source("exponential", 30.0, 98))
                say(f"a batch takes {overhead_s * 1e3:.0f} ms beyond its rows")
                rows += _compare(job, generator, multiple, multiple * overhead_s, rounds=rounds, seconds=seconds, say=say)
    return Result("freshness", rows, bars=_bars(rows))


def _source(generator: str, seconds: float, seed: int) -> Mapping[str, Any]:
    """Return the source. One partition: it cuts a batch by time, so all fresh rows would fall to the last task."""
    return {"generator": generator, "rate": _LOAD, "duration": f"{seconds + 5}s", "seed": seed, "partitions": 1}


def _compare(
    job: HardJob, generator: str, multiple: float, target_s: float, *, rounds: int, seconds: float, say: Say
) -> list[Row]:
    """Run both arms in turn, on the same arrivals."""
    arms = tuple(_WORST)
    kept, worst, late = ({arm: list[float]() for arm in arms} for _ in range(3))
    for number in range(rounds):
        source = _source(generator, seconds, number)
        for prefer, longest in _WORST.items():
            say(f"{generator}, target {target_s:.2f} s ({multiple:g} overheads), {prefer}")
            law = MicroBatch(target_s, longest, prefer=prefer)
            one = job.run(source, seconds, target_s=target_s, controller=law)
            kept[prefer].append(one.kept_per_s(_START_S))
            delays = one.delays_s(_START_S)
            worst[prefer].append(float(delays.max()) if delays.size else 0.0)
            late[prefer].append(float(np.quantile(delays, 0.99)) if delays.size else 0.0)
    even = statistics.median(kept["even"])
    return [
        {
            "arrivals": generator,
            "target in o": multiple,
            "target s": target_s,
            "prefer": prefer,
            "kept rows/s": statistics.median(kept[prefer]),
            "of even": statistics.median(kept[prefer]) / max(even, 1e-9),
            "p99 delay s": statistics.median(late[prefer]),
            "worst delay s": statistics.median(worst[prefer]),
        }
        for prefer in arms
    ]


def _bars(rows: list[Row]) -> list[Bar]:
    bars = []
    for multiple, limit in _TARGETS.items():
        even, fresh = [row for row in rows if row["target in o"] == multiple and row["arrivals"] == "exponential"]
        bars.append(Bar.at_least(f"fresh / even, rows kept, target {multiple:g} o", float(fresh["of even"] or 0.0), limit))
        excess = float(fresh["worst delay s"] or 0.0) - float(even["worst delay s"] or 0.0)
        bars.append(Bar.at_most(f"worst delay of fresh minus that of even, target {multiple:g} o, s", excess, 0.0))
    return bars


def plot(result: Result, path: Path) -> None:
    """Draw the rows kept relative to the even sample."""
    values = [
        (f"{row['arrivals']}, {float(row['target in o'] or 0):g} o", float(row["of even"] or 0.0))
        for row in result.rows
        if row["prefer"] == "fresh"
    ]
    draw_bars(values, path, title="Freshest first, at three times the capacity", label="rows kept, relative to an even sample")
