"""Drives a query by arrival in a classic session: its counts are read from its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.control.base import Controller, GateCount
from penstock.decision import BatchEnded, ByArrival
from penstock.errors import PenstockError
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.dead_letters.letter_writer import refuse_letters
from penstock.spark.gates import Gate
from penstock.spark.hadoop_store import open_session_store
from penstock.spark.kafka_source import KafkaTopics
from penstock.spark.offsets import rows_between
from penstock.spark.plan_checks import refuse_windows
from penstock.spark.plan_counts import PlanCounter, read_stored_counts
from penstock.spark.progress import Progress
from penstock.spark.query_driver import QueryDriver
from penstock.spark.repeated_tasks import RepeatWatch, count_once
from penstock.spark.reported_driver import ReportedDriver

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.decision import SlotGate

__all__ = ["ArrivalDriver", "build_arrival_driver", "check_arrival_columns"]


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


class ArrivalDriver(ReportedDriver):
    """Counts a batch from its plan, or from what Spark keeps of it."""

    def __init__(self, gates: Sequence[Gate], core: ByArrival, siblings: Mapping[str, QueryDriver] | None = None) -> None:
        super().__init__(gates, core, siblings)
        self._stream: Any = None
        self._topics: KafkaTopics | None = None
        self._running: tuple[int, Any] | None = None
        self._counter = PlanCounter(gates)
        self._watch = RepeatWatch(gates[0].spark)
        self._tracker = gates[0].spark._jsc.sc().statusTracker()

    def attach(self, query: StreamingQuery) -> None:
        """Start to control a query that is running."""
        self.query = query
        self._stream = query._jsq.streamingQuery()
        self._topics = KafkaTopics(next(iter(self.gates.values())).spark, self._stream)
        self.claim_journal(_find_checkpoint(self._stream, self.gates).store, str(query.id))
        # Java's own: PySpark 3.5 makes dictionaries of them, and later versions ask the JVM for each number.
        self.listen([str(progress.json()) for progress in query._jsq.recentProgress()])

    def _read_first_offsets(self) -> list[str | None]:
        return _find_checkpoint(self._stream, self.gates).starts(0)

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
            if self._watch.has_repeats(partial(self._tracker.getJobIdsForGroup, run_id), may_wait=False):
                # Gates in the last stage are right: Spark counts each of its tasks once.
                again = partial(count_once, self._counter, plan, self._watch, run_again=None, list_jobs=list)
                once = self.guard("count a batch again that lost an executor", again)
                self._counted_again = set(once or ())
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


def _find_checkpoint(stream: Any, gates: Mapping[str, Gate]) -> Checkpoint:
    spark = next(iter(gates.values())).spark
    return Checkpoint(open_session_store(spark, str(stream.resolvedCheckpointRoot()), "the checkpoint"))
