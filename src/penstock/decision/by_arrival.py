"""Decisions by arrival: one holds for the rows that arrive from a moment on, whatever batch they come in.

What stands in a slot of arrival time never changes once the slot has begun. So the fate of a row depends on the row and the
journal alone, however the engine batches, retries or replays it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from penstock.control.base import Controller, Decision, GateCount
from penstock.decision.core import QueryCore, prepend
from penstock.decision.events import BatchEnded, BatchPlanned, BatchTimes
from penstock.decision.gate_state import SlotGate
from penstock.decision.instructions import Append, Instruction, Publish, Warn
from penstock.drop.tables import slot_of, slot_start_s
from penstock.errors import PenstockError
from penstock.journal.records import DecisionRecord
from penstock.journal.state import JournalState

__all__ = ["ByArrival", "MARGIN_S"]

MARGIN_S = 0.25
"""A decision takes effect this long after it is made: time to make it durable, and a margin for clocks that disagree."""
_LONG_S = 5.0
_MOST_MARGIN_S = 5.0
_SLACK, _DECAY = 1.5, 0.98
"""The margin is this many times what the slowest of the last writes took."""
MARK_OF_SHARING = DecisionRecord({}, 1.0, from_slot=0, is_shared=True)
"""Says in a journal that other queries read gates of this one too. It is about no gate."""


# long because a decision is made, shared, confirmed, taken back and relieved here
class ByArrival(QueryCore):
    """Decides when a batch has ended, for the rows that arrive a little later.

    >>> from penstock.control import KeepAll
    >>> from penstock.decision.events import BatchTimes
    >>> from penstock.drop.shares import EqualShare
    >>> core = ByArrival([SlotGate("in", EqualShare())], KeepAll(2.0))
    >>> ended = BatchEnded(0, 11.0, {"in": GateCount(500, 500)}, times=BatchTimes(10.0, 11.0), backlog_rows={"source": 20})
    >>> (append,) = core.end_batch(ended)                   # everything is kept as before: no decision, only the record
    >>> append.records[0].backlog_rows
    20
    """

    how: ClassVar[str] = "by arrival"
    fate_without_arrival: ClassVar[str] = "are always kept"
    fate_from_future: ClassVar[str] = "the latest decision holds for them, which may be another when a batch is replayed"

    def __init__(
        self,
        gates: Sequence[SlotGate],
        controller: Controller,
        label: str = "query",
        *,
        is_warm: bool = False,
        max_loss: float = 1.0,
        margin_s: float = MARGIN_S,
    ) -> None:
        super().__init__(gates, controller, label, is_warm=is_warm, max_loss=max_loss)
        self._gates = tuple(gates)
        self._least_margin_s = self._margin_s = margin_s
        self._pending: DecisionRecord | None = None  # made, and not yet durable
        self._made_s: float | None = None  # when it was made; None before the query starts, when no slot is too early
        self._has_warned_of_clock = False
        self._unrelieved = 1.0  # what the controller wanted last
        self._void: DecisionRecord | None = None  # takes back a decision that is durable but never held; not yet durable
        self._planned_s: float | None = None
        self._has_open_batch = False

    def note_last_plan(self, planned_s: float | None, *, has_open_batch: bool = False) -> None:
        """Say when the engine has planned a batch last, before ``restore``; ``None`` if it never did, or nobody knows.

        An open batch is one that will run again, or be counted again.
        """
        self._planned_s, self._has_open_batch = planned_s, has_open_batch

    def restore(self, state: JournalState) -> list[Instruction]:
        """Continue where the journal ends: every slot gets back what was decided for it.

        What other queries have decided on shared gates before this one joined is missing in its journal, and goes there now.
        """
        instructions = super().restore(state)
        decided = [decision for decision in state.decisions if decision.from_slot is not None]
        missing: dict[int, dict[str, tuple[float, ...]]] = {}
        for gate in self._gates:
            known = {int(d.from_slot or 0): d.gates[gate.name] for d in decided if gate.name in d.gates}
            for slot, entries in gate.ring.changes:
                if known.get(slot) != entries:
                    missing.setdefault(slot, {})[gate.name] = entries
            try:
                known |= dict(gate.ring.changes)  # what this process has taken back, this journal may still have
                tables = gate.restore_slots(list(known.items()))
            except PenstockError as error:
                raise PenstockError(f"gate {gate.name!r}: {error}; use a new checkpoint, or the old weights") from None
            instructions.append(Publish(gate.name, tables))
        self._unrelieved = self.keep
        for gate in self._gates:
            gate.wishes[self] = self.keep
        instructions += self._bound_start(has_decided=bool(decided))
        joined = [DecisionRecord(gates, self.keep, from_slot=slot) for slot, gates in sorted(missing.items())]
        siblings = self._siblings()
        if siblings or joined:
            joined.append(MARK_OF_SHARING)
        waiting = self._keep_what_waits(is_shared=bool(joined) or state.has_shared_gates())
        told = [Append((MARK_OF_SHARING,), query=core.label) for core in siblings]
        return [*([Append(tuple(joined))] if joined else []), *instructions, *waiting, *told]

    def _keep_what_waits(self, *, is_shared: bool) -> list[Instruction]:
        """A run that sheds nothing keeps what came since an earlier one that did: no batch had these rows, so no replay will.

        What batches of other queries have had is not known, so gates that they read too, or did once, are left as they are.
        """
        entries = {gate.name: gate.entries(1.0) for gate in self._gates}
        if self.controller.sheds or all(gate.ring.current == entries[gate.name] for gate in self._gates):
            return []
        from_slot = None if self._planned_s is None or is_shared else self._next_slot(self._planned_s)
        if from_slot is not None and self._has_open_batch and any(gate.ring.forgets(from_slot) for gate in self._gates):
            from_slot = None  # it may have rows that are older than the table, and what they have would change
        if from_slot is None:
            keep = min(min(gate.ring.current[: gate.shares.count]) for gate in self._gates)
            share = f"{keep:.3g}" if keep < 1.0 else "all up to a bound"
            return [
                Warn(
                    f"{self.label}: this run sheds nothing, but the last decision of an earlier one, to keep {share}, "
                    "holds for the rows that arrived since"
                )
            ]
        for gate in self._gates:
            gate.wishes[self] = 1.0
        self._unrelieved = 1.0
        return self._propose(entries, 1.0, from_slot, made_s=None)

    def _next_slot(self, time_s: float) -> int:
        """Return the first slot that a decision made at some time can hold for."""
        decided = [slot + 1 for gate in self._gates for slot, _ in gate.ring.changes[-1:]]
        return max([slot_of(time_s + self._margin_s) + 1, 0, *decided])

    def _propose(
        self, entries: Mapping[str, tuple[float, ...]], keep: float, from_slot: int, made_s: float | None
    ) -> list[Instruction]:
        """Return what makes a decision durable; ``confirm`` puts it in force."""
        instructions = self.record_decision(entries, keep, from_slot=from_slot)
        records = [record for one in instructions if isinstance(one, Append) for record in one.records]
        (self._pending,) = (record for record in records if isinstance(record, DecisionRecord))
        self._made_s = made_s
        return instructions

    def _bound_start(self, *, has_decided: bool) -> list[Instruction]:
        """Before the first decision nothing is known, and rows may have waited for hours: bound what a batch keeps of them."""
        if has_decided or self.ceiling.is_set or self._memory.batches or any(gate.ring.changes for gate in self._gates):
            return []
        try:
            decision = self.controller.start()
        except Exception as error:  # whatever a user's controller raises, the job goes on
            return [self.warn_failure("start the controller", error)]
        if decision.full_rows is None or not any(gate.is_bounded for gate in self._gates):
            return []
        entries = {gate.name: gate.first_entries(decision.full_rows) for gate in self._gates}
        self._pending, self._made_s = DecisionRecord(entries, self.keep, from_slot=0), None
        return [Append((self._pending,))]

    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:  # noqa: ARG002 - rows were decided when they arrived
        """Nothing to do."""
        return []

    def end_batch(self, event: BatchEnded) -> list[Instruction]:
        """Record the batch and decide for the slots to come."""
        warnings = self.learn(event)
        for gate in self._gates:
            if gate.name in event.tasks:
                gate.update_tasks(event.tasks[gate.name])
        record = self.record_batch(event)
        if self._void is not None:
            warnings.append(Append((self._void,)))
        if event.times is None:  # its report never came: it can be counted, but not judged
            return [*warnings, Append((record,))]
        has_bound = all(gate.is_bounded for gate in self._gates)
        seen = self.observe(record, event.times, backlog_rows=event.backlog_rows or {}, has_bound=has_bound)
        decision, more = self.decide(seen)
        instructions: list[Instruction] = [*warnings, *more]
        self.ceiling.record_batch(record)
        if decision.keep is None:
            return [*instructions, Append((record,))]
        rows = sum(count.offered for count in event.counts.values())
        decision, raised = self.ceiling.hold(decision, event.now_s, rows, self.label)
        instructions += raised
        self._unrelieved = self._unrelieved if decision.keep is None else decision.keep
        decided = self._decide(decision, self._unrelieved, event.now_s)
        if self._siblings():
            return [*instructions, Append((record,)), *decided]  # whatever happens to their journals, the batch is counted
        return [*instructions, *prepend(record, decided)]

    def relieve(self, now_s: float, running_s: float) -> list[Instruction]:
        """A batch runs for longer than the target, and rows gather meanwhile: keep fewer and fewer of those to come.

        With a share of (T / t)^2 after t seconds, what gathers is at most what comes in twice the target T, however long the
        batch takes. The controller decides anew when it has ended. Only for engines where nothing bounds a batch.
        """
        target_s = self.controller.delay_target_s
        if running_s <= target_s or self._pending is not None or not self.controller.sheds:
            return []
        share = 2.0 ** math.floor(2.0 * math.log2(target_s / running_s))  # in halves, so that few decisions are journaled
        share = max(share, 1.0 - self.ceiling.max_loss)
        keep = min(self.keep, self._unrelieved * share)
        return self._decide(Decision(keep), keep, now_s) if keep < self.keep else []

    def _decide(self, decision: Decision, keep: float, now_s: float) -> list[Instruction]:
        """Return the decision for slots to come; nothing if it changes nothing."""
        for gate in self._gates:
            gate.wishes[self] = decision.gates.get(gate.name, keep)
        entries = {gate.name: gate.entries(min(list(gate.wishes.values())), decision.full_rows) for gate in self._gates}
        if all(entries[gate.name] == gate.ring.current for gate in self._gates):
            self.keep = keep
            return []
        from_slot = self._next_slot(now_s)
        instructions = [*self._warn_of_clock(from_slot, now_s), *self._propose(entries, keep, from_slot, made_s=now_s)]
        assert self._pending is not None  # noqa: S101 - it was proposed just now
        # The others first: this query's own record is what confirms the decision.
        return [*self._share(self._pending), *instructions]

    def _warn_of_clock(self, from_slot: int, now_s: float) -> list[Instruction]:
        """Slots that have begun never change, so after a clock was set back its old decisions hold once more."""
        ahead_s = slot_start_s(from_slot) - now_s
        if ahead_s <= _LONG_S:
            self._has_warned_of_clock = False
        elif not self._has_warned_of_clock:
            self._has_warned_of_clock = True
            message = (
                f"{self.label}: the clock is {ahead_s:,.0f} s behind the last decision, so what was decided for that time holds "
                "once more; by batch, a query decides anew at once"
            )
            return [Warn(message)]
        return []

    def _siblings(self) -> list[QueryCore]:
        """The other queries that read one of its gates."""
        return list({core: None for gate in self._gates for core in list(gate.wishes) if core is not self})

    def _share(self, decision: DecisionRecord) -> list[Append]:
        """Return the parts of a decision that the journals of other queries need."""
        shared = []
        for core in self._siblings():
            part = {gate.name: decision.gates[gate.name] for gate in self._gates if core in gate.wishes}
            shared.append(Append((replace(decision, gates=part, controller=None),), query=core.label))
        return shared

    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:
        """Put the decision in force, or take it back if its first slot has begun."""
        if decision is self._void:
            self._void = None
        slot = decision.from_slot
        if slot is None or decision is not self._pending:
            return []
        self._pending = None
        if self._made_s is not None:
            margin_s = self._margin_s
            self._adapt_margin(now_s - self._made_s)
            if now_s >= slot_start_s(slot):
                # A stall as long as the margin: rows of that slot may have been judged by the old table.
                message = f"{self.label}: a decision took longer than {margin_s:g} s to journal and was dropped"
                self._void = self._voided(decision)
                return [*self._share(self._void), Append((self._void,)), Warn(message)]
        self.keep = decision.keep
        return [Publish(gate.name, gate.put_in_force_from(slot, decision.gates[gate.name])) for gate in self._gates]

    def _adapt_margin(self, took_s: float) -> None:
        """Where the journal is far away a write may take longer than the margin, each time: then decisions begin later."""
        wanted_s = max(self._least_margin_s, self._margin_s * _DECAY, _SLACK * took_s)
        self._margin_s = max(self._least_margin_s, min(wanted_s, _MOST_MARGIN_S))

    def revoke(self) -> list[Append]:
        """The write that would have confirmed a decision failed: take it back from the queries that have it."""
        decision, self._pending = self._pending, None
        return [] if decision is None else self._share(self._voided(decision))

    def stand_in(self, decision: DecisionRecord) -> DecisionRecord | None:
        """Return a record that takes the decision back, should it have arrived all the same."""
        return None if decision.from_slot is None else self._voided(decision)

    def _voided(self, decision: DecisionRecord) -> DecisionRecord:
        """Return a record that lets what is in force hold instead: of two decisions for one slot, the later stands."""
        return replace(decision, gates={gate.name: gate.ring.current for gate in self._gates}, keep=self.keep)

    def keep_of(self, counts: Mapping[str, GateCount]) -> float:
        """Return the share that was kept: a batch may hold rows of several decisions."""
        offered = sum(count.offered for count in counts.values())
        return sum(count.kept for count in counts.values()) / offered if offered else self.keep

    def end(self, times: BatchTimes | None = None) -> list[Instruction]:  # noqa: ARG002 - each batch came with its times
        """Stop counting among the queries that share its gates."""
        for gate in self._gates:
            gate.wishes.pop(self, None)
        return []
