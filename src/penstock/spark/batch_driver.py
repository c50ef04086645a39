"""Drives a query by batch: the function that Spark calls for every batch, when its offsets are logged and no work has begun."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import pyspark

from penstock.control.base import GateCount
from penstock.decision import BatchEnded, BatchPlanned, ByBatch, MeterReading
from penstock.journal import Journal
from penstock.journal.records import OutputRecord
from penstock.spark.batch_sizes import BatchSizes, OffsetSizes
from penstock.spark.gates import Gate
from penstock.spark.interruption import shorten_interruption
from penstock.spark.kafka_source import SPARSE
from penstock.spark.plan_counts import PlanCounter
from penstock.spark.query_driver import QueryDriver
from penstock.spark.repeated_tasks import RepeatWatch, count_once
from penstock.spark.running_query import RunningQuery
from penstock.spark.started_jobs import StartedJobs
from penstock.spark.versions import find_internals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["BatchCounter", "BatchCounts", "BatchDriver", "BatchFunction"]

log = logging.getLogger("penstock")

_PATIENCE_S = 60.0

BatchFunction = Callable[["DataFrame", int], Any]


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What one batch did at its gates."""

    counts: Mapping[str, GateCount]
    readings: Mapping[str, MeterReading]
    outputs: Mapping[str, OutputRecord] | None = None


class BatchCounter(Protocol):
    """Counts a batch that has run."""

    persists: bool
    """Whether batches must be persisted, to be evaluated once."""

    def begin(self) -> None:
        """A batch begins."""

    def count(self, running: RunningQuery, df: DataFrame) -> Callable[[], BatchCounts]:
        """Return what reads the counts of a batch that has run, to be called once, before the next one runs."""


class GateCounter:
    """Counts at the gates of a query, from the plan of the batch and the gates' meters."""

    def __init__(self, gates: Sequence[Gate], label: str, warn: Callable[[str], None]) -> None:
        self._gates = gates
        self._label, self._warn = label, warn
        self._counter = PlanCounter(gates)
        self._jobs = StartedJobs(gates[0].spark)
        self._proven_jobs = 1
        self._watch = RepeatWatch(gates[0].spark)
        self.persists = False

    def begin(self) -> None:
        """Remember which executors and which jobs there are."""
        self._watch.begin()
        self._jobs.begin()

    def count(self, running: RunningQuery, df: DataFrame) -> Callable[[], BatchCounts]:
        """Return what reads the counts of the batch. What must run for them to be right has run by then."""
        try:
            plan = running.plan()
            jobs = self._proven_jobs if self.persists else self._jobs.count(running.job_ids, self._proven_jobs)
            if self._watch.is_local and jobs <= self._proven_jobs:
                return partial(self._read, plan)
            counts = self._counter.read(plan)  # before the watch looks: on a cluster, tasks that run twice may end later
            if self._watch.has_repeats(running.job_ids):
                counts |= self._count_once(running, df, plan)
            elif jobs > self._proven_jobs:
                counts = self._check(df, plan, counts, jobs)
        except BaseException:
            self._take_readings()  # else they would count for the next batch
            raise
        return partial(BatchCounts, counts, self._take_readings())

    def _read(self, plan: Any) -> BatchCounts:
        try:
            counts = self._counter.read(plan)
        finally:
            readings = self._take_readings()
        return BatchCounts(counts, readings)

    def _take_readings(self) -> dict[str, MeterReading]:
        return {gate.name: gate.take_reading() for gate in self._gates}

    def _count_once(self, running: RunningQuery, df: DataFrame, plan: Any) -> dict[str, GateCount]:
        """Count a batch again that lost an executor; if that fails too, say that the counts may be too high."""
        counts = None
        try:
            counts = count_once(
                self._counter,
                plan,
                self._watch,
                run_again=df.write.format("noop").mode("overwrite").save,
                list_jobs=running.job_ids,
                prepare=self._take_readings,
            )
        except Exception:  # the batch itself is done, whatever Spark raises here
            log.debug("%s: a batch could not be counted again", self._label, exc_info=True)
        if counts is None:
            self._warn(f"{self._label}: executors were lost, and rows of a batch may have been counted twice")
        return counts or {}

    def _check(self, df: DataFrame, plan: Any, counts: dict[str, GateCount], jobs: int) -> dict[str, GateCount]:
        """Count again where the user's function may have evaluated the batch more than once.

        Spark adds up the counts of all evaluations. A function that starts one job can't have done that. For one that starts
        more, the batch is evaluated once more, alone. If that gives less, the batches to come are persisted, which counts once
        and is what Spark advises for such functions anyway.
        """
        self._counter.reset(plan)
        df.write.format("noop").mode("overwrite").save()
        again = self._counter.read(plan)
        if all(again[name] == count or not again[name].offered for name, count in counts.items()):
            self._proven_jobs = jobs
            return counts
        self.persists = True
        log.info("%s: the function evaluates a batch more than once; batches are persisted from now on", self._label)
        # A gate ahead of a shuffle that Spark reuses is not evaluated again, nor was it before.
        return {name: count if count.offered else counts[name] for name, count in again.items()}


@dataclass(slots=True)
class BatchHooks:
    """What else happens around a batch, on a node of a network."""

    sized: Callable[[Mapping[str, int] | None], None] = field(default=lambda _: None)
    """Called with the rows of a batch by source, before it runs; ``None`` where they are not known."""
    ended: Callable[[int], None] = field(default=lambda _: None)
    """Called with the number of a batch that is journaled."""


class BatchDriver(QueryDriver):
    """The function given to ``foreachBatch``: decide, journal, set the table, call the user's function, count, journal.

    When it is called, Spark has written the batch's offsets to its log, so the size of the batch is known, and none of its
    work has begun. The counts are journaled while Spark commits the batch, beside it: a batch that a crash left uncounted is
    counted at the next start. Where nobody would count it again, they are journaled before.
    """

    shares_gates = False
    wants_reports = False
    core: ByBatch

    def __init__(
        self,
        spark: SparkSession,
        function: BatchFunction,
        gates: Sequence[Gate],
        core: ByBatch,
        *,
        is_paced: bool = False,
        counter: BatchCounter | None = None,
        sizes: BatchSizes | None = None,
        hooks: BatchHooks | None = None,
    ) -> None:
        super().__init__(gates, core)
        self._spark = spark
        self._function = function
        self._is_paced = is_paced
        self._counter: BatchCounter = GateCounter(gates, core.label, self.warn) if counter is None else counter
        self._sizes = sizes
        self._hooks = BatchHooks() if hooks is None else hooks
        self._running: RunningQuery | None = None
        self._between_batches = threading.Event()
        self._between_batches.set()
        self._last_batch: int | None = None
        self._beside = ThreadPoolExecutor(1, "penstock-counts")
        self._counting: Future[None] | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run one batch."""
        self._between_batches.clear()
        try:
            self.settle()
            running = self._begin(df, batch_id)
            if self._counter.persists:
                df = df.persist()
            try:
                self._function(df, batch_id)
            except Exception as error:
                shorten_interruption(error)
                raise
            finally:
                if self._counter.persists:
                    df.unpersist()
            self.guard("count a batch", self._end, running, df, batch_id)
            self.guard("close a batch", self._close, batch_id)
        finally:
            self._between_batches.set()

    def check_journal(self, journal: Journal) -> None:
        """Tell the core which batch was left open, now that nobody else can run one."""
        super().check_journal(journal)
        self.core.leave_open(self.open_batch)

    def attach(self, query: StreamingQuery) -> None:
        """Take a query that has started."""
        self.query = query

    def _begin(self, df: DataFrame, batch_id: int) -> RunningQuery:
        """Put the table of a batch in force. If the query is being stopped, its next run begins with this batch."""
        self.may_leave_out = find_internals(pyspark.__version__).knows_interruptions
        try:
            running = self._find_query(df)
            self.guard("set the table of a batch", self._plan, running, batch_id)
            self.guard("look at the executors", self._counter.begin)
        except Exception as error:
            shorten_interruption(error)
            raise
        finally:
            self.may_leave_out = False
        if self.interruption is not None:
            shorten_interruption(self.interruption)
        return running

    def _find_query(self, df: DataFrame) -> RunningQuery:
        """On the first batch: ``start`` has not returned the query yet."""
        if self._running is None:
            running = RunningQuery(self._spark, df, self.label)
            self.claim_journal(running.checkpoint.store, running.id)
            if self._sizes is None:
                warn = self._warn_of_size if self.core.controller.sheds else None
                self._sizes = OffsetSizes(running, warn, self.journal.state.rows_per_byte())
            self._running = running
        return self._running

    def _warn_of_size(self, reason: str) -> None:
        self.warn(f"{self.label}: {reason}")

    def _plan(self, running: RunningQuery, batch_id: int) -> None:
        """Put the table of the batch in force."""
        assert self._sizes is not None  # noqa: S101 - it came with the query
        rows = self.guard("read the size of the batch", self._sizes.read, running.checkpoint, batch_id)
        if self.interruption is not None:  # a call is interrupted once, and what is decided now holds for a replay
            rows = self.guard("read the size of the batch", self._sizes.read, running.checkpoint, batch_id)
        self._hooks.sized(rows)
        progress = running.progress(batch_id - 1)
        if progress is not None and any(share < 1.0 for share in progress.densities.values()):
            self.warn(f"{self.label}: {SPARSE}")
        event = BatchPlanned(
            batch_id,
            self.now_s(),
            rows,
            self._sizes.rows_per_byte,
            previous=None if progress is None else progress.times,
            backlog_rows={} if progress is None else progress.backlog_rows,
            left_rows={} if progress is None else progress.left_rows,
            is_paced=self._is_paced,
            event_times=self.event_times(),
        )
        self.carry_out(self.core.plan_batch(event))

    def _end(self, running: RunningQuery, df: DataFrame, batch_id: int) -> None:
        """Have the batch counted and journaled.

        The first one of a run is counted at once. It may have been judged by slots, which are left behind it, before Spark plans
        the next.
        """
        read, is_first = self._counter.count(running, df), self._last_batch is None
        self._last_batch = batch_id
        if is_first or not self.can_count_again:
            self._journal_counts(read, batch_id, self.now_s())
        else:
            self._counting = self._beside.submit(self.guard, "count a batch", self._journal_counts, read, batch_id, self.now_s())

    def _journal_counts(self, read: Callable[[], BatchCounts], batch_id: int, ended_s: float) -> None:
        counted = read()
        event = BatchEnded(
            batch_id,
            ended_s,
            counted.counts,
            counted.readings,
            event_times=self.event_times(),
            outputs=counted.outputs,
        )
        self.carry_out(self.core.end_batch(event))
        self._hooks.ended(batch_id)

    def settle(self) -> None:
        """Wait until the last batch is counted."""
        if (counting := self._counting) is not None:
            counting.result()

    def _close(self, batch_id: int) -> None:
        """Get ready for the next batch, which Spark plans before it asks for its table."""
        self.carry_out(self.core.close_batch(batch_id))

    def prepare_recount(self, batch_id: int) -> None:
        """Put the table in force that a committed batch had."""
        is_decided = self.journal.state.decision_for(batch_id) is not None
        again = self.core.plan_batch(BatchPlanned(batch_id, self.now_s())) if is_decided else self.core.repeat(batch_id)
        self.carry_out(again)

    def stop(self) -> None:
        """Stop the query between two batches, not within the user's function, and after the last one is committed."""
        if self.query is None:
            return
        deadline = time.monotonic() + _PATIENCE_S
        while self.query.isActive and time.monotonic() < deadline:
            if self._between_batches.wait(0.1) and self._is_committed():
                break
            time.sleep(0.002)
        self.query.stop()

    def end_core(self) -> None:
        """Journal when the last batch ran, since no later batch will bring it."""
        self.settle()
        self._beside.shutdown()
        if self._running is None or self._last_batch is None:
            return
        try:
            progress = self._running.progress(self._last_batch)
            self.carry_out(self.core.end(None if progress is None else progress.times))
        except Exception:  # the session may be gone, and its reports with it
            log.debug("%s: the times of the last batch are not known", self.label, exc_info=True)

    def _is_committed(self) -> bool:
        """Whether Spark is done with the last batch: it has reported it or, if idle triggers were reported since, logged it."""
        if self._running is None or self._last_batch is None or self._running.progress(self._last_batch) is not None:
            return True
        time.sleep(0.02)
        return self._last_batch in self._running.checkpoint.list_committed()[-3:]
