"""From one way to the other: a query that ran by arrival continues by batch, or by batch continues by arrival.

A batch that the engine has planned and not committed is replayed, and must be judged as it was before. By batch, its decision is
in the journal under its number. By arrival, its rows were judged by the slots they arrived in, which a query by batch can still
look up, for that one batch. The other way round there is nothing to look up: slots say nothing about a batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from penstock.control.base import Controller, GateCount
from penstock.decision.by_batch import ByBatch
from penstock.decision.events import BatchPlanned
from penstock.decision.gate_state import GateState, SlotGate, WindowGate
from penstock.decision.instructions import Append, AppendLater, Instruction, Publish
from penstock.errors import PenstockError
from penstock.journal.records import DecisionRecord
from penstock.journal.state import JournalState

__all__ = [
    "ContinuedByBatch",
    "find_first_uncounted",
    "is_marked_by_arrival",
    "last_layout",
    "mark_by_arrival",
    "ran_by_batch",
    "refuse_changed_layout",
    "refuse_open_batch",
    "was_by_arrival",
]


def was_by_arrival(state: JournalState) -> bool:
    """Whether the last run of the query was set by arrival: each run by arrival leaves a decision without a batch."""
    return bool(state.decisions) and state.decisions[-1].batch_id is None


def mark_by_arrival(layout: str | None = None, first_batch: int | None = None) -> DecisionRecord:
    """Return the decision that a run by arrival begins with: it is about no gate, and tells the next run how this one was set.

    ``layout`` says how sources cut a batch into partitions, where ranks count; ``first_batch`` is the first one that it may run,
    where that is known.
    """
    return DecisionRecord({}, 1.0, from_slot=0, layout=layout, first_batch=first_batch)


def is_mark(decision: DecisionRecord) -> bool:
    """Whether a decision is what a run by arrival begins with."""
    return decision.batch_id is None and not decision.gates and not decision.is_shared


def is_marked_by_arrival(state: JournalState) -> bool:
    """Whether a journal says that a run by arrival has begun since the last decision by batch.

    What else such a run leaves, its slots, may be in the journal without the mark, if a crash came between the two.

    >>> by_batch, slot = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7), DecisionRecord({"in": (0.5,)}, 0.5, from_slot=9)
    >>> [is_marked_by_arrival(JournalState(decisions=[by_batch, *then])) for then in ([], [slot], [mark_by_arrival(), slot])]
    [False, False, True]
    """
    since = takewhile(lambda decision: decision.batch_id is None, reversed(state.decisions))
    return any(map(is_mark, since))


def find_first_uncounted(state: JournalState) -> int | None:
    """Return the first batch that a journal should have and has not counted; ``None`` if it knows of none.

    After the last one counted or, if a crash came before the first count, the first one that was decided or was to run.

    >>> find_first_uncounted(JournalState()) is None        # the query ran without a gate so far
    True
    >>> find_first_uncounted(JournalState(decisions=[DecisionRecord({}, 1.0, batch_id=1)]))
    1
    >>> find_first_uncounted(JournalState(decisions=[mark_by_arrival(first_batch=4)]))
    4
    """
    if state.batches:
        return max(state.batches) + 1
    known = [number for decision in state.decisions for number in (decision.batch_id, decision.first_batch) if number is not None]
    return min(known, default=None)


def last_layout(state: JournalState) -> str | None:
    """Return how sources cut batches into partitions in the last run in which that mattered; ``None`` if it never did."""
    return next((decision.layout for decision in reversed(state.decisions) if decision.layout is not None), None)


def refuse_changed_layout(state: JournalState, layout: str | None, batch_id: int | None, label: str) -> None:
    """Refuse to judge a batch by the ranks of its rows again where they would have others than before.

    >>> refuse_changed_layout(JournalState(decisions=[mark_by_arrival("")]), "minPartitions=4", 7, "hosts")
    Traceback (most recent call last):
    penstock.errors.PenstockError: batch 7 of query 'hosts' is not committed or counted yet, and with ...
    """
    decided = last_layout(state)
    if batch_id is None or decided is None or layout is None or decided == layout or not was_by_arrival(state):
        return
    now, before = (text or "no minPartitions" for text in (layout, decided))
    raise PenstockError(
        f"batch {batch_id} of query {label!r} is not committed or counted yet, and with {now} instead of {before} a bounded gate "
        "would drop other rows of it than before: run the query with the old value once more, with trigger(availableNow=True)"
    )


def ran_by_batch(state: JournalState, batch_id: int) -> bool:
    """Whether a batch was decided by batch, if it ran at all: with a decision of its own, or with the last one before it.

    >>> decided = DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7)
    >>> [ran_by_batch(JournalState(decisions=[decided]), batch_id) for batch_id in (6, 7, 8)]
    [False, True, True]
    >>> ran_by_batch(JournalState(decisions=[decided, mark_by_arrival(first_batch=9)]), 8)
    True
    >>> ran_by_batch(JournalState(decisions=[decided, mark_by_arrival(first_batch=8)]), 8)
    False
    """
    if state.decision_for(batch_id) is not None:
        return True
    for decision in reversed(state.decisions):
        if decision.batch_id is not None:
            return decision.batch_id < batch_id
        if is_mark(decision) and (decision.first_batch is None or decision.first_batch <= batch_id):
            return False  # a run by arrival began there
    return False


def refuse_open_batch(state: JournalState, open_batch: int | None, label: str) -> None:
    """Refuse to replay a batch by arrival that was decided by batch.

    >>> state = JournalState(decisions=[DecisionRecord({"in": (0.5,)}, 0.5, batch_id=7)])
    >>> refuse_open_batch(state, 7, "hosts")
    Traceback (most recent call last):
    penstock.errors.PenstockError: batch 7 of query 'hosts' was decided by batch and is not committed or counted yet, ...
    """
    if open_batch is not None and ran_by_batch(state, open_batch):
        raise PenstockError(
            f"batch {open_batch} of query {label!r} was decided by batch and is not committed or counted yet, and by arrival it "
            "would drop other rows than before: run the query by batch once more, with trigger(availableNow=True)"
        )


class ContinuedByBatch(ByBatch):
    """By batch, in a query that may have run by arrival before: a batch that was left open then is judged by its slots again.

    It knows which batch was left open, and judges one that has no decision by the last one. So a decision that says the same as
    the last durable one is not waited for.

    Parameters
    ----------
    gates, controller, label, is_warm, max_loss
        As in ``ByBatch``.
    slot_gates
        Those of the gates that may have been set by arrival.

    """

    def __init__(
        self,
        gates: Sequence[GateState],
        controller: Controller,
        label: str = "query",
        *,
        is_warm: bool = False,
        max_loss: float = 1.0,
        slot_gates: Sequence[SlotGate] = (),
    ) -> None:
        super().__init__(gates, controller, label, is_warm=is_warm, max_loss=max_loss)
        self._slot_gates = tuple(slot_gates)
        self._open_batch: int | None = None
        self._repeated_batch: int | None = None
        self._is_by_slots = False
        self._has_table: set[str] = set()  # gates that the last run by batch left a table for
        self._durable: DecisionRecord | None = None  # the last one that this run has made durable, or one that says the same

    def leave_open(self, batch_id: int | None) -> None:
        """Say which batch the engine has planned and not committed, before ``restore``; ``None`` if there is none."""
        self._open_batch = batch_id

    def restore(self, state: JournalState) -> list[Instruction]:
        """Continue where the journal ends; after a run by arrival its slots are in force until the query is about to start."""
        instructions = super().restore(state)
        self._has_table = {each.gate for each in instructions if isinstance(each, Publish) and not was_by_arrival(state)}
        decision = None if self._open_batch is None else state.decision_for(self._open_batch)
        if decision is not None:
            self._refuse_lost_ages(decision)
            self._open_batch = None  # it was decided by batch
        elif state.decisions and not was_by_arrival(state):
            # If it ran, then with the last table: its own decision said the same, or could not be written.
            self._repeated_batch = self._open_batch
        if not was_by_arrival(state):
            self._open_batch = None
            return instructions
        for gate in self._slot_gates:
            slots = [
                (d.from_slot, d.gates[gate.name]) for d in state.decisions if d.from_slot is not None and gate.name in d.gates
            ]
            try:
                instructions.append(Publish(gate.name, gate.restore_slots(slots)))
            except PenstockError as error:
                raise PenstockError(f"gate {gate.name!r}: {error}; use a new checkpoint, or the old weights") from None
        return instructions

    def _refuse_lost_ages(self, decision: DecisionRecord) -> None:
        """A batch that was decided by age can only be replayed where rows still say when they arrived."""
        for gate in self.gates:
            if gate.name in (decision.older or {}) and not gate.has_ages:
                raise PenstockError(
                    f"gate {gate.name!r} has no arrival= any more, but batch {decision.batch_id} of query {self.label!r} was "
                    "decided by the age of its rows and is not committed yet: give the gate its arrival column back"
                )

    def get_ready(self) -> list[Instruction]:
        """The query is about to start: unless a batch of the run by arrival is open, slots are no longer needed.

        The table of the last run by batch stays in force until the first decision is durable.
        """
        return [] if self._open_batch is not None else [each for each in self._leave_slots() if each.gate not in self._has_table]

    def _leave_slots(self) -> list[Publish]:
        """An engine plans a batch before it asks for its table, and the kind of table is part of the plan."""
        return [Publish(gate.name, (gate.everything(),)) for gate in self._slot_gates]

    def close_batch(self, batch_id: int) -> list[Instruction]:
        """The batch is counted, or can't be: after the one that was left open, slots are no longer needed."""
        if batch_id != self._open_batch:
            return []
        self._open_batch = None
        return [*self._leave_slots()]

    def plan_batch(self, event: BatchPlanned) -> list[Instruction]:
        """Return the table of the batch; of the batch that was left open, the slots."""
        self._is_by_slots = event.batch_id == self._open_batch
        if self._is_by_slots:
            return [Publish(gate.name, gate.tables()) for gate in self._slot_gates]
        # The engine may plan the next batch before it is heard that the open one has ended.
        left = [] if self._open_batch is None else self.close_batch(self._open_batch)
        if event.batch_id == self._repeated_batch:
            self._repeated_batch = None
            if repeated := self.repeat(event.batch_id):
                return [*left, *repeated]
        return [*left, *(self._postpone(instruction) for instruction in super().plan_batch(event))]

    def _postpone(self, instruction: Instruction) -> Instruction:
        """Don't wait for a decision that says what holds already."""
        if not isinstance(instruction, Append):
            return instruction
        decisions = [record for record in instruction.records if isinstance(record, DecisionRecord)]
        return AppendLater(instruction.records) if decisions and all(map(self._holds, decisions)) else instruction

    def _holds(self, decision: DecisionRecord) -> bool:
        """Whether a replay that does not find this decision would drop the same rows. Windows and ages pass by, so not there."""
        last = self._durable
        if last is None or decision.older or last.older or any(isinstance(gate, WindowGate) for gate in self.gates):
            return False
        return decision.gates == last.gates and decision.keep == last.keep

    def confirm(self, decision: DecisionRecord, now_s: float) -> list[Instruction]:
        """Put the decision in force."""
        self._durable = decision
        return super().confirm(decision, now_s)

    def stand_in(self, decision: DecisionRecord) -> DecisionRecord | None:
        """Return the last decision for the batch of another. If that could not be written, nobody knows what is durable."""
        self._durable = None
        return super().stand_in(decision)

    def keep_of(self, counts: Mapping[str, GateCount]) -> float:
        """Return the keep probability that a batch had; where slots decided, the share that was kept."""
        offered = sum(count.offered for count in counts.values())
        if not self._is_by_slots or not offered:
            return super().keep_of(counts)
        return sum(count.kept for count in counts.values()) / offered
