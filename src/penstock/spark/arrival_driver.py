"""Drives a query by arrival: a thread that takes Spark's reports of a query that runs by itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.control.base import Controller, GateCount
from penstock.decision import BatchEnded, ByArrival
from penstock.decision.handover import last_layout, mark_by_arrival, refuse_open_batch, was_by_arrival
from penstock.errors import PenstockError
from penstock.journal import Journal
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.dead_letters.letter_writer import refuse_letters
from penstock.spark.gates import Gate
from penstock.spark.hadoop_store import open_session_store
from penstock.spark.kafka_source import SPARSE, KafkaTopics
from penstock.spark.offsets import rows_between
from penstock.spark.plan_checks import refuse_windows
from penstock.spark.plan_counts import PlanCounter, read_stored_counts
from penstock.spark.progress import Progress
from penstock.spark.query_driver import QueryDriver
from penstock.spark.repeated_tasks import RepeatWatch, count_once
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.decision import SlotGate

__all__ = ["ArrivalDriver", "build_arrival_driver", "check_arrival_columns"]

_PUBLISHING = threading.RLock()  # queries may share a gate


def check_arrival_columns(gates: Sequence[Gate]) -> None:
    """By arrival, every gate must know when its rows arrived."""
    for gate in gates:
        if gate.specification.arrival is None:
            raise PenstockError(
                f"gate {gate.name!r} needs arrival=, the column of arrival times, to serve a query by arrival; "
                "or start the query by batch"
            )


def build_arrival_driver(
    gates: Sequence[Gate], controller: Controller, label: str, max_loss: float, siblings: Mapping[str, QueryDriver]
) -> ArrivalDriver:
    """Return the driver of a query by arrival; refuse gates that can't be set that way."""
    refuse_windows(gates)
    refuse_letters(gates)
    check_arrival_columns(gates)
    states: list[SlotGate] = [gate.state for gate in gates]  # type: ignore[misc] # no windows among them
    return ArrivalDriver(gates, ByArrival(states, controller, label, max_loss=max_loss), siblings)


class ArrivalDriver(QueryDriver):
    """Takes a report per batch, counts the batch, and lets the core decide for the rows to come."""

    shares_gates = True
    wants_reports = True

    def __init__(self, gates: Sequence[Gate], core: ByArrival, siblings: Mapping[str, QueryDriver] | None = None) -> None:
        super().__init__(gates, core, siblings)
        self._reports: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"penstock {self.label}", daemon=True)
        self._done_through = -1
        self._is_first_of_run = True
        self._stream: Any = None
        self._topics: KafkaTopics | None = None
        self._running: tuple[int, Any] | None = None
        self._counter = PlanCounter(gates)
        self._watch = RepeatWatch(gates[0].spark)
        self._tracker = gates[0].spark._jsc.sc().statusTracker()

    def open_journal(self, location: str | Store, query_id: str | None, *, is_new: bool) -> None:
        """Open the journal and continue where it ends."""
        with _PUBLISHING:
            super().open_journal(location, query_id, is_new=is_new)
            state = self.journal.state
            if not was_by_arrival(state) or self.layout not in (None, last_layout(state)):
                self.journal.append(mark_by_arrival(self.layout))

    def check_journal(self, journal: Journal) -> None:
        """Refuse to replay a batch that was decided by batch."""
        super().check_journal(journal)
        refuse_open_batch(journal.state, self.open_batch, self.label)

    def prepare_recount(self, batch_id: int) -> None:
        """Refuse a batch that was decided by batch: its slots say nothing about it."""
        refuse_open_batch(self.journal.state, batch_id, self.label)

    def attach(self, query: StreamingQuery) -> None:
        """Start to control a query that is running."""
        self.query = query
        self._stream = query._jsq.streamingQuery()
        self._topics = KafkaTopics(next(iter(self.gates.values())).spark, self._stream)
        self.claim_journal(self._find_checkpoint().store, str(query.id))
        self._done_through = max(self.journal.state.batches, default=-1)
        self._thread.start()
        for progress in query.recentProgress:  # those that came before the listener knew the query
            self.report(progress.json)

    def report(self, text: str) -> None:
        """Take one of Spark's reports."""
        self._reports.put(text)

    def stop(self) -> None:
        """Stop the query."""
        if self.query is not None:
            self.query.stop()

    def finish(self) -> None:
        """Work off the reports that are there and end the thread: the query has ended."""
        self._reports.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=30)
        super().finish()

    def end_core(self) -> None:
        """Tell the core that the query has ended: it no longer counts among those that share its gates."""
        with _PUBLISHING:
            super().end_core()

    def _run(self) -> None:
        while (text := self._reports.get()) is not None:
            self.guard("take in a batch", self._take_in, text)

    def _take_in(self, text: str) -> None:
        progress = Progress.parse(text, self._read_first_offsets)
        if progress is None or progress.batch_id <= self._done_through:
            return  # no batch, or one that was reported before
        for missed in range(self._done_through + 1, progress.batch_id):
            self._recover(missed)
        self._done_through = progress.batch_id
        if any(share < 1.0 for share in progress.densities.values()):
            self.warn(f"{self.label}: {SPARSE}")
        readings = {name: gate.take_reading() for name, gate in self.gates.items()}
        counts, tasks = self._count(progress.run_id, progress.batch_id)
        if progress.is_skipped and self._is_first_of_run and self.recount is not None:
            counts = self.guard(f"count batch {progress.batch_id} again", self.count_batch_again, progress.batch_id)
        self._is_first_of_run = False
        if counts is None:
            return
        backlog = self.guard("ask Kafka how many rows wait", self._read_backlog, progress)
        with _PUBLISHING:
            event = BatchEnded(
                progress.batch_id,
                self.now_s(),
                counts,
                readings,
                times=progress.times,
                backlog_rows=progress.backlog_rows if backlog is None else backlog,
                tasks=tasks,
                is_recounted=progress.is_skipped,
            )
            self.carry_out(self.core.end_batch(event))

    def _read_first_offsets(self) -> list[str | None]:
        return self._find_checkpoint().starts(0)

    def _find_checkpoint(self) -> Checkpoint:
        spark = next(iter(self.gates.values())).spark
        return Checkpoint(open_session_store(spark, str(self._stream.resolvedCheckpointRoot()), "the checkpoint"))

    def _read_backlog(self, progress: Progress) -> dict[str, int]:
        """Return the rows that wait at each source. Spark's report says so only of a capped one; Kafka can be asked."""
        backlog = dict(progress.backlog_rows)
        latest = self._topics.latest() if self._topics is not None and self.query is not None and self.query.isActive else {}
        for name, last in latest.items():
            rows = rows_between(progress.ends.get(name), last)
            backlog |= {} if rows is None else {name: rows}
        return backlog

    def _count(self, run_id: str, batch_id: int) -> tuple[dict[str, GateCount] | None, dict[str, int]]:
        """Read the counts of a batch from its plan if it can still be had, else from the status store, which costs more."""
        execution = self._execution_of(batch_id)
        if execution is not None:
            plan = execution.executedPlan()
            counts = self._counter.read(plan)
            if self._watch.has_repeats(self._tracker.getJobIdsForGroup(run_id), may_wait=False):
                # Gates in the last stage are right: Spark counts each of its tasks once.
                again = partial(count_once, self._counter, plan, self._watch, run_again=None, list_jobs=list)
                once = self.guard("count a batch again that lost an executor", again)
                if once is None:
                    self.warn(f"{self.label}: executors were lost, and rows of a batch may have been counted twice")
                counts |= once or {}
            return counts, self._counter.count_tasks(plan, counts)
        gates = list(self.gates.values())
        store = gates[0].spark._jsparkSession.sharedState().statusStore()
        stored = read_stored_counts(store, gates, run_id, batch_id)
        if stored is None:
            self.warn(f"{self.label}: Spark has let go of the counts of batch {batch_id}: raise spark.sql.ui.retainedExecutions")
        return stored, {}

    def _execution_of(self, batch_id: int) -> Any:
        """The execution of a batch that has ended: Spark's last one, or the one that ran when the batch before ended."""
        running, self._running = self._running, None
        last = self._stream.lastExecution()
        number = last.currentBatchId()
        if number == batch_id:
            return last
        if number == batch_id + 1:
            # Not its plan yet: that may be in the making, and is the stream's to make.
            self._running = (number, last)
        return running[1] if running is not None and running[0] == batch_id else None

    def _recover(self, batch_id: int) -> None:
        """Count a batch whose report never came."""
        if self.query is None or self._done_through < 0:
            return
        counts, _ = self._count(str(self.query.runId), batch_id)
        if counts is not None:
            self.carry_out(self.core.end_batch(BatchEnded(batch_id, self.now_s(), counts)))
