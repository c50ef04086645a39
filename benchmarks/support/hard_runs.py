"""A job for hard starts on Spark: replayed rows, a gate, rows that take a known time each, and a sink that notes every row kept.

A row takes its time by sleeping in a Python worker, as a call to a slow service does: on two partitions, 2 ms per row
make 1 ms per row of the whole job. So what is measured is the law, and not how busy the machine is. The overhead of a
batch is Spark's own. The delay of a row is the end of its batch, as Spark reports it, minus its arrival, from the first
row on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.journal import JournalState, read_journal
from penstock.spark.replay import register_replay
from penstock.spark.shedder import Shedder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["HardJob", "HardRun"]

_PARTITIONS = 2
_ROW_S = 0.001


@dataclass(frozen=True, slots=True)
class HardRun:
    """What one run did, from its journal and from its sink."""

    begin_s: float
    """When the query was started."""
    state: JournalState
    kept: Mapping[int, NDArray[np.float64]]
    """The arrival times of the rows kept, by batch."""
    target_s: float
    notes: tuple[str, ...] = ()

    def delays_s(self, from_s: float = 0.0) -> NDArray[np.float64]:
        """Return the delay of every row kept in batches that began so many seconds after the start, or later."""
        parts = [
            record.end_s - self.kept[number]
            for number, record in self.state.batches.items()
            if record.end_s is not None and record.start_s is not None
            if number in self.kept and record.start_s >= self.begin_s + from_s
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def violations_s(self, from_s: float = 0.0) -> NDArray[np.float64]:
        """Return how late these rows were."""
        late: NDArray[np.float64] = np.maximum(0.0, self.delays_s(from_s) - self.target_s)
        return late if late.size else np.zeros(1)

    @property
    def longest_batch_s(self) -> float:
        """The longest batch, from the first one on."""
        return max(self.lengths_s.values(), default=0.0)

    @property
    def lengths_s(self) -> dict[int, float]:
        """The length of each batch that Spark has reported."""
        return {
            number: record.end_s - record.start_s
            for number, record in self.state.batches.items()
            if record.end_s is not None and record.start_s is not None
        }

    @property
    def counts(self) -> tuple[int, int, int]:
        """Rows offered, kept and expired."""
        totals = self.state.totals()
        return (
            sum(offered for offered, _ in totals.values()),
            sum(kept for _, kept in totals.values()),
            sum(self.state.expired_totals().values()),
        )

    @property
    def loss(self) -> float:
        """The share that was shed."""
        offered, kept, _ = self.counts
        return 1.0 - kept / max(1, offered)

    def kept_per_s(self, from_s: float = 0.0) -> float:
        """Return the rows kept per second of the batches that began so many seconds after the start."""
        records = [
            record
            for record in self.state.batches.values()
            if record.start_s is not None and record.end_s is not None and record.start_s >= self.begin_s + from_s
        ]
        kept = sum(kept for record in records for _, kept in record.gates.values())
        starts = [record.start_s for record in records if record.start_s is not None]
        ends = [record.end_s for record in records if record.end_s is not None]
        return kept / max(1e-9, max(ends) - min(starts)) if records else 0.0


@dataclass(slots=True)
class _Sink:
    """Collects the arrival times of the rows kept; now and then it stalls."""

    stall_every_s: float
    stall_s: float
    kept: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    begin_s: float = field(default_factory=time.time)
    stalls: int = 0

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        micros = df.select("arrival").toArrow()["arrival"].cast("int64").to_numpy()
        self.kept[batch_id] = micros / 1e6
        if time.time() - self.begin_s >= (self.stalls + 1) * self.stall_every_s:
            self.stalls += 1
            time.sleep(self.stall_s)


class HardJob:
    """Runs the job under some conditions."""

    def __init__(self, spark: SparkSession, scratch: Path) -> None:
        self._spark, self._scratch = spark, scratch
        self._runs = count(1)
        register_replay(spark)

    def new_checkpoint(self) -> Path:
        """Return a directory for a new query."""
        return self._scratch / f"hard{next(self._runs)}"

    def run(
        self,
        source: Mapping[str, Any],
        seconds: float,
        *,
        target_s: float = 2.0,
        checkpoint: Path | None = None,
        stall: tuple[float, float] = (float("inf"), 0.0),
        row_s: float = _ROW_S,
        batches: int | None = None,
        **options: Any,
    ) -> HardRun:
        """Run the job for some seconds.

        Parameters
        ----------
        source
            Options of the replay source.
        seconds
            How long to run; the batch that runs then is finished.
        target_s
            The delay target.
        checkpoint
            Where to continue; by default a new query starts.
        stall
            Every so many seconds the sink stops for so many seconds.
        row_s
            Seconds per row of the whole job.
        batches
            Stop after so many, if that is earlier.
        options
            More options of the shedder.

        """
        checkpoint = self.new_checkpoint() if checkpoint is None else checkpoint
        text = {"partitions": str(_PARTITIONS), "key_count": "10"} | ({"payload_bytes": "0"} if "generator" in source else {})
        text |= {name: str(value) for name, value in source.items()}
        rows = self._spark.readStream.format("penstock-replay").options(**text).load()
        shedder = Shedder(target_s, **options)
        gated = shedder.gate(rows, name="in", arrival="arrival", identity="seq")
        done = gated.mapInArrow(_sleeper(row_s * int(text["partitions"])), "arrival timestamp")
        sink = _Sink(*stall)
        begin_s = time.time()
        with shedder:
            query = shedder.foreach_batch(done, sink, checkpoint=checkpoint)
            while time.time() < begin_s + seconds and (batches is None or len(sink.kept) < batches):
                if (failure := query.exception()) is not None:
                    raise failure
                time.sleep(0.1)
        state = read_journal(checkpoint / "penstock")
        return HardRun(begin_s, state, sink.kept, target_s, tuple(state.errors))

    def measure_overhead(self, source: Mapping[str, Any], seconds: float = 20.0) -> float:
        """Run the job for some seconds; return what its later batches took beyond the time of their rows.

        Tiny batches of a young session take longer than that: what counts is what full ones lose to Spark.
        """
        run = self.run(source, seconds, target_s=3.0)
        beyond_s = [length_s - _ROW_S * run.kept[number].size for number, length_s in run.lengths_s.items() if number in run.kept]
        return statistics.median(beyond_s[len(beyond_s) // 2 :])

    def warm_up(self) -> float:
        """Run twelve tiny batches; return the seconds that one takes."""
        source = {"generator": "constant", "rate": 240, "duration": "1s", "start": time.time() - 60.0, "max_rows_per_batch": 20}
        run = self.run(source, 60.0, controller="keep-all", row_s=1e-6, batches=12)
        return statistics.median(list(run.lengths_s.values())[3:])


def _sleeper(row_s: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(row_s * batch.num_rows)
            yield batch.select(["arrival"])

    return apply
