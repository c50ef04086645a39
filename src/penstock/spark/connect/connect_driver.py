"""Drives a query over Spark Connect by arrival: the loop runs in the client, on the reports that Spark sends there."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from penstock.control.base import GateCount
from penstock.decision import ByArrival
from penstock.decision.handover import find_first_uncounted, mark_by_arrival
from penstock.drop.tables import KeepTable, slot_start_s
from penstock.journal import Journal
from penstock.journal.records import DecisionRecord
from penstock.spark.checkpoint import Checkpoint, find_open_batch
from penstock.spark.connect.connect_gate import ConnectGate
from penstock.spark.connect.listener import fetch_reports, fetch_reports_before, read_observed, report_text
from penstock.spark.connect.missing_batches import find_missing, name_batches
from penstock.spark.progress import Progress
from penstock.spark.query_driver import QueryDriver
from penstock.spark.reported_driver import ReportedDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ConnectDriver", "MARGIN_S"]

MARGIN_S = 0.5
"""A decision takes effect this long after it is made: time to journal it and to write a table."""
_WATCH_S = 0.25
_LOOKS = 8
"""How often a query is looked at per target."""
_MANY = 3
"""So many reports in a row had to be asked for: they no longer come by themselves."""


class ConnectDriver(ReportedDriver):
    """Takes a report per batch, which has the counts of its gates, and lets the core decide for the rows to come.

    What runs while no client listens is not counted: a batch can't be run again here. The ledger says which batches are missing.

    Parameters
    ----------
    gates, core, siblings
        As in ``QueryDriver``.
    checkpoint
        The query's, if it may be one that this process sees too.
    """

    def __init__(
        self,
        gates: Sequence[ConnectGate],
        core: ByArrival,
        siblings: Mapping[str, QueryDriver] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(gates, core, siblings)  # type: ignore[arg-type] # they offer what is needed
        self._last_report_s = self._begun_s = time.monotonic()
        """When Spark was heard of last, and when the batch at hand began, or a little earlier; not by a clock that may be set."""
        self._looked_s = 0.0
        self._fetches = 0
        self._seen_gates = {gate.name: gate for gate in gates}
        self._first_uncounted: int | None = None  # the first batch that should be in the ledger and is not
        self._checkpoint = checkpoint
        self.look_at_checkpoint = self._look
        self._tables = ExitStack()  # held while the query runs

    def look_at_sources(self, df: DataFrame) -> None:
        """Nothing can be asked about them."""

    def _look(self) -> None:
        """Now that the journal is held: take the tables, which lie elsewhere, and read the checkpoint, where it can be seen."""
        for gate in self._seen_gates.values():
            self._tables.enter_context(gate.hold_table())
        if self._checkpoint is not None:
            self.open_batch = find_open_batch(self._checkpoint.store)
            if self._checkpoint.query_id() is not None:
                self.first_batch = self._checkpoint.find_next()

    def check_journal(self, journal: Journal) -> None:
        """Raise if the query can't continue; then take back what was decided and is in no table, since Spark went on without."""
        super().check_journal(journal)
        for gate in self._seen_gates.values():
            for record in gate.find_unwritten(journal.state):
                journal.append(record)

    def finish(self) -> None:
        """The query has ended: give everything back."""
        super().finish()
        self._tables.close()

    def attach(self, query: StreamingQuery) -> None:
        """Start to control a query that is running."""
        self.query = query
        self.journal.claim(str(query.id))
        if self.first_batch is None and self._checkpoint is not None and self._checkpoint.query_id() == str(query.id):
            self.first_batch = 0  # Spark has just made the checkpoint; before that, nobody knew whether it can be seen
            self.guard("say which batch is the first", self.journal.append, mark_by_arrival(first_batch=0))
        self._last_report_s = self._begun_s = time.monotonic()
        self.listen([report_text(progress) for progress in query.recentProgress])

    def listen(self, reports: Iterable[str]) -> None:
        """Begin to work on reports."""
        known = (find_first_uncounted(self.journal.state), self.first_batch)
        self._first_uncounted = min((number for number in known if number is not None), default=None)
        super().listen(reports)

    def _run(self) -> None:
        while True:
            try:
                text = self._reports.get(timeout=_WATCH_S)
            except queue.Empty:
                self.guard("look at a running batch", self._watch)
                continue
            if text is None:
                return
            self._last_report_s = self._begun_s = time.monotonic()
            self._fetches = 0
            self.guard("take in a batch", self._take_in, text)

    def _watch(self) -> None:
        """Keep fewer rows of those to come while a batch runs for too long: nothing else bounds the next one."""
        now_s, target_s = time.monotonic(), self.core.controller.delay_target_s
        if self.query is None or now_s - self._looked_s < target_s / _LOOKS:
            return
        self._looked_s = now_s
        if now_s - self._last_report_s > target_s:
            self._last_report_s = now_s
            if self._fetch_reports():
                return
        if not self.core.controller.sheds:
            return
        status = self.query.status
        if not (status["isTriggerActive"] and status["isDataAvailable"]):
            self._begun_s = now_s  # a batch that runs the next time has not begun yet
        elif isinstance(self.core, ByArrival):
            self.carry_out(self.core.relieve(self.now_s(), now_s - self._begun_s))

    def _fetch_reports(self) -> bool:
        """Ask for reports that never came: where the connection broke, PySpark drops its listeners and only warns."""
        texts = [] if self.query is None else fetch_reports(self.query, self._done_through)
        if not texts:
            return False
        self._fetches += 1
        if self._fetches == _MANY:
            self.warn(f"{self.label}: Spark's reports no longer come by themselves, so they are fetched, once per target")
        self._last_report_s = self._begun_s = time.monotonic()
        for text in texts:
            self._take_in(text)
        return True

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        """Put tables in force. A decision whose table can't be written never held, and is taken back."""
        ring, begin_s = self._seen_gates[gate].state.ring, self.now_s()
        try:
            super().publish(gate, tables)
        except OSError as error:
            if not ring.changes:
                raise
            slot, _ = ring.changes.pop()
            self.journal.append(DecisionRecord({gate: ring.current}, self.core.keep, from_slot=slot))
            self.warn(f"{self.label}: the table of gate {gate!r} could not be written, so a decision was dropped: {error}")
            return
        if ring.changes and begin_s < slot_start_s(ring.changes[-1][0]) <= self.now_s():
            self.warn(
                f"{self.label}: writing the table of gate {gate!r} took {self.now_s() - begin_s:.1f} s: rows that arrived "
                "meanwhile may be judged otherwise when their batch is replayed"
            )

    def _take_in(self, text: str, *, is_asked_for: bool = False) -> None:
        """Take a report, after those of batches before it that Spark still has: they may not have come by themselves."""
        if not is_asked_for:
            for each in self.guard("ask for reports", fetch_reports_before, self.query, text, self._done_through) or ():
                self._take_in(each, is_asked_for=True)
        observed = read_observed(text)
        progress = Progress.parse(text)
        if progress is not None and progress.batch_id > self._done_through:
            self._note_missing(progress.batch_id)
            for gate in self._seen_gates.values():
                gate.see(observed)
                if gate.unread:
                    self.warn(f"gate {gate.name!r}: its table could not be read, and {gate.unread:,} rows were kept for that")
        super()._take_in(text)

    def _count(self, run_id: str, batch_id: int) -> tuple[dict[str, GateCount] | None, dict[str, int]]:  # noqa: ARG002
        """Return what the batch's own report counted."""
        counts = {name: count for name, gate in self._seen_gates.items() if (count := gate.count()) is not None}
        if len(counts) < len(self._seen_gates):
            self.warn(f"{self.label}: the report of batch {batch_id} has no counts; it is missing in the ledger")
            return None, {}
        return counts, {}

    def _note_missing(self, batch_id: int) -> None:
        """Say which batches before one are not counted. Those that an earlier run has counted may have run again since."""
        first = batch_id if self._first_uncounted is None else self._first_uncounted
        for batches in find_missing(first, batch_id, self.journal.state.batches):
            self.warn(f"{self.label}: {name_batches(batches)} ran while nobody listened; missing in the ledger")
        self._first_uncounted = batch_id + 1

    def _recover(self, batch_id: int) -> None:
        """A batch whose report never came can't be counted."""

    def _read_backlog(self, progress: Progress) -> dict[str, int]:
        """Return the rows that wait, as far as Spark's report says so."""
        return dict(progress.backlog_rows)
