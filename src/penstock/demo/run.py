"""The whole demo: calibrate, measure the capacity, run both arms on the same trace."""

from __future__ import annotations

from typing import Protocol

from penstock.demo.arm import run_arm
from penstock.demo.job import Job
from penstock.demo.summary import ArmRun, Demo, Settings
from penstock.demo.work import calibrate
from penstock.errors import PenstockError
from penstock.simulation.traffic import Traffic
from penstock.spark.fresh_session import fresh_session

__all__ = ["ARMS", "Audience", "run_demo"]

CORES = 2
ROW_COST_S = 0.0004
ARMS = (("Spark alone", "keep-all"), ("with Penstock", "micro-batch"))
"""The arms and their controllers. The one that keeps everything measures and does nothing else: Spark's own behaviour."""


class Audience(Protocol):
    """Who watches the demo."""

    def phase(self, text: str) -> None:
        """Take note of what happens now."""

    def measured(self, capacity_rows_per_s: float, overhead_s: float) -> None:
        """Take note of what the machine can do."""

    def arm(self, run: ArmRun, passed_s: float) -> None:
        """Take note of how an arm is doing."""


def run_demo(settings: Settings, audience: Audience) -> Demo:
    """Run it: about 30 seconds of measuring and twice the seconds of an arm."""
    _check(settings)
    audience.phase("starting Spark")
    with fresh_session("demo", CORES) as (spark, scratch):
        audience.phase("measuring what the job can do on this machine")
        work = calibrate(ROW_COST_S)
        job = Job(spark, work, scratch, settings.target_s)
        job.warm_up()
        capacity = job.capacity(settings.target_s)
        overhead_s = job.warm_up()
        audience.measured(capacity, overhead_s)
        rate = settings.overload * capacity
        traffic = Traffic.of("b-model", rate=rate, duration_s=settings.seconds, bias=settings.bias, seed=settings.seed)
        source = {
            "generator": "b-model",
            "rate": rate,
            "duration": f"{settings.seconds}s",
            "bias": settings.bias,
            "seed": settings.seed,
        }
        runs: list[ArmRun] = []
        for label, controller in ARMS:
            if runs:  # the measurement before the first arm was its warm-up
                audience.phase(f"{label}: warming up")
                job.warm_up()
            audience.phase(label)
            run = run_arm(job, label, source=source, controller=controller, seconds=settings.seconds, tell=audience.arm)
            runs.append(run)
        audience.phase("done")
    return Demo(settings, work.cost_s, capacity, overhead_s, traffic.arrivals(), runs)


def _check(settings: Settings) -> None:
    if not 5.0 <= settings.seconds <= 3600.0:
        raise PenstockError(f"seconds must be from 5 to 3600, got {settings.seconds:g}")
    if not 0.1 <= settings.overload <= 100.0:
        raise PenstockError(f"overload must be from 0.1 to 100 times the capacity, got {settings.overload:g}")
    if settings.seed < 0:
        raise PenstockError(f"seed must be at least 0, got {settings.seed}")
