"""Control by batch: the table of a batch is journaled under its number and set before any of its work starts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.control.base import GateCount, Observation
from penstock.errors import PenstockError
from penstock.journal.journal import BatchRecord, DecisionRecord, Journal
from penstock.spark.checkpoint import Checkpoint
from penstock.spark.loop import ControlLoop
from penstock.spark.monitor import PlanCounter, Progress
from penstock.spark.offsets import rows_between

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["BatchLoop"]

log = logging.getLogger("penstock")

_PATIENCE_S = 60.0
_AT_ONCE_S = 0.2

BatchFunction = Callable[["DataFrame", int], Any]


class BatchLoop(ControlLoop):
    """The function given to ``foreachBatch``: decide, journal, set the table, call the user's function, count, journal.

    When it is called, Spark has written the batch's offsets to its log, so the size of the batch is known, and none of its
    work has begun. A replay finds its decision in the journal. The counts are there before Spark commits the batch.
    """

    how = "by batch"

    def __init__(self, function: BatchFunction, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._function = function
        self.paced = False
        """Whether the query has a trigger that batches wait for."""
        self._between = threading.Event()  # between two batches
        self._between.set()
        self._stream: Any = None
        self._counter = PlanCounter(self.gates)
        self._offsets: tuple[int, list[str | None]] = (-2, [])  # of the last batch: the end of one is the start of the next
        self._upcoming: list[int] = []  # rows of the running batch, by source
        self._published: dict[str, tuple[float, ...]] = {}
        self._last: BatchRecord | None = None
        self._jobs_seen = 0
        self._proven_jobs = 1
        self._persist = False

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run one batch."""
        self._between.clear()
        try:
            self._attach(df)
            self.guarded("set the table of a batch", self._set_table, batch_id)
            if self._persist:
                df = df.persist()
            try:
                self._function(df, batch_id)
            finally:
                if self._persist:
                    df.unpersist()
            self.guarded("count a batch", self._settle, df, batch_id)
        finally:
            self._between.set()

    def _take_up(self, journal: Journal) -> None:
        super()._take_up(journal)
        for decision in journal.state.decisions:
            for gate in self.gates:
                gate.recall(decision.gates.get(gate.name, ()), (decision.windows or {}).get(gate.name))
        for gate in self.gates:
            if gate.windows is not None:
                seen = [(record.latest or {}).get(gate.name) for record in journal.state.batches.values()]
                gate.windows.take_up(max((time for time in seen if time is not None), default=None))
        for decision in journal.state.decisions[-1:]:
            self.publish(decision)

    def publish(self, decision: DecisionRecord) -> None:
        """Put the table of a decision in force."""
        self.keep = decision.keep
        for gate in self.gates:
            keeps = decision.gates.get(gate.name)
            if keeps is not None and keeps != self._published.get(gate.name):
                gate.publish_batch(keeps)
                self._published[gate.name] = keeps

    def stop(self) -> None:
        """Stop the query between two batches, not within the user's function, and after the last one is committed."""
        if self.query is None:
            return
        deadline = time.monotonic() + _PATIENCE_S
        while self.query.isActive and time.monotonic() < deadline:
            if self._between.wait(0.1) and self._is_committed():
                break
            time.sleep(0.002)
        self.query.stop()

    def _is_committed(self) -> bool:
        """Whether Spark is done with the last batch: it has reported it or, if idle triggers were reported since, logged it."""
        if self._last is None or self._progress(self._last.batch_id) is not None:
            return True
        time.sleep(0.02)
        return self._last.batch_id in self._checkpoint.committed()[-3:]

    def _attach(self, df: DataFrame) -> None:
        """On the first batch, find the running query: ``start`` has not returned it yet."""
        if self._stream is not None:
            return
        spark = self._session  # the batch's own session is a copy that knows no queries
        query_id = str(df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        for query in spark.streams.active:
            if query.id == query_id:
                self._stream = query._jsq.streamingQuery()
        if self._stream is None:
            raise PenstockError(f"query {self.label!r} runs without being known to Spark's query manager")
        self._tracker = spark._jsc.sc().statusTracker()
        self._run_id = str(self._stream.runId().toString())
        self._checkpoint = Checkpoint(str(self._stream.resolvedCheckpointRoot()))
        if self._journal is None:  # no checkpoint was named: Spark made one
            self.open_journal(f"{self._stream.resolvedCheckpointRoot()}/penstock", query_id, fresh=True)
        else:
            self.journal.claim(query_id)

    @property
    def _session(self) -> SparkSession:
        return self.gates[0].spark

    def _set_table(self, batch_id: int) -> None:
        """Put the table of the batch in force: the journaled one on a replay, else what the controller says."""
        journaled = self.journal.state.decision_for(batch_id)
        if journaled is None:
            keep, observed = self._ask(batch_id)
            keep = self.keep if keep is None else keep
            decision = self.decision_record(keep, batch_id=batch_id)
            records = (decision,) if observed is None else (observed, decision)
            # What isn't durable must not take effect: if this fails the last table stays.
            self.journal.append(*records)
            journaled = decision
        self.publish(journaled)

    def _ask(self, batch_id: int) -> tuple[float | None, BatchRecord | None]:
        """Show the controller the batch before, with the size of this one."""
        upcoming = self.guarded("read the size of the batch", self._upcoming_rows, batch_id)
        now_s = time.time()
        progress = self._progress(batch_id - 1)
        last = self._last
        if last is None or progress is None or last.batch_id != batch_id - 1:
            # The first batch of a run: nothing to look back at, but its size may matter.
            start = Observation(batch_id - 1, now_s, now_s, keep=self.keep, upcoming_rows=upcoming, taken_s=now_s)
            return (self.decide(start).keep if upcoming is not None else None), None
        observed = replace(
            last,
            start_s=progress.start_s,
            end_s=progress.end_s,
            busy_s=progress.busy_s,
            backlog_rows=upcoming,
        )
        waiting = {f"source{place}": rows for place, rows in enumerate(self._upcoming)}
        # Spark starts a batch at once if there are rows; if it did not they came later, unless it waits for its trigger.
        at_once = self.paced or now_s - progress.end_s < _AT_ONCE_S
        waited_s = max(0.0, now_s - progress.start_s) if at_once else 0.0
        seen = self.observation(observed, progress, upcoming_rows=upcoming, waited_s=waited_s, taken_s=now_s)
        return self.decide(replace(seen, backlog_rows=waiting) if upcoming is not None else seen).keep, observed

    def _progress(self, batch_id: int) -> Progress | None:
        """Spark's report of a batch, which it has by the time the next one starts."""
        report = self._stream.lastProgress()
        found = None if report is None else Progress.parse(report.json())
        return found if found is not None and found.batch_id == batch_id else None

    def _upcoming_rows(self, batch_id: int) -> int | None:
        """The size of a batch from the offset log; ``None`` where a source's offsets don't count rows."""
        end = self._checkpoint.offsets(batch_id)
        known, start = self._offsets
        if known != batch_id - 1:
            start = self._checkpoint.offsets(batch_id - 1) if batch_id > 0 else [None] * len(end)
        self._offsets = batch_id, end
        if len(start) != len(end):
            return None
        rows = [rows_between(before, after) for before, after in zip(start, end, strict=True)]
        self._upcoming = [count for count in rows if count is not None]
        return sum(self._upcoming) if None not in rows else None

    def _settle(self, df: DataFrame, batch_id: int) -> None:
        """Count the batch and journal it, before Spark commits it."""
        plan = self._stream.lastExecution().executedPlan()
        counts = self._counter.read(plan)
        counts = self._checked(df, plan, counts)
        readings = self.read_meters()
        self._last = self.batch_record(batch_id, counts, readings)
        self.journal.append(self._last)

    def _checked(self, df: DataFrame, plan: Any, counts: dict[str, GateCount]) -> dict[str, GateCount]:
        """Count again where the user's function may have evaluated the batch more than once.

        Spark adds up the counts of all evaluations. A function that starts one job can't have done that; for one that starts
        more the batch is evaluated once more, alone, and if that gives less, the batches to come are persisted, which
        counts once and is what Spark advises for such functions anyway.
        """
        jobs = self._jobs()
        if self._persist or jobs <= self._proven_jobs:
            return counts
        self._counter.reset(plan)
        df.write.format("noop").mode("overwrite").save()
        again = self._counter.read(plan)
        if all(again[name] == count or not again[name].offered for name, count in counts.items()):
            self._proven_jobs = jobs
            return counts
        self._persist = True
        log.info("%s: the function evaluates a batch more than once; batches are persisted from now on", self.label)
        # A gate ahead of a shuffle that Spark reuses is not evaluated again, nor was it before.
        return {name: count if count.offered else counts[name] for name, count in again.items()}

    def _jobs(self) -> int:
        """Spark jobs that the batch has started: they run under the query's run id."""
        started = len(self._tracker.getJobIdsForGroup(self._run_id))
        jobs, self._jobs_seen = started - self._jobs_seen, started
        return jobs
