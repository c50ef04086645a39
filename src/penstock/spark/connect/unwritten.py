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

    A decision stays if a batch was counted that ended after it began: its client lived on, and had written the table by then.

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
    last = decided[max(written)] if written else None
    held, keep = (ring.start, 1.0) if last is None else (last.gates[gate], last.keep)
    ended_s = max((record.end_s for record in state.batches.values() if record.end_s is not None), default=0.0)
    here = dict(ring.changes)
    after = max(reached, min(here, default=reached))
    return [
        replace(decision, gates={gate: held}, keep=keep)
        for slot, decision in sorted(decided.items())
        if slot > after and slot not in here and slot_start_s(slot) > ended_s and decision.gates[gate] != held
    ]
