"""What both Spark drivers share: one query, its gates, its decision core, its journal."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.control.base import GateCount
from penstock.decision import BatchEnded, Instruction, QueryCore, carry_out
from penstock.decision.handover import find_first_uncounted, refuse_changed_layout
from penstock.drop.tables import KeepTable
from penstock.errors import JournalError, PenstockError
from penstock.journal import Journal, JournalState, QueryLedger
from penstock.journal.records import Record
from penstock.metrics import Exporter, Observers
from penstock.spark.gates import Gate
from penstock.spark.interruption import is_interruption
from penstock.spark.kafka_source import explain_failure, find_silent_brokers, read_layout
from penstock.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["QueryDriver"]

log = logging.getLogger("penstock")

_MOST_NOTES = 100
Recount = Callable[[int], dict[str, GateCount]]


# long because it is all that the core needs of Spark (append, publish, warn, now_s) and the whole life of a query
class QueryDriver(ABC):
    """Runs the decision core of one query on Spark. Nothing that goes wrong here stops the job: the last table stays."""

    shares_gates: ClassVar[bool]
    """Whether several queries may read its gates."""
    wants_reports: ClassVar[bool]
    """Whether it needs Spark's report of every batch."""

    def __init__(self, gates: Sequence[Gate], core: QueryCore, siblings: Mapping[str, QueryDriver] | None = None) -> None:
        self.gates = {gate.name: gate for gate in gates}
        self.core = core
        self.query: StreamingQuery | None = None
        self._run_id: str | None = None
        self.ended = threading.Event()
        """Set when Spark has said that the query ended."""
        self.open_batch: int | None = None
        """The batch that the query replays first; ``None`` if there is none."""
        self.last_committed: int | None = None
        """The last batch that Spark has committed; it may not be counted yet."""
        self.last_planned_s: float | None = None
        """When Spark has planned a batch last; ``None`` if it never did, or where the checkpoint is not known."""
        self.first_batch: int | None = None
        """The first batch that this run may bring; ``None`` where the checkpoint is not known before the query runs."""
        self.look_at_checkpoint: Callable[[], None] = lambda: None
        """Sets the four above, once the journal is held."""
        self.layout: str | None = None
        """How sources cut a batch into partitions, where the ranks of rows count."""
        self.can_count_again = False
        """Whether the next start finds batches that were not counted, and counts them."""
        self.recount: Recount | None = None
        """Runs a committed batch once more to count it, where the query's DataFrame is known."""
        self.exporters: Sequence[Exporter] = ()
        """Who wants to know what the query does; asked when the journal is opened."""
        self._observers = Observers()
        self._siblings = siblings if siblings is not None else {}
        self._journal: Journal | None = None
        self._noted: set[str] = set()
        self._early_notes: list[str] = []  # noted before there was a journal
        self.interruption: Exception | None = None
        """What a call said that was interrupted because the query is being stopped, before a batch that may be left out."""
        self.may_leave_out = False
        """Whether a batch is about to begin, which the next run can begin with just as well."""
        self.is_closed = False
        """Whether the journal was released."""
        self._finishing = threading.Lock()

    @property
    def label(self) -> str:
        """The query's name."""
        return self.core.label

    @property
    def run_id(self) -> str | None:
        """The id of the query's run, once it has started; asked for once, since that is a call to the JVM."""
        if self._run_id is None and self.query is not None:
            self._run_id = str(self.query.runId)
        return self._run_id

    # -- the journal ---------------------------------------------------------------------------------------------------

    @property
    def has_journal(self) -> bool:
        """Whether the journal is open, or was."""
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        """The journal, once it is open."""
        if self._journal is None:
            raise PenstockError(f"query {self.label!r} has no journal yet")
        return self._journal

    def ledger(self, delay_target_s: float) -> QueryLedger:
        """Return what the journal says now, for a report."""
        self.settle()
        gates = {name: gate.state for name, gate in self.gates.items()}
        return QueryLedger(
            self.label,
            self.core.how,
            delay_target_s,
            self.journal.state.copy(),
            {name: gate.class_names for name, gate in gates.items() if gate.class_names},
            {name: gate.unit_name for name, gate in gates.items()},
        )

    def open_journal(self, location: str | Store, query_id: str | None, *, is_new: bool) -> None:
        """Open the journal and continue where it ends."""
        journal = Journal(location, query_id, syncs_counts=not self.can_count_again)
        if is_new and query_id is None and (owner := journal.state.owner.get("job")) is not None:
            journal.close()
            raise JournalError(
                f"the journal in {journal.location} belongs to job {owner}, but the checkpoint is new: "
                "give the new job a journal of its own, or bring back the checkpoint"
            )
        self._journal = journal
        self.describe_query()
        try:
            self.look_at_checkpoint()
            self.check_journal(journal)
            self._observers = Observers(self.exporters, self.label, journal.state)
            self.carry_out(self.core.restore(journal.state))
            for message in self._early_notes:
                journal.append(message)
            self._early_notes = []
        except BaseException:
            self._observers.close()
            journal.close()
            raise

    def describe_query(self) -> None:
        """Say in the journal what the query is called, how it decides, and what the classes of its gates are called."""
        names = {name: list(gate.state.class_names) for name, gate in self.gates.items() if gate.state.class_names}
        controller = type(self.core.controller).__name__
        self.journal.describe(label=self.label, how=self.core.how, controller=controller, classes=names)

    def check_journal(self, journal: Journal) -> None:
        """Raise if the query can't continue what the journal says; nothing has been restored or written by then."""
        uncounted = self.find_uncounted(journal.state) if self.open_batch is None else self.open_batch
        refuse_changed_layout(journal.state, self.layout, uncounted, self.label)

    def find_uncounted(self, state: JournalState) -> int | None:
        """Return the last batch that was committed and not counted; ``None`` if there is none."""
        first, last = find_first_uncounted(state), self.last_committed
        return None if first is None or last is None or last < first else last

    def look_at_sources(self, df: DataFrame) -> None:
        """Before the journal is opened: how the sources cut batches, and whether they are there."""
        for line in find_silent_brokers(df):
            self.warn(f"{self.label}: {line}")
        if any(gate.specification.is_bounded_by_arrival for gate in self.gates.values()):
            self.layout = read_layout(df)

    def claim_journal(self, checkpoint: Store, query_id: str) -> None:
        """Say whose the journal is; open it in the checkpoint that Spark made, where the user named none."""
        if self._journal is None:
            self.open_journal(checkpoint.below("penstock"), query_id, is_new=True)
        else:
            self.journal.claim(query_id)

    def count_again(self, batch_ids: Sequence[int]) -> None:
        """Count batches that were committed but not counted before a crash."""
        for batch_id in batch_ids:
            counts = self.guard(f"count batch {batch_id} again", self.count_batch_again, batch_id)
            if counts is not None:
                event_times = self.event_times()
                event = BatchEnded(batch_id, self.now_s(), counts, event_times=event_times, is_recounted=True)
                self.guard("journal the counts of a batch", self.append, [self.core.record_batch(event)], None)

    def event_times(self) -> dict[str, int | None]:
        """Return the latest event time at each gate of whole windows."""
        return {name: gate.event_time() for name, gate in self.gates.items() if gate.windows is not None}

    def count_batch_again(self, batch_id: int) -> dict[str, GateCount] | None:
        """Return the counts of a batch that was committed but not counted; ``None`` where it can't be run again."""
        if self.recount is None:
            return None
        log.info("%s: batch %d was committed but not counted before a crash; counting it now", self.label, batch_id)
        self.prepare_recount(batch_id)
        return self.recount(batch_id)

    # -- the life of a query -------------------------------------------------------------------------------------------

    @abstractmethod
    def attach(self, query: StreamingQuery) -> None:
        """Take a query that has started."""

    def report(self, text: str) -> None:  # noqa: B027 - only some want reports
        """Take one of Spark's reports; called from its listener, so it must return at once."""

    @abstractmethod
    def prepare_recount(self, batch_id: int) -> None:
        """Put the tables in force that a committed batch had."""

    @abstractmethod
    def stop(self) -> None:
        """Stop the query."""

    def settle(self) -> None:  # noqa: B027 - only some count beside the query
        """Wait until the batches that have ended are counted."""

    def finish(self) -> None:
        """The query has ended: write what is missing and release the journal. The first of several calls does it."""
        with self._finishing:
            if self.is_closed:
                return
            self.end_core()
            if self._journal is not None:
                self._journal.close()
            self._observers.close()
            self.is_closed = True

    def explain_end(self) -> None:
        """Say in one line why a query failed, where Kafka is the reason."""
        failure = None if self.query is None else self.guard("read why the query ended", self.query.exception)
        meaning = None if failure is None else explain_failure(str(failure))
        if meaning is not None:
            self.warn(f"{self.label}: {meaning}")

    def end_core(self) -> None:
        """Tell the core that the query has ended."""
        self.carry_out(self.core.end())

    # -- what the core tells it ----------------------------------------------------------------------------------------

    def carry_out(self, instructions: Sequence[Instruction]) -> None:
        """Do what the core says."""
        carry_out(self.core, instructions, self)

    def now_s(self) -> float:
        """Return the time."""
        return time.time()

    def append(self, records: Sequence[Record], query: str | None) -> None:
        """Make records durable, in this query's journal or in that of one that shares a gate."""
        if query is None:
            try:
                self.journal.append(*records)
            except Exception:
                self._observers.miss(records, self.now_s())
                raise
            self._observers.record(records, self.now_s())
        elif (sibling := self._siblings.get(query)) is not None and sibling.has_journal and not sibling.is_closed:
            sibling.append(records, None)

    def append_later(self, records: Sequence[Record]) -> None:
        """Make records durable with the next ones."""
        self.journal.append_later(*records)
        self._observers.record(records, self.now_s())

    def publish(self, gate: str, tables: Sequence[KeepTable]) -> None:
        """Put tables in force."""
        self.gates[gate].publish(tables)

    def warn(self, message: str, error: Exception | None = None) -> None:
        """Log a message and remember it for the report, once; and not endlessly many that read differently every time."""
        if error is not None:
            self._observers.fail()
            log.debug("%s", message, exc_info=error)
        if message in self._noted or len(self._noted) >= _MOST_NOTES:
            return
        self._noted.add(message)
        log.warning(message)
        if self._journal is None:
            self._early_notes.append(message)
            return
        try:
            self._journal.append(message)
        except JournalError:
            log.debug("the journal could not take a message", exc_info=True)

    def _is_being_stopped(self) -> bool:
        """Whether Spark has been told to stop the query. Storage that fails may call that an interruption too."""
        try:
            return self.query is not None and not self.query.isActive
        except Exception:  # the session may be gone
            return True

    def guard(self, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something that may fail without taking the job down; ``None`` if it did."""
        try:
            return call(*arguments)
        except Exception as error:  # whatever a full disk or Spark raises, the job goes on
            if self.may_leave_out and is_interruption(error) and self._is_being_stopped():
                self.interruption = error
                log.debug("%s: stopped while it was about to %s", self.label, what, exc_info=error)
                return None
            self.warn(self.core.warn_failure(what, error).message, error)
            return None
