"""The content of a journal in memory: what a restart, a report and a viewer need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.journal.history import History, summarise_batch
from penstock.journal.records import (
    BatchRecord,
    DecisionRecord,
    OutputRecord,
    Record,
    add_class_counts,
    add_rows,
    decode,
    decode_counts,
    encode,
)

__all__ = ["DECISIONS_RETAINED", "JournalState", "OutputTotal"]

DECISIONS_RETAINED = 8192
"""How many decisions compaction keeps: those of the last batches or, by arrival, one for each slot of a gate's ring."""
_ERRORS_RETAINED = 20


@dataclass(frozen=True, slots=True)
class OutputTotal:
    """What was written to one output of a network, over all batches."""

    rows: int = 0
    delay_rows: int = 0
    """Rows whose delay is known."""
    delay_sum_s: float = 0.0
    worst_delay_s: float = 0.0

    def add(self, output: OutputRecord) -> OutputTotal:
        """Return the total with one more batch."""
        rows = output.rows or 0
        if not rows or output.mean_delay_s is None:
            return replace(self, rows=self.rows + rows)
        return OutputTotal(
            self.rows + rows,
            self.delay_rows + rows,
            self.delay_sum_s + rows * output.mean_delay_s,
            max(self.worst_delay_s, output.worst_delay_s or 0.0),
        )


@dataclass(slots=True)
class JournalState:
    """The records of a journal, with the oldest ones folded into totals."""

    owner: Mapping[str, Any] = field(default_factory=dict)
    decisions: list[DecisionRecord] = field(default_factory=list)
    batches: dict[int, BatchRecord] = field(default_factory=dict)
    folded_gates: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(offered, kept) per gate, over the batches that were compacted."""
    folded_expired: dict[str, int] = field(default_factory=dict)
    """How many of the rows shed had expired, per gate, over the same batches."""
    folded_expired_classes: dict[str, list[int]] = field(default_factory=dict)
    """The same per class of each gate that has some."""
    folded_classes: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """(offered, kept) per class of each gate."""
    folded_outputs: dict[str, OutputTotal] = field(default_factory=dict)
    """What the same batches wrote to each output."""
    compacted_batches: int = 0
    history: History = field(default_factory=History)
    """When the same batches ran and what they did, in buckets of time."""
    errors: list[str] = field(default_factory=list)
    """What went wrong in the job, latest last."""
    damage: list[str] = field(default_factory=list)
    """Files that could not be read, one line each."""
    next_number: int = 0

    def copy(self) -> JournalState:
        """Return a copy that later records do not change."""
        return replace(
            self,
            decisions=list(self.decisions),
            batches=dict(self.batches),
            folded_gates=dict(self.folded_gates),
            folded_expired=dict(self.folded_expired),
            folded_expired_classes=dict(self.folded_expired_classes),
            folded_classes=dict(self.folded_classes),
            folded_outputs=dict(self.folded_outputs),
            history=self.history.copy(),
            errors=list(self.errors),
        )

    # -- answers -------------------------------------------------------------------------------------------------------

    def decision_for(self, batch_id: int) -> DecisionRecord | None:
        """Return the decision for a batch; the later one if there are two."""
        for decision in reversed(self.decisions):
            if decision.batch_id == batch_id:
                return decision
            if decision.batch_id is not None and decision.batch_id < batch_id:
                break
        return None

    def decisions_after(self, batch_id: int) -> list[DecisionRecord]:
        """Return the decisions for later batches, in the order of these; the later one if there are two for a batch."""
        later = {each.batch_id: each for each in self.decisions if each.batch_id is not None and each.batch_id > batch_id}
        return [later[number] for number in sorted(later)]

    def totals(self) -> dict[str, tuple[int, int]]:
        """Return (offered, kept) per gate since the journal began."""
        totals = dict(self.folded_gates)
        for record in self.batches.values():
            _add_gates(totals, record)
        return totals

    def expired_totals(self) -> dict[str, int]:
        """Return how many of the rows shed had expired, per gate, since the journal began."""
        totals = dict(self.folded_expired)
        for record in self.batches.values():
            _add_expired(totals, record)
        return totals

    def class_totals(self, gate: str) -> list[tuple[int, int]]:
        """Return (offered, kept) per class of a gate since the journal began."""
        totals: Sequence[tuple[int, int]] = self.folded_classes.get(gate, ())
        for _, record in sorted(self.batches.items()):
            totals = add_class_counts(totals, (record.classes or {}).get(gate, ()))
        return list(totals)

    def output_totals(self) -> dict[str, OutputTotal]:
        """Return what was written to each output since the journal began."""
        totals = dict(self.folded_outputs)
        for record in self.batches.values():
            _add_outputs(totals, record)
        return totals

    # -- changes -------------------------------------------------------------------------------------------------------

    def add(self, record: Record) -> None:
        """Add one record."""
        if isinstance(record, DecisionRecord):
            # What was not synced is written again with what is: files may have a decision twice.
            if record.batch_id is None or self.decision_for(record.batch_id) != record:
                self.decisions.append(record)
        elif isinstance(record, BatchRecord):
            self.batches[record.batch_id] = record
        else:
            self.errors = [*self.errors, record][-_ERRORS_RETAINED:]

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Add one line of a file: a record, or the totals of earlier ones."""
        if line["kind"] != "totals":
            self.add(decode(line))
            return
        self.folded_gates = {gate: (offered, kept) for gate, (offered, kept) in line["gates"].items()}
        self.folded_expired = {gate: int(rows) for gate, rows in line.get("expired", {}).items()}
        self.folded_expired_classes = {gate: list(rows) for gate, rows in line.get("expired_classes", {}).items()}
        self.folded_classes = {gate: decode_counts(counts) for gate, counts in line.get("classes", {}).items()}
        self.folded_outputs = {name: OutputTotal(*total) for name, total in line.get("outputs", {}).items()}
        self.compacted_batches = line["batches"]
        self.history = History.from_rows(line.get("history", ()))

    def fold(self, retain: int) -> None:
        """Fold all but the latest batches into totals, and forget decisions that no replay can need."""
        known = {decision.batch_id: decision.learnt for decision in self.decisions if decision.learnt is not None}
        learnt: Mapping[str, float] | None = None
        last_s: float | None = None
        for batch_id in sorted(self.batches)[:-retain]:
            record = self.batches.pop(batch_id)
            learnt = known.get(batch_id, learnt)
            begin_s = record.start_s if last_s is None else last_s
            self.history.add(summarise_batch(record, (record.end_s or 0.0) - (begin_s or 0.0), learnt))
            last_s = record.end_s if record.end_s is not None else last_s
            _add_gates(self.folded_gates, record)
            _add_expired(self.folded_expired, record)
            _add_outputs(self.folded_outputs, record)
            for gate, rows in (record.expired_classes or {}).items():
                self.folded_expired_classes[gate] = add_rows(self.folded_expired_classes.get(gate, ()), rows)
            for gate, counts in (record.classes or {}).items():
                self.folded_classes[gate] = add_class_counts(self.folded_classes.get(gate, ()), counts)
            self.compacted_batches += 1
        count = max(retain, DECISIONS_RETAINED)
        decisions = self.decisions[-count:]
        # A run says these once, at its start.
        for is_said in (lambda decision: decision.layout is not None, lambda decision: decision.is_shared):
            if not any(map(is_said, decisions)):
                decisions = [decision for decision in self.decisions[:-count] if is_said(decision)][-1:] + decisions
        last = max((index for index, decision in enumerate(decisions) if decision.controller is not None), default=-1)
        # A restart needs one memory of the controller, the last; of a load-aware job thousands would fill the driver's.
        # What was learnt is told with a batch, so those of batches that were folded need not say it.
        told = len(decisions) - retain
        self.decisions = [
            _forget(decision, controller=index != last, learnt=index < told) for index, decision in enumerate(decisions)
        ]

    def rows_per_byte(self) -> Mapping[str, float]:
        """Return how many rows a byte of each source of files was, as far as a decision says so."""
        known = (decision.rows_per_byte for decision in reversed(self.decisions))
        return next((ratios for ratios in known if ratios), {})

    def has_shared_gates(self) -> bool:
        """Whether other queries read gates of this one too, or did once."""
        return any(decision.is_shared for decision in self.decisions)

    def to_lines(self) -> list[dict[str, Any]]:
        """Return the whole state as lines of one file."""
        totals = {
            "kind": "totals",
            "gates": self.folded_gates,
            "expired": self.folded_expired,
            "expired_classes": self.folded_expired_classes,
            "classes": self.folded_classes,
            "outputs": {
                name: [total.rows, total.delay_rows, total.delay_sum_s, total.worst_delay_s]
                for name, total in self.folded_outputs.items()
            },
            "batches": self.compacted_batches,
            "history": self.history.to_rows(),
        }
        decisions = [encode(decision) for decision in self.decisions]
        for line in [line for line in decisions if "controller" in line][:-1]:
            del line["controller"]
        batches = [encode(batch) for _, batch in sorted(self.batches.items())]
        return [totals, *decisions, *batches, *(encode(message) for message in self.errors)]


def _forget(decision: DecisionRecord, *, controller: bool, learnt: bool) -> DecisionRecord:
    if controller and decision.controller is not None:
        decision = replace(decision, controller=None)
    return replace(decision, learnt=None) if learnt and decision.learnt is not None else decision


def _add_gates(totals: dict[str, tuple[int, int]], record: BatchRecord) -> None:
    for gate, (offered, kept) in record.gates.items():
        before = totals.get(gate, (0, 0))
        totals[gate] = (before[0] + offered, before[1] + kept)


def _add_expired(totals: dict[str, int], record: BatchRecord) -> None:
    for gate, rows in (record.expired or {}).items():
        totals[gate] = totals.get(gate, 0) + rows


def _add_outputs(totals: dict[str, OutputTotal], record: BatchRecord) -> None:
    for name, output in (record.outputs or {}).items():
        totals[name] = totals.get(name, OutputTotal()).add(output)
