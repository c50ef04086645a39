"""One controlled query as a state machine: events in, instructions out. It reads no clock, starts no thread, does no I/O.

A driver (Spark's by batch or by arrival, the simulator, a test's fake engine) calls the methods and carries out what they return,
in order. Whatever must be durable before it takes effect is an ``Append``; once it is, the driver calls ``confirm``, and only
then the core counts on it.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from penstock.control.base import Controller, Decision, GateCount, Observation, check_target
from penstock.decision.events import BatchEnded, BatchPlanned, BatchTimes, MeterReading
from penstock.decision.gate_state import GateState
from penstock.decision.instructions import Append, Instruction, Warn
from penstock.decision.loss_ceiling import LossCeiling
from penstock.journal.records import BatchRecord, DecisionRecord
from penstock.journal.state import JournalState

__all__ = ["CLOCK_TOLERANCE_S", "QueryCore", "prepend"]

CLOCK_TOLERANCE_S = 0.1
"""Clocks may disagree by as much before a row counts as one from the future."""
_SNAPSHOT_EVERY = 1_000
"""Batches between two records of all window decisions; fewer than a journal keeps decisions."""
_CLASS_BATCHES = 64
"""Batches from which a restart learns how frequent each class is; older ones count for nothing."""


# long because every event in the life of a query is a method
class QueryCore(ABC):
    """The decisions of one query: its gates, its controller, and what both have seen.

    Nothing that goes wrong with a controller stops the job: the last table stays, and the user is told.

    Parameters
    ----------
    gates
        The query's gates.
    controller
        Says what to keep. The core calls it once per batch.
    label
        The query's name, for messages.
    is_warm
        Whether the engine is warm: else the first batch with rows is marked as cold, and its time says little.
    max_loss
        The largest share of the rows that may be shed over a minute, whatever the controller wants.

    """

    how: ClassVar[str]
    """How decisions take effect: by batch or by arrival."""
    fate_without_arrival: ClassVar[str]
    """What becomes of rows that don't say when they arrived, for messages."""
    fate_from_future: ClassVar[str]
    """The same of rows that arrived later than now."""

    def __init__(
        self,
        gates: Sequence[GateState],
        controller: Controller,
        label: str = "query",
        *,
        is_warm: bool = False,
        max_loss: float = 1.0,
    ) -> None:
        self.gates = tuple(gates)
        self.controller = controller
        self.label = label
        self.keep = 1.0
        """The keep in force."""
        self.reachable_s: float | None = None
        """The delay that the controller holds instead of its target, if that is out of reach."""
        self.ceiling = LossCeiling(max_loss)
        self._target_s = controller.delay_target_s
        self._new_target_s: float | None = None
        self._memory = JournalState()
        self._is_cold = not is_warm

    # -- events --------------------------------------------------------------------------------------------------------

    def restore(self, state: JournalState) -> list[Instruction]:
        """The query starts, or starts again: continue where its journal ends. The state must be the journal's own, and live."""
        self._memory = state
        for _, record in sorted(state.batches.items())[-_CLASS_BATCHES:]:
            self.ceiling.record_batch(record)
            for gate in self.gates:
                if counts := (record.classes or {}).get(gate.name):
                    gate.update(MeterReading(offered_by_class=tuple(offered for offered, _ in counts)))
        for decision in reversed(state.decisions):
            if decision.controller is not None:
                self.keep = decision.keep
                return self._restore_controller(decision.controller)
        return []

    @abstractmethod
    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:
        """A batch is about to run."""

    @abstractmethod
    def end_batch(self, event: BatchEnded) -> list[Instruction]:
        """A batch has run."""

    @abstractmethod
    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:
        """A decision of this core is durable."""

    def revoke(self) -> list[Append]:
        """A write failed: return what keeps the decision under way from coming true in the journals that have it."""
        return []  # by batch, nobody else has it

    def stand_in(self, decision: DecisionRecord) -> DecisionRecord | None:  # noqa: ARG002 - by the way of taking effect
        """Return what holds instead of a decision that could not be made durable; ``None`` if that needs no record."""
        return None

    def close_batch(self, batch_id: int) -> list[Instruction]:  # noqa: ARG002 - only a batch handed over leaves something
        """A batch is over, whether or not it could be counted."""
        return []

    def end(self, times: BatchTimes | None = None) -> list[Instruction]:  # noqa: ARG002 - by arrival they are known
        """The query has ended; ``times`` are those of its last batch, if the engine reported them."""
        return []

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on; the journal says with every batch which one was in force."""
        self._new_target_s = check_target(delay_target_s)  # applied by the thread that decides

    # -- what both ways share ------------------------------------------------------------------------------------------

    def record_batch(self, event: BatchEnded) -> BatchRecord:
        """Return the ledger's entry of a batch."""
        readings = event.readings
        for gate in self.gates:
            gate.update_event_time(event.event_times.get(gate.name))
        timed = [reading for reading in readings.values() if reading.mean_arrival_s is not None]
        kept = sum(reading.kept for reading in timed)
        arrival_sum_s = sum(reading.kept * (reading.mean_arrival_s or 0.0) for reading in timed)
        event_times = {gate.name: gate.event_time for gate in self.gates}
        classes = {
            name: _class_counts(reading, event.counts[name])
            for name, reading in readings.items()
            if reading.kept_by_class and (sum(reading.offered_by_class or ()) or not event.counts[name].offered)
        }
        times = event.times
        return BatchRecord(
            batch_id=event.batch_id,
            gates={name: (count.offered, count.kept) for name, count in event.counts.items()},
            keep=self.keep_of(event.counts),
            start_s=None if times is None else times.start_s,
            end_s=None if times is None else times.end_s,
            busy_s=None if times is None else times.busy_s,
            mean_arrival_s=arrival_sum_s / kept if kept else None,
            backlog_rows=sum(event.backlog_rows.values()) if event.backlog_rows else None,
            null_arrivals=sum(reading.null_arrivals for reading in readings.values()),
            older_than_ring=sum(reading.older_than_ring for reading in readings.values()),
            expired={name: _count_expired(reading, event.counts[name]) for name, reading in readings.items() if reading.expired}
            or None,
            expired_classes={
                name: _share_out(_count_expired(reading, event.counts[name]), reading.expired_by_class)
                for name, reading in readings.items()
                if reading.expired and reading.expired_by_class
            }
            or None,
            from_future=sum(reading.from_future for reading in readings.values()),
            delay_target_s=self._target_s,
            reachable_s=self.reachable_s,
            latest={name: time for name, time in event_times.items() if time is not None} or None,
            classes=classes or None,
            work_s=sum(work) if (work := [r.work_s for r in readings.values() if r.work_s is not None]) else None,
            outputs=event.outputs,
            recounted=event.is_recounted,
            estimated=event.is_estimated or None,
        )

    def keep_of(self, counts: Mapping[str, GateCount]) -> float:  # noqa: ARG002 - by arrival it depends on them
        """Return the keep probability that a batch had."""
        return self.keep

    def learn(self, event: BatchEnded) -> list[Instruction]:
        """Let the gates learn from a batch, and tell the user what its rows lacked."""
        warnings: list[Instruction] = []
        for gate in self.gates:
            reading = event.readings.get(gate.name)
            if reading is None:
                continue
            messages = [gate.update(reading)]
            if reading.null_arrivals:
                column = "" if gate.arrival_column is None else f" in column {gate.arrival_column!r}"
                messages.append(f"rows without an arrival time{column} {self.fate_without_arrival}")
            if reading.older_than_ring:
                messages.append("some rows arrived longer ago than decisions are kept for, and share the oldest one")
            if reading.from_future or (reading.mean_arrival_s or 0.0) > event.now_s + CLOCK_TOLERANCE_S:
                column = "" if gate.arrival_column is None else f" in column {gate.arrival_column!r}"
                messages.append(f"some arrival times{column} lie in the future: a clock is ahead; {self.fate_from_future}")
            warnings += [Warn(f"gate {gate.name!r}: {message}") for message in messages if message is not None]
        return warnings

    def observe(self, record: BatchRecord, times: BatchTimes, **more: Any) -> Observation:
        """Return what a controller sees of a batch."""
        is_cold = self._is_cold
        self._is_cold = is_cold and not any(kept for _, kept in record.gates.values())  # an empty batch warms nothing up
        return Observation(
            batch_id=record.batch_id,
            start_s=times.start_s,
            end_s=times.end_s,
            gates={name: GateCount(*count) for name, count in record.gates.items()},
            keep=record.keep if record.keep is not None else 1.0,
            busy_s=times.busy_s,
            mean_arrival_s=record.mean_arrival_s,
            work_s=record.work_s,
            expired=sum((record.expired or {}).values()),
            cold=is_cold,
            **more,
        )

    def decide(self, observation: Observation) -> tuple[Decision, list[Instruction]]:
        """Ask the controller; it has no opinion where it fails."""
        new_target_s, self._new_target_s = self._new_target_s, None
        try:
            if new_target_s is not None:
                self.controller.change_target(new_target_s)
            self._target_s = self.controller.delay_target_s
            decision = self.controller.update(observation) or Decision()  # one that returns nothing has no opinion
        except Exception as error:  # whatever a user's controller raises, the job goes on
            return Decision(), [self.warn_failure("decide", error)]
        self.reachable_s = decision.reachable_s
        return decision, [] if decision.note is None else [Warn(f"{self.label}: {decision.note}")]

    def record_decision(self, entries: Mapping[str, tuple[float, ...]], keep: float, **when: Any) -> list[Instruction]:
        """Return what makes a decision durable, with the controller's memory and, every so often, that of the gates."""
        instructions: list[Instruction] = []
        try:
            memory = self.controller.snapshot()
        except Exception as error:  # as above
            memory = None
            instructions.append(self.warn_failure("take a snapshot of the controller", error))
        windows = {}
        if (when.get("batch_id") or 0) % _SNAPSHOT_EVERY == 0:
            snapshots = {gate.name: gate.snapshot() for gate in self.gates}
            windows = {name: snapshot for name, snapshot in snapshots.items() if snapshot is not None}
        record = DecisionRecord(
            gates=entries, keep=keep, controller=memory, windows=windows or None, learnt=self._describe_learnt(), **when
        )
        return [*instructions, Append((record,))]

    def _describe_learnt(self) -> dict[str, float] | None:
        with contextlib.suppress(Exception):  # it is for people only, and a user's controller may do anything
            return self.controller.learnt() or None
        return None

    def warn_failure(self, what: str, error: Exception) -> Warn:
        """Return one line about something that failed."""
        return Warn(f"{self.label}: could not {what}: {type(error).__name__}: {error}".splitlines()[0], error)

    def _restore_controller(self, memory: Mapping[str, Any]) -> list[Instruction]:
        try:
            fresh = self.controller.snapshot()
        except Exception as error:  # as above
            return [self.warn_failure("restore the controller", error)]
        try:
            self.controller.restore(memory)
        except Exception as error:  # as above
            with contextlib.suppress(Exception):
                self.controller.restore(fresh)  # nothing is left half restored
            return [self.warn_failure("restore the controller", error)]
        return []


def prepend(record: BatchRecord, instructions: Sequence[Instruction]) -> list[Instruction]:
    """Put a batch's record into the query's own write among instructions, or into a new one: one file instead of two."""
    for index, instruction in enumerate(instructions):
        if isinstance(instruction, Append) and instruction.query is None:
            merged = replace(instruction, records=(record, *instruction.records))
            return [*instructions[:index], merged, *instructions[index + 1 :]]
    return [*instructions, Append((record,))]


def _class_counts(reading: MeterReading, counted: GateCount) -> list[tuple[int, int]]:
    """(offered, kept) of each class. Where a batch was evaluated twice the meters counted twice: then in proportion."""
    offered, kept = reading.offered_by_class or (), reading.kept_by_class or ()
    sizes = [round(count * _ratio(counted.offered, sum(offered))) for count in offered]
    passed = [round(count * _ratio(counted.kept, sum(kept))) for count in kept]
    return [(size, min(size, count)) for size, count in zip(sizes, passed, strict=True)]


def _count_expired(reading: MeterReading, counted: GateCount) -> int:
    """Rows shed for their age. Where a batch was evaluated twice the meters counted twice: then in proportion."""
    times = reading.kept / counted.kept if counted.kept and reading.kept > counted.kept else 1.0
    return min(round(reading.expired / times), counted.shed)


def _share_out(rows: int, by_class: Sequence[int]) -> list[int]:
    """Share rows out in the proportion of what the meters counted; the shares add up to them.

    >>> _share_out(5, (4, 0, 6)), _share_out(10, (4, 0, 6))
    ([2, 0, 3], [4, 0, 6])
    """
    total, shares = sum(by_class), []
    counted = given = 0
    for count in by_class:
        counted += count
        shares.append(round(rows * _ratio(counted, total)) - given)
        given += shares[-1]
    return shares


def _ratio(one: int, other: int) -> float:
    return one / other if other else 0.0
