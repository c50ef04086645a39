"""Drives a query over Spark Connect by batch: the client sees in the offset log which batch is about to run, and decides."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.decision import BatchEnded
from penstock.decision.handover import ContinuedByBatch, find_first_uncounted, was_by_arrival
from penstock.drop.tables import BatchTable, KeepTable
from penstock.filesystem import resolve
from penstock.journal import Journal, JournalState
from penstock.journal.records import DecisionRecord
from penstock.spark.checkpoint import Checkpoint, find_open_batch
from penstock.spark.connect.batch_lookup import RETAINED
from penstock.spark.connect.batch_tables import BatchTables, directory_of, place_of
from penstock.spark.connect.connect_gate import ConnectGate
from penstock.spark.connect.listener import fetch_reports, fetch_reports_before, read_observed
from penstock.spark.connect.missing_batches import find_missing, name_batches
from penstock.spark.connect.reported_query import ReportedQuery
from penstock.spark.progress import Progress
from penstock.spark.query_driver import QueryDriver

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ConnectBatchDriver"]

_POLL_S = 0.003
_REPORT_S = 0.1
"""How long a report is waited for before it is fetched: Spark sends it when a batch has ended, before it plans the next one."""
LATE = (
    "a batch began before its decision was there, and ran with the last table: the client was away or busy, or the checkpoint "
    "lies on a mount that shows new files late"
)


class ConnectBatchDriver(QueryDriver):
    """Plans a batch as soon as its offsets are logged. Spark waits for its table, in the subquery that reads it.

    A batch that runs while no client is there gets the last table, and is not counted: a batch can't be run again here. The
    ledger says which batches are missing.
    """

    shares_gates = False
    wants_reports = True
    core: ContinuedByBatch

    def __init__(self, gates: Sequence[ConnectGate], core: ContinuedByBatch, checkpoint: str, *, is_paced: bool = False) -> None:
        super().__init__(gates, core)  # type: ignore[arg-type] # they offer what is needed
        self._gates = {gate.name: gate for gate in gates}
        _, local = resolve(checkpoint, "the checkpoint")
        self.checkpoint = Checkpoint(local)
        self.look_at_checkpoint = self._look
        directory = directory_of(gates[0].directory, self.label)
        self._places = {name: place_of(directory, name) for name in self._gates}
        for name, gate in self._gates.items():
            gate.read_batches_from(self._places[name])
        self._tables = BatchTables(directory, Path(local) / "offsets")
        self._in_force: dict[str, KeepTable] = {name: gate.state.everything() for name, gate in self._gates.items()}
        self._decided_for: int | None = None  # the batch whose decision is in force
        self._next = 0  # the batch that Spark plans next
        self._first: int | None = None  # the first batch that this run has planned
        self._counted_through = -1
        self._unoffered: set[int] = set()  # batches whose tables could not be written
        self._owed: set[int] = set()  # batches that had other tables than the journal says, and it could not be told
        warn = (lambda reason: self.warn(f"{self.label}: {reason}")) if core.controller.sheds else None
        self._source = ReportedQuery(self.checkpoint, is_paced=is_paced, warn=warn)
        self._reports: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"penstock {self.label}", daemon=True)

    # -- the start -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what the checkpoint says, now that the journal is held."""
        self.last_committed = max(self.checkpoint.list_committed(), default=None)
        self.open_batch, self.first_batch = find_open_batch(self.checkpoint.store), self.checkpoint.find_next()
        self._next = self.first_batch if self.open_batch is None else self.open_batch + 1

    def begin(self) -> None:
        """The query is about to start: its first batch must find its table. Then watch for the next ones."""
        state = self.journal.state
        # What Spark has not committed runs again, perhaps with other rows: after a power cut, or if the checkpoint was set back.
        assert self.first_batch is not None  # noqa: S101 - the checkpoint was looked at
        self._counted_through = min(max(state.batches, default=-1), self.first_batch - 1)
        self._source.continue_from(state.rows_per_byte())
        open_tables = {name: gate.state.everything() for name, gate in self._gates.items()}
        self._tables.prepare(self._places, open_tables, self._next)
        for batch_id in self._tables.list_batches():
            if self._counted_through < batch_id != self.open_batch:  # workers may have gone on while no client was there
                self._take_stand_in(batch_id)
        if self.open_batch is not None:
            self._plan(self.open_batch)
        self.carry_out(self.core.get_ready())
        self._thread.start()

    def check_journal(self, journal: Journal) -> None:
        """Tell the core which batch was left open, now that nobody else can run one."""
        super().check_journal(journal)
        if was_by_arrival(journal.state):  # its last client may have died before it wrote what it had decided
            for gate in self._gates.values():
                for record in gate.find_unwritten(journal.state):
                    journal.append(record)
        self.core.leave_open(self.open_batch)

    def attach(self, query: StreamingQuery) -> None:
        """Take the query, once it has started."""
        self.query = query
        self.journal.claim(str(query.id))
        for text in fetch_reports(query, -1):
            self.report(text)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def report(self, text: str) -> None:
        """Take one of Spark's reports."""
        self._reports.put(text)

    def _run(self) -> None:
        while True:
            try:
                text = self._reports.get(timeout=_POLL_S)
            except queue.Empty:
                self.guard("set the table of a batch", self._plan_next)
                continue
            if text is None:
                return
            self.guard("take in a batch", self._take_in, text)

    def _plan_next(self) -> None:
        """Plan the batch that Spark is about to run, if it is."""
        batch_id = self._tables.find_planned(self._next)
        if batch_id is None:
            return
        if batch_id > self._next or batch_id - 1 in self._unoffered:  # workers may think that nobody is here
            self.guard("let the next batch wait", self._tables.announce)
        self._next = batch_id + 1
        self.guard("wait for the report of a batch", self._await_report, batch_id - 1)
        self._plan(batch_id)

    def _await_report(self, batch_id: int) -> None:
        """A decision rests on what the batch before has shown. Its report is on its way; if it does not come, it is fetched."""
        if self._first is None or batch_id < self._first:
            return
        while self._counted_through < batch_id:
            try:
                text = self._reports.get(timeout=_REPORT_S)
            except queue.Empty:
                break
            if text is None:
                self._reports.put(None)  # for the loop
                return
            self._take_in(text)
        if self._counted_through < batch_id and self.query is not None:
            for text in fetch_reports(self.query, self._counted_through):
                self._take_in(text)

    def _plan(self, batch_id: int) -> None:
        """Put the table of a batch in force, unless a worker was quicker."""
        if self._first is None:
            self._first = batch_id
        if self._take_stand_in(batch_id) or self._tables.is_planned(batch_id + 1):  # it has ended by now
            return
        try:
            rows = self.guard("read the size of the batch", self._source.count_rows, batch_id)
            self.carry_out(self.core.plan_batch(self._source.describe(batch_id, self.now_s(), rows)))
            is_by_batch = all(isinstance(table, BatchTable) for table in self._in_force.values())
            self._decided_for = batch_id if is_by_batch else None
        finally:  # Spark waits, also where the journal can't be written: then for the last table
            if not self.journal.is_lost:  # else the batch may be another process's
                self._unoffered.add(batch_id)  # until a file is there
                if not self._tables.offer(batch_id, self._in_force, self._decided_for):
                    self._take_stand_in(batch_id)
                self._unoffered.discard(batch_id)
        self._tables.forget_before(batch_id)

    def _take_stand_in(self, batch_id: int) -> bool:
        """Journal what a worker has put in force, because no decision came: that of an earlier batch, or open gates.

        Return whether one did.
        """
        found = self._tables.find(batch_id)
        if found is None and batch_id in self._unoffered:  # the worker could not write it either
            found = self._tables.find_stand_in(batch_id)
        if found is None or not found.is_stand_in:
            return False
        if batch_id >= self._next - 1:
            self.guard("let the next batch wait", self._tables.announce)
        state = self.journal.state
        earlier = None if found.decided_for is None else find_decision(state, found.decided_for)
        if earlier is None:
            entries = {name: gate.state.entries(1.0) for name, gate in self._gates.items()}
            earlier = DecisionRecord(entries, 1.0)
        held = replace(earlier, batch_id=batch_id, controller=None, windows=None)
        self.warn(f"{self.label}: {LATE}")
        known, later = state.decision_for(batch_id), state.decisions_after(batch_id)
        if known is None or (known.gates, known.older) != (held.gates, held.older):
            self._owed.add(batch_id)  # until it is journaled
            self.append([held, *later], None)
        self._owed.discard(batch_id)
        if not later:  # none is in force
            self._decided_for = found.decided_for
            self.carry_out(self.core.confirm(held, self.now_s()))
        return True

    def _take_in(self, text: str, *, is_asked_for: bool = False) -> None:
        """Take a report, after those of batches before it that Spark still has: they may not have come by themselves."""
        if not is_asked_for:
            for each in self.guard("ask for reports", fetch_reports_before, self.query, text, self._counted_through) or ():
                self._take_in(each, is_asked_for=True)
        progress = Progress.parse(text, partial(self.checkpoint.starts, 0))
        if progress is None or progress.batch_id <= self._counted_through:
            return
        batch_id, observed = progress.batch_id, read_observed(text)
        for missing in find_missing(self._counted_through + 1 or find_start(self.journal.state, self._first, batch_id), batch_id):
            self.warn(f"{self.label}: {name_batches(missing)} ran while nobody listened; missing in the ledger")
        self._next = max(self._next, batch_id + 1)  # this process may have been suspended
        for number in sorted({*self._owed, *range(max(self._counted_through + 1, batch_id - RETAINED), batch_id + 1)}):
            self.guard("journal what held in a batch", self._take_stand_in, number)
        self._counted_through = batch_id
        self._source.take(progress, text)
        for gate in self._gates.values():
            gate.see(observed)
            if gate.unread:
                self.warn(f"gate {gate.name!r}: its table could not be read, and {gate.unread:,} rows were kept for that")
        counts = {name: count for name, gate in self._gates.items() if (count := gate.count()) is not None}
        if len(counts) < len(self._gates):
            self.warn(f"{self.label}: the report of batch {batch_id} has no counts; it is missing in the ledger")
        else:
            readings = {name: gate.take_reading() for name, gate in self._gates.items()}
            ended = BatchEnded(batch_id, self.now_s(), counts, readings, times=progress.times)
            self.carry_out(self.core.end_batch(ended))
        self.carry_out(self.core.close_batch(batch_id))

    # -- what the core tells it ----------------------------------------------------------------------------------------

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        """Remember what the next batch gets; its file is created once all gates have their tables."""
        self._in_force[gate] = tables[0]

    def prepare_recount(self, batch_id: int) -> None:
        """No batch is counted again here."""

    # -- the end -------------------------------------------------------------------------------------------------------

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


def find_decision(state: JournalState, batch_id: int) -> DecisionRecord | None:
    """Return the decision that a batch had: its own or, where that said the same and was not written, the last one before it."""
    decided = (d for d in reversed(state.decisions) if d.batch_id is not None and d.batch_id <= batch_id)
    return state.decision_for(batch_id) or next(decided, None)


def find_start(state: JournalState, planned: int | None, batch_id: int) -> int:
    """Return where the counts of a query should have begun that has none: with its first decision, or what this run has planned.

    >>> find_start(JournalState(decisions=[DecisionRecord({}, 1.0, batch_id=2)]), 4, 6), find_start(JournalState(), None, 6)
    (2, 6)
    """
    known = (find_first_uncounted(state), planned, batch_id)
    return min(number for number in known if number is not None)
