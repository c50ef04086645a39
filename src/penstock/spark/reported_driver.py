"""Drives a query that runs by itself: a thread that takes Spark's reports of it."""

from __future__ import annotations

import queue
import threading
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from penstock.control.base import GateCount
from penstock.decision import BatchEnded, ByArrival
from penstock.decision.handover import is_marked_by_arrival, last_layout, mark_by_arrival, refuse_open_batch
from penstock.journal import Journal
from penstock.spark.gates import Gate
from penstock.spark.kafka_source import SPARSE
from penstock.spark.progress import Progress
from penstock.spark.query_driver import QueryDriver
from penstock.storage import Store

__all__ = ["ReportedDriver"]

_PUBLISHING = threading.RLock()  # queries may share a gate


class ReportedDriver(QueryDriver):
    """Takes a report per batch, counts the batch, and lets the core decide for the rows to come."""

    shares_gates = True
    wants_reports = True
    core: ByArrival

    def __init__(self, gates: Sequence[Gate], core: ByArrival, siblings: Mapping[str, QueryDriver] | None = None) -> None:
        super().__init__(gates, core, siblings)
        self._reports: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"penstock {self.label}", daemon=True)
        self._done_through = -1
        self._is_first_of_run = True
        self._needs_mark = False  # whether the journal must be told that this run is set by arrival
        self._counted_again: set[str] = set()  # gates of the batch at hand, by running a part of it once more

    def open_journal(self, location: str | Store, query_id: str | None, *, is_new: bool) -> None:
        """Open the journal and continue where it ends."""
        with _PUBLISHING:
            super().open_journal(location, query_id, is_new=is_new)
            if self._needs_mark:
                self.journal.append(mark_by_arrival(self.layout, self.first_batch))

    def check_journal(self, journal: Journal) -> None:
        """Refuse to replay a batch that was decided by batch."""
        super().check_journal(journal)
        state = journal.state
        refuse_open_batch(state, self.open_batch, self.label)
        self._needs_mark = not is_marked_by_arrival(state) or self.layout not in (None, last_layout(state))
        is_open = self.open_batch is not None or self.find_uncounted(state) is not None
        self.core.note_last_plan(self.last_planned_s, has_open_batch=is_open)

    def prepare_recount(self, batch_id: int) -> None:
        """Refuse a batch that was decided by batch: its slots say nothing about it."""
        refuse_open_batch(self.journal.state, batch_id, self.label)

    def listen(self, reports: Iterable[str]) -> None:
        """Begin to work on reports; those that came before the listener knew the query are given."""
        # What Spark had committed before this run is counted at the start, or can't be. Later batches run again, and count anew:
        # with asynchronous progress tracking they have other rows than before.
        counted = max(self.journal.state.batches, default=-1)
        self._done_through = counted if self.first_batch is None else self.first_batch - 1
        self._thread.start()
        for text in reports:
            self.report(text)

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
        was_counted_again, self._counted_again = self._counted_again, set()
        readings = {name: gate.take_reading() for name, gate in self.gates.items()}
        counts, tasks = self._count(progress.run_id, progress.batch_id)
        for name in self._counted_again:  # its rows once, and those of the next batch that ran meanwhile
            readings[name] = self.gates[name].take_reading()
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
                is_estimated=bool(self._counted_again or was_counted_again),
            )
            self.carry_out(self.core.end_batch(event))

    def _read_first_offsets(self) -> Sequence[str | None]:
        """Return where the first batch of the query began, by source; nothing where nobody knows."""
        return ()

    @abstractmethod
    def _read_backlog(self, progress: Progress) -> dict[str, int]:
        """Return the rows that wait at each source."""

    @abstractmethod
    def _count(self, run_id: str, batch_id: int) -> tuple[dict[str, GateCount] | None, dict[str, int]]:
        """Return the rows offered and kept at each gate, and the tasks at bounded ones; ``None`` where the counts are lost."""

    @abstractmethod
    def _recover(self, batch_id: int) -> None:
        """Count a batch whose report never came, where that is possible."""
