"""Decisions by batch: the table of a batch is journaled under its number and put in force before any of its work starts.

A replay of the batch finds its decision in the journal, so it drops the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from penstock.control.base import Controller, Decision, Observation
from penstock.decision.core import CLOCK_TOLERANCE_S, QueryCore, prepend
from penstock.decision.events import BatchEnded, BatchPlanned, BatchTimes
from penstock.decision.gate_state import GateState
from penstock.decision.instructions import Append, AppendLater, Instruction, Publish, Warn
from penstock.drop.tables import NEVER, to_micros
from penstock.journal.records import BatchRecord, DecisionRecord, OlderRows
from penstock.journal.state import JournalState

__all__ = ["ByBatch"]

_AT_ONCE_S = 0.2


class ByBatch(QueryCore):
    """Decides when a batch is about to run and its size is known.

    >>> from penstock.control import KeepAll
    >>> from penstock.decision import SlotGate
    >>> from penstock.drop.shares import EqualShare
    >>> core = ByBatch([SlotGate("in", EqualShare())], KeepAll(2.0))
    >>> (append,) = core.plan_batch(BatchPlanned(0, now_s=10.0, rows={"source": 500}))
    >>> (publish,) = core.confirm(append.records[0], now_s=10.1)      # once that is durable
    >>> publish.gate, publish.tables[0].keeps.tolist()
    ('in', [[1.0], [1.0]])
    """

    how: ClassVar[str] = "by batch"
    fate_without_arrival: ClassVar[str] = "count as new"
    fate_from_future: ClassVar[str] = "their age counts as zero"

    def __init__(
        self,
        gates: Sequence[GateState],
        controller: Controller,
        label: str = "query",
        *,
        is_warm: bool = False,
        max_loss: float = 1.0,
    ) -> None:
        super().__init__(gates, controller, label, is_warm=is_warm, max_loss=max_loss)
        self._last: BatchRecord | None = None
        self._expired_arrival_s: float | None = None
        self._keeps: dict[str, float] = {}  # of single gates, as the controller last said
        self._in_force: DecisionRecord | None = None

    def leave_open(self, batch_id: int | None) -> None:
        """Say which batch the engine has planned and not committed, before ``restore``; ``None`` if there is none."""

    def restore(self, state: JournalState) -> list[Instruction]:
        """Continue where the journal ends: windows keep their fates, and the last table is in force again."""
        instructions = super().restore(state)
        for gate in self.gates:
            for decision in state.decisions:
                gate.recall(decision)
            for record in state.batches.values():
                gate.update_event_time((record.latest or {}).get(gate.name))
        for decision in state.decisions[-1:]:
            if not self._fits(decision):
                self.keep = 1.0  # its table can't be put in force: the gates are open
            instructions += self._publish(decision, None)
        return instructions

    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:
        """Return the table of the batch: the journaled one on a replay, else what the controller says."""
        for gate in self.gates:
            gate.update_time(event.now_s)
            gate.update_event_time(event.event_times.get(gate.name))
        journaled = self._memory.decision_for(event.batch_id)
        if journaled is not None:
            return [*self._publish(journaled, event.now_s), *self._warn_unfit(journaled)]
        last = self._last
        if last is None or event.previous is None or last.batch_id != event.batch_id - 1:
            return self._decide(event, self._first_observation(event))
        times = event.previous
        rows = None if event.rows is None else sum(event.rows.values())
        observed = replace(last, start_s=times.start_s, end_s=times.end_s, busy_s=times.busy_s, backlog_rows=rows)
        # An engine starts a batch at once if there are rows. If it did not, they came later, unless it waits for its trigger.
        at_once = event.is_paced or event.now_s - times.end_s < _AT_ONCE_S
        waited_s = max(0.0, event.now_s - times.start_s) if at_once else 0.0
        observation = self.observe(
            observed,
            times,
            backlog_rows=event.rows or event.backlog_rows,
            upcoming_rows=rows,
            waited_s=waited_s,
            taken_s=event.now_s,
            has_ages=self._has_ages,
            mean_expired_arrival_s=self._expired_arrival_s,
            left_rows=sum(event.left_rows.values()) if event.left_rows else None,
        )
        self._last = observed
        self.ceiling.record_batch(observed)
        return prepend(observed, self._decide(event, observation))

    def _first_observation(self, event: BatchPlanned) -> Observation | None:
        """The first batch of a run: there is nothing to look back at, but its size and the time since the last run matter."""
        if event.rows is None and not self._has_ages:
            return None
        starts = [record.start_s for record in self._memory.batches.values() if record.start_s is not None]
        return Observation(
            event.batch_id - 1,
            event.now_s,
            event.now_s,
            keep=self.keep,
            backlog_rows=event.rows or {},
            upcoming_rows=None if event.rows is None else sum(event.rows.values()),
            waited_s=max(0.0, event.now_s - max(starts)) if starts else None,
            taken_s=event.now_s,
            has_ages=self._has_ages,
            upcoming_cold=self._is_cold,
        )

    @property
    def _has_ages(self) -> bool:
        return any(gate.has_ages for gate in self.gates)

    def _decide(self, event: BatchPlanned, observation: Observation | None) -> list[Instruction]:
        decision, instructions = (Decision(), []) if observation is None else self.decide(observation)
        if decision.keep is None and self._keeps:
            # No opinion: the keeps of the last decision, gate by gate, go on. Entries are computed anew, as classes come and go.
            decision = Decision(self.keep, gates=self._keeps)
        keep = self.keep if decision.keep is None else decision.keep
        rows = None if event.rows is None else sum(event.rows.values())
        decision, warnings = self.ceiling.hold(replace(decision, keep=keep), event.now_s, rows, self.label)
        keep = keep if decision.keep is None else decision.keep
        self._keeps = dict(decision.gates)
        entries, older = {}, {}
        for gate in self.gates:
            rule = decision.age if gate.has_ages and gate.name not in decision.gates else None
            share = decision.gates.get(gate.name, keep) if rule is None else rule.fresh
            entries[gate.name] = gate.entries(share)
            if rule is not None:
                nothing = (0.0,) * len(entries[gate.name])
                older[gate.name] = OlderRows(to_micros(rule.after_s), gate.entries(rule.older) if rule.older else nothing)
        ratios = dict(event.rows_per_byte) or None
        recorded = self.record_decision(entries, keep, batch_id=event.batch_id, older=older or None, rows_per_byte=ratios)
        return [*instructions, *warnings, *recorded]

    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:
        """Put the decision in force."""
        return self._publish(decision, now_s)

    def stand_in(self, decision: DecisionRecord) -> DecisionRecord | None:
        """Return the decision in force, which stays so, for the batch of one that could not be made durable."""
        last = self._in_force
        if last is None or last.batch_id is None or decision.batch_id is None or not self._fits(last):
            return None
        return _for_batch(last, decision.batch_id)

    def repeat(self, batch_id: int) -> list[Instruction]:
        """Return the last decision for a later batch that has none of its own: it was in force when the batch ran, if it did.

        It is durable, so that a replay depends on no write.
        """
        last = self._in_force
        if last is None or last.batch_id is None or last.batch_id >= batch_id:
            return []
        repeated = _for_batch(last, batch_id)
        return [AppendLater((repeated,)), *self._warn_unfit(repeated)]

    def _publish(self, decision: DecisionRecord, now_s: float | None) -> list[Instruction]:
        self._in_force = decision
        if self._fits(decision):
            self.keep = decision.keep
        latest = NEVER if now_s is None else to_micros(now_s + CLOCK_TOLERANCE_S)
        older = decision.older or {}
        return [
            Publish(gate.name, gate.put_in_force(entries, older.get(gate.name), latest))
            for gate in self.gates
            if (entries := decision.gates.get(gate.name)) is not None and gate.fits(entries)
        ]

    def _fits(self, decision: DecisionRecord) -> bool:
        return all(gate.fits(decision.gates.get(gate.name, ())) for gate in self.gates)

    def _warn_unfit(self, decision: DecisionRecord) -> list[Instruction]:
        """A batch is replayed whose gate had other classes: it can't drop the same rows again."""
        unfit = [gate.name for gate in self.gates if not gate.fits(decision.gates.get(gate.name, ()))]
        return [
            Warn(
                f"gate {name!r}: the journal has a decision for batch {decision.batch_id} that does not fit the gate's classes, "
                "so the batch is replayed with another table; use a new checkpoint, or the old weights"
            )
            for name in unfit
        ]

    def end_batch(self, event: BatchEnded) -> list[Instruction]:
        """Return the batch's record, to be journaled before the engine commits the batch."""
        warnings = self.learn(event)
        self._last = self.record_batch(event)
        decided = self._memory.decision_for(event.batch_id)
        if decided is not None and self._fits(decided):  # the next batch may have been decided about already
            self._last = replace(self._last, keep=decided.keep)
        expired = [(reading.expired, reading.mean_expired_arrival_s) for reading in event.readings.values()]
        known = [(count, mean_s) for count, mean_s in expired if count and mean_s is not None]
        total = sum(count for count, _ in known)
        self._expired_arrival_s = sum(count * mean_s for count, mean_s in known) / total if total else None
        return [*warnings, Append((self._last,))]

    def end(self, times: BatchTimes | None = None) -> list[Instruction]:
        """Complete the record of the last batch, whose times no later batch will bring."""
        if times is None or self._last is None or self._last.end_s is not None:
            return []
        return [Append((replace(self._last, start_s=times.start_s, end_s=times.end_s, busy_s=times.busy_s),))]


def _for_batch(decision: DecisionRecord, batch_id: int) -> DecisionRecord:
    """Return a decision once more, for another batch."""
    return replace(decision, batch_id=batch_id, controller=None, windows=None)
