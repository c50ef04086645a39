"""Control by arrival: a decision holds for the rows that arrive from a moment on, whatever batch they come in."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.control.base import GateCount
from penstock.drop.tables import slot_of, slot_start_s
from penstock.errors import PenstockError
from penstock.journal.journal import BatchRecord, DecisionRecord, Journal
from penstock.spark.loop import ControlLoop
from penstock.spark.monitor import PlanCounter, Progress, counts_from_store

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.spark.gate import Gate

__all__ = ["ArrivalLoop"]

log = logging.getLogger("penstock")

# A decision takes effect this long after it is made: time to make it durable, and a margin for clocks that disagree.
MARGIN_S = 0.25
_PUBLISHING = threading.RLock()  # queries may share a gate


class ArrivalLoop(ControlLoop):
    """Watches a query with a sink of its own: a thread that takes Spark's reports, decides, journals, and sets the table.

    What stands in a slot of arrival time never changes once the slot has begun, so the fate of a row depends on the row and the
    journal alone, however Spark batches, retries or replays it.
    """

    how = "by arrival"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for gate in self.gates:
            if gate.arrival is None:
                raise PenstockError(
                    f"gate {gate.name!r} needs arrival=, the column of arrival times, to serve a query with a native sink; "
                    "or use foreach_batch() or write()"
                )
        self._reports: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"penstock {self.label}", daemon=True)
        self._done_through = -1
        self._sharing: tuple[ArrivalLoop, ...] = (self,)
        self._first_of_run = True
        self._stream: Any = None
        self._running: tuple[int, Any] | None = None
        self._counter = PlanCounter(self.gates)
        self.recount: Callable[[int], dict[str, GateCount]] | None = None
        """Runs a committed batch once more to count it, where the query's DataFrame is known."""

    def share_gates_with(self, loops: list[ArrivalLoop]) -> None:
        """Know the other queries that read the same gates: each journals the others' decisions on them."""
        mine = {gate.name for gate in self.gates}
        self._sharing = tuple(loop for loop in loops if mine & {gate.name for gate in loop.gates})

    def _take_up(self, journal: Journal) -> None:
        super()._take_up(journal)
        self._done_through = max(journal.state.batches, default=-1)
        by_gate: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
        for decision in journal.state.decisions:
            for name, keeps in decision.gates.items():
                if decision.from_slot is not None:
                    by_gate.setdefault(name, []).append((decision.from_slot, keeps))
        with _PUBLISHING:
            for gate in self.gates:
                try:
                    gate.ring.merge(by_gate.get(gate.name, ()))
                except PenstockError as error:
                    raise PenstockError(f"gate {gate.name!r}: {error}; use a new checkpoint, or the old weights") from None
                gate.publish_ring()

    def attach(self, query: StreamingQuery) -> None:
        """Start to control a query that is running."""
        self.query = query
        self._stream = query._jsq.streamingQuery()
        if self._journal is None:  # no checkpoint was named: Spark made one
            self.open_journal(f"{self._stream.resolvedCheckpointRoot()}/penstock", str(query.id), fresh=True)
        else:
            self.journal.claim(str(query.id))
        self._thread.start()
        for progress in query.recentProgress:  # those that came before the listener knew the query
            self.report(progress.json)

    def report(self, text: str) -> None:
        """Take one of Spark's reports; called from its listener, so it only puts it down."""
        self._reports.put(text)

    def finish(self) -> None:
        """Work off the reports that are there and end the thread: the query has ended."""
        self._reports.put(None)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=30)
        self.close()

    def _run(self) -> None:
        while (text := self._reports.get()) is not None:
            self.guarded("take in a batch", self._take_in, text)

    def _take_in(self, text: str) -> None:
        progress = Progress.parse(text)
        if progress is None or progress.batch_id <= self._done_through:
            return  # no batch, or one that was told of before
        for missed in range(self._done_through + 1, progress.batch_id):
            self._recover(missed)
        self._done_through = progress.batch_id
        readings = self.read_meters()
        counts = self._counts(progress.run_id, progress.batch_id)
        if progress.skipped and self._first_of_run and self.recount is not None:
            counts = self.guarded(f"count batch {progress.batch_id} again", self.recount, progress.batch_id)
        self._first_of_run = False
        if counts is None:
            return
        record = self.batch_record(
            progress.batch_id,
            counts,
            readings,
            start_s=progress.start_s,
            end_s=progress.end_s,
            busy_s=progress.busy_s,
            backlog_rows=sum(progress.backlog_rows.values()) if progress.backlog_rows else None,
            recounted=progress.skipped,
        )
        decision = self.decide(self.observation(record, progress))
        if decision.keep is None or not self._put_in_force(decision.keep, decision.full_rows, record):
            self.journal.append(record)

    def _keep_of(self, counts: dict[str, GateCount]) -> float:
        """The share that was kept: a batch may hold rows of several decisions."""
        offered = sum(count.offered for count in counts.values())
        return sum(count.kept for count in counts.values()) / offered if offered else self.keep

    def _counts(self, run_id: str, batch_id: int) -> dict[str, GateCount] | None:
        """Read the counts of a batch from its plan if it can still be had, else from the status store, which costs more."""
        execution = self._execution_of(batch_id)
        if execution is not None:
            plan = execution.executedPlan()
            found = self._counter.read(plan)
            self._counter.learn_partitions(plan, found)
            return found
        session = self.gates[0].spark._jsparkSession
        counts = counts_from_store(session.sharedState().statusStore(), self.gates, run_id, batch_id)
        if counts is None:
            self.note(f"{self.label}: Spark has let go of the counts of batch {batch_id}: raise spark.sql.ui.retainedExecutions")
        return counts

    def _execution_of(self, batch_id: int) -> Any:
        """The execution of a batch that has ended: Spark's last one, or the one seen running when the batch before ended."""
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
        counts = self._counts(str(self.query.runId), batch_id)
        if counts is not None:
            self.journal.append(self.batch_record(batch_id, counts, {}))

    def _put_in_force(self, keep: float, full_rows: float | None, record: BatchRecord) -> bool:
        """Journal a decision for slots to come together with the batch, then set the table; false if nothing changes."""
        with _PUBLISHING:
            gates = {gate.name: gate.keeps(self._least_wish(gate, keep), full_rows) for gate in self.gates}
            self.keep = keep
            if all(gates[gate.name] == gate.ring.current for gate in self.gates):
                return False
            decided = [slot for gate in self.gates for slot, _ in gate.ring.changes[-1:]]
            from_slot = max(slot_of(time.time() + MARGIN_S) + 1, *(slot + 1 for slot in decided), 0)
            decision = replace(self.decision_record(keep, from_slot=from_slot), gates=gates)
            self._journal_for_all(decision, record)
            if time.time() >= slot_start_s(from_slot):
                # A stall as long as the margin: rows of that slot may have been judged by the old table. Take it back.
                void = replace(decision, gates={gate.name: gate.ring.current for gate in self.gates})
                self._journal_for_all(void)
                self.note(f"{self.label}: a decision took longer than {MARGIN_S} s to journal and was dropped")
                return True
            for gate in self.gates:
                gate.ring.decide(from_slot, gates[gate.name])
                gate.publish_ring()
            return True

    def _least_wish(self, gate: Gate, keep: float) -> float:
        """Where several queries read one gate, the one that can keep least decides."""
        return min([keep, *(loop.keep for loop in self._sharing if loop is not self and gate in loop.gates)])

    def _journal_for_all(self, decision: DecisionRecord, *records: BatchRecord) -> None:
        """Journal a decision here, and its part on shared gates in the journals of the other queries."""
        self.journal.append(*records, decision)
        for loop in self._sharing:
            if loop is not self:
                names = {gate.name for gate in loop.gates}
                part = {name: keeps for name, keeps in decision.gates.items() if name in names}
                loop.journal.append(replace(decision, gates=part, controller=None))
