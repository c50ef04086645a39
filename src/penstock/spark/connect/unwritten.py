"""Decisions that a client journaled before it was killed, and whose table it never wrote: Spark may have gone on without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.drop.tables import ALWAYS, SlotRing, slot_start_s
from penstock.journal.records import DecisionRecord
from penstock.journal.state import JournalState

__all__ = ["find_unwritten"]


def find_unwritten(state: JournalState, gate: str, ring: SlotRing, reached: int | None) -> Sequence[DecisionRecord]:
    """Return what takes back the decisions about a gate that never held: of two for one slot, the later stands.

    Nothing is taken back that a batch may have seen: one that ended after the decision began was counted by a client that lived.

    Parameters
    ----------
    state
        The journal.
    gate
        The gate's name.
    ring
        What this process has decided; it has a table for that.
    reached
        The last slot decided in the table that an earlier process left, ``ALWAYS`` if none was; ``None`` if there was no table.
    """
    decided = {d.from_slot: d for d in state.decisions if d.from_slot is not None and gate in d.gates}
    written = [slot for slot in decided if reached is not None and slot <= reached]
    if reached is None or (not written and reached != ALWAYS):
        return ()
    held, keep = (decided[max(written)].gates[gate], decided[max(written)].keep) if written else (ring.start, 1.0)
    ended_s = max((record.end_s for record in state.batches.values() if record.end_s is not None), default=0.0)
    first_here = ring.changes[0][0] if ring.changes else None
    return [
        replace(decision, gates={gate: held}, keep=keep)
        for slot, decision in sorted(decided.items())
        if slot > reached
        and decision.gates[gate] != held
        and slot_start_s(slot) > ended_s
        and (first_here is None or slot > first_here)
        and slot not in dict(ring.changes)
    ]
