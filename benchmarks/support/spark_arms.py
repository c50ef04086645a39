"""The job of the controller benchmarks on Spark, and its runs: every arm in every setting.

The demo's job on two cores: replayed rows, a gate, a Python function that costs real CPU, and a count by key and
window. The target is 2 s, and the on-off arrivals are as bursty as BC-pAug89. Every arm runs alone on the same trace,
one after the other in each setting.

The delay of a row is the end of its batch minus its arrival; rows that arrive in the first 20 s do not count. Capacity
is what the job processes in large batches, and o is the time of a batch of 20 rows; both are measured again before
every setting. At a delay of D a job can process ``(1 - o / B) / c`` rows per second, with B = D / 2 and c from the
arm's own batches.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.support.pid_throttle import PidThrottle
from benchmarks.support.protocol import Say
from benchmarks.support.results import Result, Row
from penstock.control import Controller
from penstock.demo.summary import ArmRun, summarise
from penstock.demo.work import calibrate
from penstock.simulation.plotting import by_panel, lines
from penstock.simulation.traffic import Traffic
from penstock.spark.fresh_session import fresh_session

if TYPE_CHECKING:
    from penstock.demo.job import Form, Job

__all__ = [
    "Arm",
    "CAP",
    "DOUBLED",
    "PID_THROTTLE",
    "Setting",
    "TARGET_S",
    "THREE_TIMES",
    "delay_curves",
    "draw",
    "run_arms",
    "value_of",
]

TARGET_S = 2.0
CAP, PID_THROTTLE = "cap", "PID throttle"
"""Arms with these names only delay rows: by a cap on the rows of a batch, and by the rate estimator of DStreams."""
_ROW_COST_S, _START_S, _CORES = 0.0004, 20.0, 2


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions that a job runs under."""

    name: str
    load: float
    doubled: bool = False
    """Whether the cost of a row doubles halfway."""
    hog: bool = False
    """Whether another process takes a core from halfway on."""


THREE_TIMES = Setting("3 times capacity", 3.0)
DOUBLED = Setting("cost doubles", 1.5, doubled=True)


@dataclass(frozen=True, slots=True)
class Arm:
    """The run of one controller in one setting."""

    setting: Setting
    name: str
    run: ArmRun
    row: Row
    recovery_batches: float
    """Batches from the change halfway until the delay is within its target again."""


def run_arms(
    arms: Mapping[str, tuple[str | Controller, Form]], settings: Sequence[Setting], length_s: float, say: Say
) -> list[Arm]:
    """Run every arm, given as a controller and the form of the job, in every setting."""
    from penstock.demo.job import Job  # noqa: PLC0415 - needs Spark

    results: list[Arm] = []
    with fresh_session("spark-controllers", _CORES) as (spark, scratch):
        job = Job(spark, calibrate(_ROW_COST_S), scratch, TARGET_S)
        job.warm_up()
        for number, setting in enumerate(settings, start=1):
            capacity, overhead_s = job.capacity(TARGET_S), job.warm_up()
            say(f"{setting.name}: capacity {capacity:,.0f} rows/s, an empty batch {overhead_s * 1e3:.0f} ms")
            rate = setting.load * capacity
            source = {"generator": "on-off", "rate": rate, "duration": f"{length_s}s", "seed": number}
            arrivals = Traffic.of("on-off", rate=rate, duration_s=length_s, seed=number).arrivals()
            for name, arm in arms.items():
                say(f"{setting.name}: {name}")
                run = _run(job, name, arm, setting, source, length_s=length_s, capacity=capacity, scratch=scratch)
                results.append(_summarise(setting, name, run, arrivals, capacity=capacity, overhead_s=overhead_s))
    return results


def _run(
    job: Job,
    name: str,
    arm: tuple[str | Controller, Form],
    setting: Setting,
    source: dict[str, Any],
    *,
    length_s: float,
    capacity: float,
    scratch: Path,
) -> ArmRun:
    from penstock.demo.arm import run_arm  # noqa: PLC0415 - needs Spark

    job.warm_up()
    after = None
    if name == CAP:
        source = source | {"max_rows_per_batch": round(capacity * TARGET_S / 2)}
    elif name == PID_THROTTLE:
        limit = scratch / f"limit-{time.monotonic_ns()}"
        source = source | {"max_rows_file": str(limit)}
        after = _throttle(limit)
    hog = _hog_core(length_s / 2) if setting.hog else contextlib.nullcontext()
    with hog:
        return run_arm(
            job,
            f"{setting.name}, {name}",
            source=source,
            controller=arm[0],
            form=arm[1],
            seconds=length_s,
            tell=_ignore_progress,
            double_at_s=length_s / 2 if setting.doubled else math.inf,
            after=after,
        )


def _ignore_progress(run: ArmRun, passed_s: float) -> None:
    """Read the journal as often as the demo does, but print nothing."""


def _throttle(limit: Path) -> Callable[[int], None]:
    """Return a function that sets the next batch's limit after every batch. There is always a backlog, so batches are full."""
    pid = PidThrottle(interval_s=TARGET_S / 2)
    last = [time.monotonic(), 100]
    limit.write_text("100")

    def after(batch_id: int) -> None:  # noqa: ARG001 - the job passes the batch's number
        now = time.monotonic()
        taken_s, rows = now - last[0], int(limit.read_text())
        pid.update(rows, taken_s, max(0.0, taken_s - TARGET_S / 2))
        pid.write(limit)
        last[0] = now

    return after


def _burn(until_s: float) -> None:
    while time.time() < until_s:
        sum(range(10_000))


@contextlib.contextmanager
def _hog_core(after_s: float) -> Iterator[None]:
    """Start a process that keeps a core busy, after some time."""
    process = multiprocessing.get_context("spawn").Process(target=_burn, args=(time.time() + 3600.0,), daemon=True)
    timer = threading.Timer(after_s + 2.0, process.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if process.pid is not None:
            process.terminate()
            process.join()


def _summarise(setting: Setting, name: str, run: ArmRun, arrivals: np.ndarray, *, capacity: float, overhead_s: float) -> Arm:
    summary = summarise(run, arrivals, TARGET_S, capacity, from_s=_START_S)
    batches = [batch for batch in run.batches if batch.start_s >= _START_S]
    kept, busy_s = sum(batch.kept for batch in batches), sum(batch.end_s - batch.start_s for batch in batches)
    possible_rate = least_loss = math.nan
    if kept and busy_s > overhead_s * len(batches):
        cost_s = (busy_s - overhead_s * len(batches)) / kept
        possible_rate = max(0.0, 1.0 - overhead_s / (TARGET_S / 2)) / cost_s
        offered_rate = summary.arrived / (run.seconds - _START_S)
        least_loss = max(0.0, 1.0 - possible_rate / offered_rate)
    goodput = kept / busy_s if busy_s else 0.0
    row: Row = {
        "setting": setting.name,
        "arm": name,
        "mean delay s": summary.mean_delay_s,
        "p99 s": summary.p99_delay_s,
        "mean violation s": summary.mean_violation_s,
        "max violation s": summary.max_violation_s,
        "loss %": 100.0 * summary.shed / max(1, summary.shed + summary.kept),
        "least loss %": 100.0 * least_loss if math.isfinite(least_loss) else None,
        "rows/s": goodput,
        "of capacity": goodput / capacity,
        "of what D allows": goodput / possible_rate if possible_rate and math.isfinite(possible_rate) else None,
    }
    return Arm(setting, name, run, row, _recovery_batches(run))


def _recovery_batches(run: ArmRun) -> float:
    """Count the batches from the middle on until the worst delay, two batch times, is within the target again."""
    half_s = run.seconds / 2
    late = [batch for batch in run.batches if batch.end_s > half_s]
    over = [
        number
        for number, (before, batch) in enumerate(pairwise(late), start=1)
        if batch.end_s - before.start_s > TARGET_S and batch.start_s < half_s + 15.0
    ]
    return float(max(over, default=0)) if late else math.inf


def value_of(arms: list[Arm], setting: str, name: str, column: str) -> float:
    """Return one number of one arm; nan where there is none."""
    values = [arm.row[column] for arm in arms if arm.setting.name == setting and arm.name == name]
    return float(values[0]) if values and isinstance(values[0], int | float) else math.nan


def delay_curves(arms: list[Arm]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the mean delay of the batches of each arm, cut off at 10 s."""
    return {
        f"{arm.name}|{arm.setting.name}": (
            [batch.end_s for batch in arm.run.batches if batch.kept],
            [min(batch.delay_s, 10.0) for batch in arm.run.batches if batch.kept],
        )
        for arm in arms
    }


def draw(result: Result, path: Path, title: str) -> None:
    """Draw the mean delay of the batches, one panel per setting, cut off at 10 s."""
    lines(
        {f"{setting}: delay, s": panel for setting, panel in by_panel(result.lines).items()}, path, title=title, target=TARGET_S
    )
