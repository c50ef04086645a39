"""Decisions by batch: the table of a batch is journaled under its number and put in force before any of its work starts.

A replay of the batch finds its decision in the journal, so it drops the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from penstock.control.base import Controller, Decision, Observation
from penstock.decision.core import QueryCore, prepend
from penstock.decision.events import BatchEnded, BatchPlanned, BatchTimes
from penstock.decision.gate_state import GateState
from penstock.decision.instructions import Append, Instruction, Publish, Warn
from penstock.journal.records import BatchRecord, DecisionRecord
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
    ('in', [[1.0]])
    """

    how: ClassVar[str] = "by batch"

    def __init__(
        self, gates: Sequence[GateState], controller: Controller, label: str = "query", *, is_warm: bool = False
    ) -> None:
        super().__init__(gates, controller, label, is_warm=is_warm)
        self._last: BatchRecord | None = None
        self._keeps: dict[str, float] = {}  # of single gates, as the controller last said

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
            instructions += self._publish(decision)
        return instructions

    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:
        """Return the table of the batch: the journaled one on a replay, else what the controller says."""
        for gate in self.gates:
            gate.update_event_time(event.event_times.get(gate.name))
        journaled = self._memory.decision_for(event.batch_id)
        if journaled is not None:
            return [*self._publish(journaled), *self._warn_unfit(journaled)]
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
        )
        self._last = observed
        return prepend(observed, self._decide(event, observation))

    def _first_observation(self, event: BatchPlanned) -> Observation | None:
        """The first batch of a run: there is nothing to look back at, but its size may matter."""
        if event.rows is None:
            return None
        return Observation(
            event.batch_id - 1,
            event.now_s,
            event.now_s,
            keep=self.keep,
            backlog_rows=event.rows,
            upcoming_rows=sum(event.rows.values()),
            taken_s=event.now_s,
        )

    def _decide(self, event: BatchPlanned, observation: Observation | None) -> list[Instruction]:
        decision, instructions = (Decision(), []) if observation is None else self.decide(observation)
        if decision.keep is None and self._keeps:
            # No opinion: the keeps of the last decision, gate by gate, go on. Entries are computed anew, as classes come and go.
            decision = Decision(self.keep, gates=self._keeps)
        keep = self.keep if decision.keep is None else decision.keep
        self._keeps = dict(decision.gates)
        entries = {gate.name: gate.entries(decision.gates.get(gate.name, keep)) for gate in self.gates}
        return [*instructions, *self.record_decision(entries, keep, batch_id=event.batch_id)]

    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:  # noqa: ARG002 - a batch waits for its table
        """Put the decision in force."""
        return self._publish(decision)

    def _publish(self, decision: DecisionRecord) -> list[Instruction]:
        if self._fits(decision):
            self.keep = decision.keep
        return [
            Publish(gate.name, gate.put_in_force(entries))
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
        return [*warnings, Append((self._last,))]

    def end(self, times: BatchTimes | None = None) -> list[Instruction]:
        """Complete the record of the last batch, whose times no later batch will bring."""
        if times is None or self._last is None or self._last.end_s is not None:
            return []
        return [Append((replace(self._last, start_s=times.start_s, end_s=times.end_s, busy_s=times.busy_s),))]
