"""Why a batch was decided as it was, in sentences: from what the journal says, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.observe.wording import count, seconds, share

__all__ = ["Explanation", "explain_batch", "explain_shortly"]

_NEARLY_ALL = 1.0 - 1e-9
_FITS = 1.05
"""Batches that take so much longer than they may still fit: nothing is known to the percent."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What was known, what was decided, and what came of it: a few sentences each."""

    seen: tuple[str, ...]
    decided: tuple[str, ...]
    happened: tuple[str, ...]

    def __str__(self) -> str:
        parts = (("seen", self.seen), ("decided", self.decided), ("happened", self.happened))
        return "\n".join(f"{name + ':':10}{' '.join(lines)}" for name, lines in parts if lines)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a decision and of the batch that it was for."""

    decision: Mapping[str, Any]
    batch: Mapping[str, Any] | None
    before: Mapping[str, Any] | None

    @property
    def rows(self) -> int | None:
        """The rows that the decision was about."""
        if self.batch is not None:
            return sum(int(offered) for offered, _ in self.batch["gates"].values())
        return None if self.before is None else self.before.get("backlog_rows")

    @property
    def target_s(self) -> float | None:
        known = (record.get("delay_target_s") for record in (self.batch, self.before) if record is not None)
        return next((target for target in known if target is not None), None)

    @property
    def reachable_s(self) -> float | None:
        known = (record.get("reachable_s") for record in (self.batch, self.before) if record is not None)
        return next((reachable for reachable in known if reachable is not None), None)

    @property
    def learnt(self) -> Mapping[str, float]:
        return self.decision.get("learnt") or {}

    @property
    def keep(self) -> float:
        return float(self.decision["keep"])

    @property
    def is_shedding(self) -> bool:
        return self.keep < _NEARLY_ALL or self.has_line or any(k < _NEARLY_ALL for k in _list_entries(self.decision))

    @property
    def has_line(self) -> bool:
        """Whether old rows were treated in another way."""
        return bool(self.decision.get("older"))

    @property
    def needed_s(self) -> float | None:
        """The time that a batch with all of its rows would have taken."""
        cost_s, rows = self.learnt.get("cost_s"), self.rows
        return None if cost_s is None or rows is None else self.learnt.get("overhead_s", 0.0) + cost_s * rows


def explain_batch(
    decision: Mapping[str, Any], batch: Mapping[str, Any] | None = None, before: Mapping[str, Any] | None = None
) -> Explanation:
    """Return why a decision was made, and what came of it.

    Parameters
    ----------
    decision
        The decision, as the journal has it.
    batch
        The batch that it was for, if it has run.
    before
        The batch before that one, which the controller had seen.

    Examples
    --------
    >>> decision = {"batch_id": 17, "keep": 0.2, "gates": {"in": [0.2]}}
    >>> decision["learnt"] = {"cost_s": 0.0004, "overhead_s": 0.1, "batch_time_s": 1.0}
    >>> batch = {"batch_id": 17, "gates": {"in": [10_000, 2_010]}, "delay_target_s": 2.0}
    >>> print(explain_batch(decision, batch))
    seen:     10,000 rows waited. At 0.4 ms per row and 100 ms per batch, all of them would have taken 4.1 s.
    decided:  The target of 2 s leaves 1 s for a batch, enough for 2,250 rows. So it kept 20%.
    happened: 2,010 rows were kept and 7,990 shed.
    """
    facts = _Facts(decision, batch, before)
    return Explanation(_tell_seen(facts), _tell_decided(facts), () if batch is None else _tell_happened(batch))


def explain_shortly(
    decision: Mapping[str, Any],
    batch: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    decider: str = "the controller",
) -> str:
    """Return the reason in one line, for a list; ``decider`` is who asked, where the journal does not say why."""
    facts = _Facts(decision, batch, before)
    needed_s, limit_s, rows = facts.needed_s, facts.learnt.get("batch_time_s"), facts.rows
    if not facts.is_shedding:
        if needed_s is not None and limit_s is not None:
            if needed_s <= _FITS * limit_s:
                return f"{count(rows or 0)} rows fit: about {seconds(needed_s)} of {seconds(limit_s)}"
            return f"{count(rows or 0)} rows take about {seconds(needed_s)}, a batch has {seconds(limit_s)}; all were kept"
        is_unknown = limit_s is not None and bool(rows)
        return "what a row costs is not known yet, so all were kept" if is_unknown else "nothing to shed"
    if needed_s is not None and limit_s is not None and needed_s > limit_s:
        text = f"{count(rows or 0)} rows would take {seconds(needed_s)}, a batch has {seconds(limit_s)}"
    elif facts.has_line:
        text = "rows had waited so long that not all could be in time"
    elif limit_s is None:
        text = f"{decider} asks for it"
    else:
        text = "more had to be shed than the size of this batch alone asks for"
    expired = sum((batch.get("expired") or {}).values()) if batch is not None else 0
    return f"{text}; {count(expired)} rows had expired" if expired else text


def _tell_seen(facts: _Facts) -> tuple[str, ...]:
    lines = []
    rows, learnt = facts.rows, facts.learnt
    if rows is not None:
        lines.append(f"{count(rows)} rows waited.")
    if (slot := facts.decision.get("from_slot")) is not None:
        lines.append(f"The decision is for rows that arrive from slot {slot} on.")
    needed_s = facts.needed_s
    if needed_s is not None:
        overhead = f" and {seconds(learnt['overhead_s'])} per batch" if learnt.get("overhead_s") else ""
        lines.append(f"At {seconds(learnt['cost_s'])} per row{overhead}, all of them would have taken {seconds(needed_s)}.")
    elif rows and not learnt:
        lines.append("The journal does not say what a row cost.")
    elif rows:
        lines.append("Nothing was known yet of the cost of a row.")
    before = facts.before
    if before is not None and before.get("end_s") is not None and before.get("start_s") is not None:
        took_s = max(0.0, before["end_s"] - before["start_s"])
        kept = sum(int(kept) for _, kept in before["gates"].values())
        lines.append(f"The batch before had kept {count(kept)} rows and taken {seconds(took_s)}.")
    return tuple(lines)


def _tell_decided(facts: _Facts) -> tuple[str, ...]:
    lines = []
    target_s, limit_s, reachable_s = facts.target_s, facts.learnt.get("batch_time_s"), facts.reachable_s
    cost_s, overhead_s = facts.learnt.get("cost_s"), facts.learnt.get("overhead_s", 0.0)
    if reachable_s is not None and target_s is not None:
        lines.append(
            f"The target of {seconds(target_s)} can't be reached whatever is shed; {seconds(reachable_s)} is held instead."
        )
    if limit_s is not None and target_s is not None:
        fitting = f", enough for {count(max(0.0, (limit_s - overhead_s) / cost_s))} rows" if cost_s else ""
        lines.append(f"The target of {seconds(target_s)} leaves {seconds(limit_s)} for a batch{fitting}.")
    if not facts.is_shedding:
        lines.append("So it kept everything." if lines else "It kept everything.")
        return tuple(lines)
    start = "So it" if lines else "It"
    lines.append(_tell_line(facts, start) if facts.has_line else f"{start} kept {_tell_keep(facts)}.")
    return tuple(lines)


def _tell_line(facts: _Facts, start: str) -> str:
    """Say what became of old rows, and of the others."""
    older = next(iter(facts.decision["older"].values()))
    start_s = facts.batch.get("start_s") if facts.batch is not None else None
    age_s = None if start_s is None else start_s - int(older["line"]) / 1e6
    who = "Rows that had waited too long to be in time"
    if age_s is not None and math.isfinite(age_s) and age_s > 0.0:
        who = f"Rows that were older than {seconds(age_s)} when the batch began could not be in time any more: it"
    else:
        who += " went first: it"
    kept = max(older["entries"], default=0.0)
    some = f"kept {share(kept)} of those" if kept > 0.0 else "kept none of those"
    return f"{who} {some} and {_tell_keep(facts)} of all others." if start else ""


def _tell_keep(facts: _Facts) -> str:
    entries = {gate: values for gate, values in facts.decision["gates"].items() if values}
    if len(entries) == 1:
        (values,) = entries.values()
        if len(values) == 1:
            return share(values[0])
        if len(values) <= 8:
            return f"{share(facts.keep)} (by class: {', '.join(share(value) for value in values)})"
        return f"{share(facts.keep)} by what rows cost or by their class"
    if entries and all(len(values) == 1 for values in entries.values()) and len(entries) <= 8:
        return ", ".join(f"{share(values[0])} at {gate}" for gate, values in entries.items())
    return share(facts.keep)


def _tell_happened(batch: Mapping[str, Any]) -> tuple[str, ...]:
    offered = sum(int(offered) for offered, _ in batch["gates"].values())
    kept = sum(int(kept) for _, kept in batch["gates"].values())
    expired = sum((batch.get("expired") or {}).values())
    of_those = f", {count(expired)} of those because they had expired" if expired else ""
    lines = [f"{count(kept)} rows were kept and {count(offered - kept)} shed{of_those}."]
    start_s, end_s, arrival_s = batch.get("start_s"), batch.get("end_s"), batch.get("mean_arrival_s")
    if start_s is not None and end_s is not None:
        lines.append(f"The batch took {seconds(max(0.0, end_s - start_s))}.")
    if end_s is not None and arrival_s is not None and kept:
        delay_s, target_s = max(0.0, end_s - arrival_s), batch.get("delay_target_s")
        judged = ""
        if target_s is not None:
            judged = ", within the target" if delay_s <= target_s else f", {seconds(delay_s - target_s)} above the target"
        lines.append(f"Its rows came out {seconds(delay_s)} after they arrived on average{judged}.")
    if batch.get("recounted"):
        lines.append("It was counted again after a crash.")
    if batch.get("estimated"):
        lines.append("An executor was lost: counts by class and the mean arrival are estimates, rows offered and kept are exact.")
    return tuple(lines)


def _list_entries(decision: Mapping[str, Any]) -> list[float]:
    return [float(value) for values in decision["gates"].values() if len(values) <= 8 for value in values]
