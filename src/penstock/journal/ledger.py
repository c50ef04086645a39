"""One query's ledger, from its journal and nothing else: what was offered, kept and shed, and how late the rows kept were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.journal.records import BatchRecord, DecisionRecord
from penstock.journal.state import JournalState

__all__ = ["ClassShare", "QueryLedger"]

_RECENT = 100


@dataclass(frozen=True, slots=True)
class ClassShare:
    """What happened to one class of rows at one gate."""

    gate: str
    unit: str
    name: str
    offered: int
    kept: int
    keep: float
    """The keep of the last decision."""
    spread: float
    """Over recent decisions, the mean per row of ``1 / keep - 1``; infinite where none was kept."""


@dataclass(frozen=True, slots=True)
class QueryLedger:
    """One query's part of the report."""

    label: str
    how: str
    delay_target_s: float
    state: JournalState
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By gate: the names of its classes."""
    units: Mapping[str, str] = field(default_factory=dict)
    """By gate: what it keeps or drops as one."""

    @property
    def batches(self) -> list[BatchRecord]:
        """The batches, oldest first."""
        return [record for _, record in sorted(self.state.batches.items())]

    def shares(self) -> list[ClassShare]:
        """Return what happened to each class of each gate."""
        recent = self.state.decisions[-_RECENT:]
        shares = []
        for gate, names in self.classes.items():
            decided = [(decision.gates[gate], self._offered(decision, gate)) for decision in recent if gate in decision.gates]
            totals = self.state.class_totals(gate) or [self.state.totals().get(gate, (0, 0)) for _ in names]
            for index, name in enumerate(names):
                keeps = [(entries[index], offered) for entries, offered in decided if index < len(entries)]
                if keeps:
                    offered, kept = totals[index] if index < len(totals) else (0, 0)
                    spread = _spread([keep for keep, _ in keeps], [rows for _, rows in keeps])
                    shares.append(ClassShare(gate, self.units.get(gate, "row"), name, offered, kept, keeps[-1][0], spread))
        return shares

    def _offered(self, decision: DecisionRecord, gate: str) -> float:
        """Rows that a decision was for, where it was for a batch."""
        record = self.state.batches.get(decision.batch_id) if decision.batch_id is not None else None
        return float(record.gates.get(gate, (0, 0))[0]) if record is not None else 0.0

    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean delay of each batch, and the rows it kept."""
        timed = [(record.delay_s, sum(kept for _, kept in record.gates.values())) for record in self.batches]
        known = [(delay, kept) for delay, kept in timed if delay is not None and kept]
        return np.array([delay for delay, _ in known]), np.array([kept for _, kept in known], dtype=float)


def _spread(keeps: Sequence[float], rows: Sequence[float]) -> float:
    """The mean per row of ``1 / keep - 1``: the relative error of a weighted count of n rows is the root of this over n."""
    weights = np.asarray(rows) if any(rows) else np.ones(len(keeps))
    used = [(keep, weight) for keep, weight in zip(keeps, weights, strict=True) if weight > 0]
    return math.inf if any(keep <= 0 for keep, _ in used) else sum(w * (1 / k - 1) for k, w in used) / sum(w for _, w in used)
