"""What both control loops share: one query, its gates, its controller, its journal."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from penstock.control.base import Controller, Decision, GateCount, Observation
from penstock.errors import JournalError, PenstockError
from penstock.journal.journal import BatchRecord, DecisionRecord, Journal
from penstock.spark.gate import Gate, MeterReading
from penstock.spark.monitor import Progress
from penstock.spark.plan_checks import with_late_watermark

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ControlLoop"]

log = logging.getLogger("penstock")

_MOST_NOTES = 100
# As Spark writes them in a plan.
_NOT_SCALED = (
    "min",
    "max",
    "approx_count_distinct",
    "percentile",
    "percentile_approx",
    "approx_percentile",
    "median",
    "mode",
    "collect_set",
    "min_by",
    "max_by",
    "first",
    "last",
    "percentile_cont",
    "percentile_disc",
    "hll_sketch_agg",
)
_DISTINCT = ("Deduplicate", "DeduplicateWithinWatermark", "Distinct")  # nodes of a plan
_WHOLE_EVERY = 1_000  # decisions; fewer than a journal keeps


class ControlLoop:
    """One query under control. Nothing that goes wrong here stops the job: the last table stays, and the error is kept."""

    how = ""
    """How decisions take effect: by batch or by arrival."""

    def __init__(self, gates: Sequence[Gate], controller: Controller, delay_target_s: float, label: str) -> None:
        self.gates = tuple(gates)
        self.controller = controller
        self.delay_target_s = delay_target_s
        self.label = label
        self.query: StreamingQuery | None = None
        self.keep = 1.0
        self._journal: Journal | None = None
        self._seen: set[str] = set()
        self._early: list[str] = []  # noted before there was a journal
        self._cold = True
        self._closed = threading.Event()
        self.ended = threading.Event()
        """Set when Spark has said that the query ended."""

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

    def open_journal(self, location: str, query_id: str | None, *, fresh: bool) -> None:
        """Open the journal and take up where it ends."""
        journal = Journal(location, query_id)
        if fresh and journal.state.owner.get("job") is not None and query_id is None:
            owner = journal.state.owner["job"]
            journal.close()
            raise JournalError(
                f"the journal in {location} belongs to job {owner}, but the checkpoint is new: "
                "give the new job a journal of its own, or bring back the checkpoint"
            )
        self._journal = journal
        try:
            self._take_up(journal)
            for message in self._early:
                journal.append(message)
            self._early = []
        except BaseException:
            journal.close()
            raise

    def _take_up(self, journal: Journal) -> None:
        """Restore controller and keep from the journal."""
        for decision in reversed(journal.state.decisions):
            if decision.controller is not None:
                self.keep = decision.keep
                self.guarded("restore the controller", self.controller.restore, decision.controller)
                break

    def guarded(self, what: str, call: Any, *arguments: Any) -> Any:
        """Call something that may fail without taking the job down; ``None`` if it did."""
        try:
            return call(*arguments)
        except Exception as error:  # whatever a controller or a full disk raises, the job goes on
            self.note(f"{self.label}: could not {what}: {type(error).__name__}: {error}".splitlines()[0])
            log.debug("%s: could not %s", self.label, what, exc_info=True)
            return None

    def note(self, message: str) -> None:
        """Remember an error for the report and log it, once; one that reads differently every time, not for ever."""
        if message in self._seen or len(self._seen) >= _MOST_NOTES:
            return
        self._seen.add(message)
        log.warning(message)
        if self._journal is None:
            self._early.append(message)
        else:
            try:
                self._journal.append(message)
            except JournalError:
                log.debug("the journal could not take an error", exc_info=True)

    def warn_of(self, plan: str) -> None:
        """Say which of the query's answers a gate makes wrong, whatever the weights."""
        for name in with_late_watermark(plan, self.gates):
            self.note(
                f"{self.label}: the watermark stands behind gate {name!r} and sees only what that keeps, so rows may count that "
                "come too late in the job without shedding: put withWatermark before the gate"
            )
        if all(gate.unit is not None for gate in self.gates):
            return
        found = [name for name in _NOT_SCALED if re.search(rf"\b{name}\(", plan)]
        found += ["distinct rows"] if any(re.search(rf"\b{name}\b", plan) for name in _DISTINCT) else []
        found += ["count(distinct)"] if re.search(r"\bcount\(distinct ", plan) else []
        if found:
            self.note(
                f"{self.label}: {', '.join(found)} over a gate of rows is of the rows kept, not of all, and no weight mends it; "
                "a gate with unit=ps.key(...) or ps.window(...) gives exact answers for the keys or windows it keeps"
            )

    def decide(self, observation: Observation) -> Decision:
        """Ask the controller; no opinion where it failed."""
        decision: Decision = self.guarded("decide", self.controller.update, observation) or Decision()
        if decision.note is not None:
            self.note(f"{self.label}: {decision.note}")
        return decision

    def read_meters(self) -> dict[str, MeterReading]:
        """Read every gate's counters and note what its rows lacked."""
        readings = {}
        for gate in self.gates:
            reading = gate.meters.take()
            readings[gate.name] = reading
            if reading.offered_by_class is not None:
                gate.learn_classes(reading.offered_by_class)
                if reading.offered_by_class[-1] and gate.classes is not None and not gate.other_weight_given:
                    named = ", ".join(str(value) for value in gate.classes.values)
                    self.note(
                        f"gate {gate.name!r}: rows of a class not in weights ({named}) are shed as '(other)' with weight "
                        f"{gate.classes.weights[-1]:g}; name the class, or give None a weight"
                    )
            if reading.null_arrivals:
                self.note(f"gate {gate.name!r}: rows without an arrival time in column {gate.arrival!r} are kept, always")
            if reading.older_than_ring:
                self.note(f"gate {gate.name!r}: rows arrived longer ago than decisions are kept for, and share the oldest one")
        return readings

    def batch_record(
        self, batch_id: int, counts: dict[str, GateCount], readings: dict[str, MeterReading], **measured: Any
    ) -> BatchRecord:
        """Put a batch's counts and readings together."""
        kept = sum(reading.kept for reading in readings.values() if reading.mean_arrival_s is not None)
        seen = {gate.name: gate.windows.latest for gate in self.gates if gate.windows is not None}
        arrived = sum(r.kept * r.mean_arrival_s for r in readings.values() if r.mean_arrival_s is not None)
        return BatchRecord(
            batch_id=batch_id,
            gates={name: (count.offered, count.kept) for name, count in counts.items()},
            keep=self._keep_of(counts),
            mean_arrival_s=arrived / kept if kept else None,
            null_arrivals=sum(reading.null_arrivals for reading in readings.values()),
            older_than_ring=sum(reading.older_than_ring for reading in readings.values()),
            latest={name: time for name, time in seen.items() if time is not None} or None,
            classes={name: _by_class(reading, counts[name]) for name, reading in readings.items() if reading.kept_by_class}
            or None,
            **measured,
        )

    def _keep_of(self, counts: dict[str, GateCount]) -> float:  # noqa: ARG002 - by arrival it depends on them
        """The keep probability that a batch had."""
        return self.keep

    def observation(self, record: BatchRecord, progress: Progress, **more: Any) -> Observation:
        """Turn a batch's record and Spark's report of it into what a controller sees."""
        cold = self._cold
        self._cold = cold and not any(kept for _, kept in record.gates.values())  # an empty batch warms nothing up
        return Observation(
            batch_id=record.batch_id,
            start_s=progress.start_s,
            end_s=progress.end_s,
            gates={name: GateCount(*count) for name, count in record.gates.items()},
            keep=record.keep if record.keep is not None else 1.0,
            busy_s=progress.busy_s,
            mean_arrival_s=record.mean_arrival_s,
            backlog_rows=MappingProxyType(progress.backlog_rows),
            cold=cold,
            **more,
        )

    def decision_record(self, keep: float, **when: Any) -> DecisionRecord:
        """Put a decision down with the controller's memory."""
        whole = (when.get("batch_id") or 0) % _WHOLE_EVERY == 0
        return DecisionRecord(
            gates={gate.name: gate.keeps(keep) for gate in self.gates},
            keep=keep,
            controller=self.guarded("take a snapshot of the controller", self.controller.snapshot),
            windows={gate.name: gate.windows.ring.snapshot() for gate in self.gates if whole and gate.windows} or None,
            **when,
        )

    def close(self) -> None:
        """Let go of the journal; the query has ended."""
        if not self._closed.is_set():
            self._closed.set()
            if self._journal is not None:
                self._journal.close()


def _by_class(reading: MeterReading, counted: GateCount) -> list[tuple[int, int]]:
    """(offered, kept) of each class. Where a batch was evaluated twice the meters counted twice: then in proportion."""
    offered, kept = reading.offered_by_class or (), reading.kept_by_class or ()
    sizes = [round(count * _ratio(counted.offered, sum(offered))) for count in offered]
    return list(zip(sizes, [round(count * _ratio(counted.kept, sum(kept))) for count in kept], strict=True))


def _ratio(one: int, other: int) -> float:
    return one / other if other else 0.0
