"""The whole demo: calibrate the work, measure the capacity, run both arms on the same trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

import pyspark

from penstock.demo.arm import run_arm
from penstock.demo.job import Job
from penstock.demo.summary import ArmRun, Demo, Settings
from penstock.demo.topic_job import TopicJob
from penstock.demo.work import Work, calibrate
from penstock.errors import PenstockError
from penstock.simulation.traffic import Traffic
from penstock.spark.fresh_session import fresh_session
from penstock.testing.kafka import KafkaBroker, fetch_connector

__all__ = ["ARMS", "Audience", "run_demo"]

CORES = 2
ROW_COST_S = 0.0004
ARMS = (("Spark alone", "keep-all"), ("with Penstock", "micro-batch"))
"""The arms and their controllers. With ``keep-all`` the shedder only measures, so Spark behaves as it would alone."""


class Audience(Protocol):
    """Shows the demo to somebody."""

    def show_phase(self, text: str) -> None:
        """Show what the demo is doing."""

    def show_capacity(self, capacity_rows_per_s: float, overhead_s: float) -> None:
        """Show what the machine can do."""

    def show_arm(self, run: ArmRun, passed_s: float) -> None:
        """Show how an arm is doing."""


def run_demo(settings: Settings, audience: Audience) -> Demo:
    """Run the demo: about 30 seconds of measuring, then both arms.

    Raises
    ------
    PenstockError
        If a setting is out of range.

    """
    _check(settings)
    with _open_job(settings, audience) as (job, work):
        audience.show_phase("measuring the capacity of this machine")
        job.warm_up()
        capacity = job.capacity(settings.target_s)
        overhead_s = job.warm_up()
        audience.show_capacity(capacity, overhead_s)
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
            if runs:  # measuring the capacity has warmed up the first arm
                audience.show_phase(f"{label}: warming up")
                job.warm_up()
            audience.show_phase(label)
            run = run_arm(job, label, source=source, controller=controller, seconds=settings.seconds, tell=audience.show_arm)
            runs.append(run)
        audience.show_phase("done")
    return Demo(settings, work.cost_s, capacity, overhead_s, traffic.arrivals(), runs)


@contextlib.contextmanager
def _open_job(settings: Settings, audience: Audience) -> Iterator[tuple[Job, Work]]:
    """Start Spark, and a Kafka broker if rows go through a topic."""
    with contextlib.ExitStack() as stack:
        conf: dict[str, str] = {}
        if settings.source == "kafka":
            audience.show_phase("starting Kafka")
            broker = stack.enter_context(KafkaBroker())
            conf["spark.jars"] = ",".join(str(jar) for jar in fetch_connector(pyspark.__version__))
        audience.show_phase("starting Spark")
        spark, scratch = stack.enter_context(fresh_session("demo", CORES, **conf))
        work = calibrate(ROW_COST_S)
        if settings.source == "replay":
            yield Job(spark, work, scratch, settings.target_s), work
            return
        job = TopicJob(spark, work, scratch, settings.target_s, broker)
        stack.callback(job.stop_feed)
        yield job, work


def _check(settings: Settings) -> None:
    if not 5.0 <= settings.seconds <= 3600.0:
        raise PenstockError(f"seconds must lie in [5, 3600], got {settings.seconds:g}")
    if not 0.1 <= settings.overload <= 100.0:
        raise PenstockError(f"overload must lie in [0.1, 100] times the capacity, got {settings.overload:g}")
    if settings.source not in ("replay", "kafka"):
        raise PenstockError(f"source must be replay or kafka, got {settings.source!r}")
    if settings.seed < 0:
        raise PenstockError(f"seed must be at least 0, got {settings.seed}")
