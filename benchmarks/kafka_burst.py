"""A burst through a Kafka topic at 3 times capacity, without a cap and with two.

The demo's work on two cores, beside a broker and a producer on the same machine: rows of an on-off process come through
a topic with two partitions, pass a gate before they are parsed, and take a Python function that costs real CPU. The
default controller, by batch, with a target of 2 s.

The delay is measured outside of Penstock: from the timestamp that the producer gave a row to the moment at which the
sink has it. Rows that were produced in the first 20 s do not count.

Capacity is what the job processes in large batches; a batch may hold what fits into half of the target beside the time
of a batch of 20 rows. ``maxOffsetsPerTrigger`` is left out, set to twice that, and to half of that. Where a capped batch
would have to end within the time that an empty one takes, no shedding may help: if the target is missed there, a note
must say so.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.demo.work import SCORED, calibrate, scorer
from penstock.journal import read_journal
from penstock.simulation.plotting import lines
from penstock.spark.fresh_session import fresh_session
from penstock.testing.kafka import KafkaBroker, fetch_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.demo.topic_job import TopicJob

__all__ = ["plot", "run"]

_TARGET_S, _LOAD, _START_S, _MOST_S = 2.0, 3.0, 20.0, 0.1
_LENGTH_S, _QUICK_LENGTH_S = 60.0, 40.0
_ROW_COST_S, _CORES, _LEAD_S = 0.0004, 2, 3.0
_CAPS = {"no cap": None, "a cap of twice what a batch may hold": 2.0, "a cap of half of that": 0.5}
_BORDER = 1.25
"""A batch that must end within so many times the time of an empty one keeps next to nothing."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What one arm did, as the sink saw it."""

    begin_s: float
    kept: dict[int, tuple[float, NDArray[np.float64]]]
    """By batch: when the sink had it, and the producer's timestamps of its rows."""
    offered: int
    notes: tuple[str, ...]

    def delays_s(self) -> NDArray[np.float64]:
        """Return the delay of every row kept that was produced after the start."""
        parts = [at_s - made_s[made_s >= self.begin_s + _START_S] for at_s, made_s in self.kept.values()]
        return np.concatenate(parts) if parts else np.empty(0)

    @property
    def told(self) -> str | None:
        """What notes say where the target can't be held."""
        texts = {"no shedding holds the target": "the cap is too low", "can't be reached": "the target is out of reach"}
        return next((short for text, short in texts.items() if any(text in note for note in self.notes)), None)


class _Sink:
    """Notes when it has the rows of a batch, and when they were produced."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[float, NDArray[np.float64]]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        micros = df.toArrow()["arrival"].cast("int64").to_numpy()
        self.kept[batch_id] = (time.time(), micros / 1e6)


def run(*, quick: bool, say: Say) -> Result:
    """Run the three arms."""
    import pyspark  # noqa: PLC0415 - needs Spark

    from penstock.demo.topic_job import TopicJob  # noqa: PLC0415 - needs Spark

    length_s = _QUICK_LENGTH_S if quick else _LENGTH_S
    jars = ",".join(str(jar) for jar in fetch_connector(pyspark.__version__))
    rows: list[Row] = []
    bars: list[Bar] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    work = calibrate(_ROW_COST_S)
    with KafkaBroker() as broker, fresh_session("kafka-burst", _CORES, **{"spark.jars": jars}) as (spark, scratch):
        job = TopicJob(spark, work, scratch, _TARGET_S, broker)
        job.warm_up()
        capacity, overhead_s = job.capacity(_TARGET_S), job.warm_up()
        holds = max(20.0, capacity * max(0.1, _TARGET_S / 2 - overhead_s))
        say(f"capacity {capacity:,.0f} rows/s, an empty batch {overhead_s * 1e3:.0f} ms, a batch may hold {holds:,.0f} rows")
        for number, (name, share) in enumerate(_CAPS.items(), start=1):
            say(name)
            cap = None if share is None else round(share * holds)
            arm = _run(job, work.rounds, scratch / f"burst{number}", _LOAD * capacity, cap=cap, length_s=length_s)
            job.stop_feed()
            needed_s = None if cap is None else cap / (_LOAD * capacity)
            row, bar = _judge(name, arm, cap, needed_s, overhead_s)
            rows.append(row)
            bars.append(bar)
            curves[name] = _curve(arm)
    return Result("kafka-burst", rows, bars, lines=curves)


def _run(job: TopicJob, rounds: int, checkpoint: Path, rate: float, *, cap: int | None, length_s: float) -> _Run:
    from penstock.spark.shedder import Shedder  # noqa: PLC0415 - needs Spark

    begin_s = time.time() + _LEAD_S
    source = {"generator": "on-off", "rate": f"{rate}", "duration": f"{length_s}s", "seed": "1", "start": f"{begin_s}"}
    if cap is not None:
        source["max_rows_per_batch"] = f"{cap}"
    shedder, sink = Shedder(_TARGET_S), _Sink()
    rows = job.read(shedder, source, "by batch").mapInArrow(scorer(rounds), SCORED).select("arrival")
    with shedder:
        query = shedder.foreach_batch(rows, sink, checkpoint=checkpoint)
        while time.time() < begin_s + length_s:
            if (failure := query.exception()) is not None:
                raise failure
            time.sleep(0.2)
    state = read_journal(checkpoint / "penstock")
    return _Run(begin_s, sink.kept, sum(offered for offered, _ in state.totals().values()), tuple(state.errors))


def _judge(name: str, arm: _Run, cap: int | None, needed_s: float | None, overhead_s: float) -> tuple[Row, Bar]:
    delays_s = arm.delays_s()
    late_s = np.maximum(0.0, delays_s - _TARGET_S)
    kept = sum(made_s.size for _, made_s in arm.kept.values())
    violation_s = float(late_s.mean()) if late_s.size else float("inf")
    is_hopeless = needed_s is not None and needed_s < _BORDER * overhead_s
    row: Row = {
        "source": name,
        "cap": cap,
        "mean delay s": float(delays_s.mean()) if delays_s.size else None,
        "mean violation s": violation_s if late_s.size else None,
        "max violation s": float(late_s.max()) if late_s.size else None,
        "loss %": 100.0 * (1.0 - kept / max(1, arm.offered)),
        "a batch may take s": needed_s,
        "note": arm.told or "-",
    }
    if is_hopeless and violation_s > _MOST_S:
        return row, Bar.at_least(f"{name}: a note says that no shedding helps", float(arm.told is not None), 1.0)
    return row, Bar.at_most(f"mean violation after 20 s, {name}, s", violation_s, _MOST_S)


def _curve(arm: _Run) -> tuple[list[float], list[float]]:
    batches = [(at_s - arm.begin_s, at_s - float(made_s.mean())) for at_s, made_s in arm.kept.values() if made_s.size]
    return [at_s for at_s, _ in batches], [min(delay_s, 10.0) for _, delay_s in batches]


def plot(result: Result, path: Path) -> None:
    """Draw the mean delay of the batches, cut off at 10 s."""
    lines({"delay, s": dict(result.lines)}, path, title="A burst through a Kafka topic, target 2 s", target=_TARGET_S)
