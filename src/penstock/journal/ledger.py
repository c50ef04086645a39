"""The ledger of one query, from its journal alone: what was offered, kept and shed, and how late the rows kept were."""

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
    """The keep of the latest decision."""
    spread: float
    """The mean per row of ``1 / keep - 1`` over recent decisions; infinite if a decision kept nothing."""


@dataclass(frozen=True, slots=True)
class QueryLedger:
    """The part of a report that is about one query."""

    label: str
    how: str
    delay_target_s: float
    state: JournalState
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of the classes of each gate."""
    units: Mapping[str, str] = field(default_factory=dict)
    """What each gate keeps or drops as a whole: row, key or window."""

    @property
    def batches(self) -> list[BatchRecord]:
        """The batches, oldest first."""
        return [record for _, record in sorted(self.state.batches.items())]

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each batch that ``delays`` knows, its target and what was held: less may have been out of reach."""
        batches = [batch for batch in self.batches if batch.delay_s is not None and any(k for _, k in batch.gates.values())]
        targets = [self.delay_target_s if batch.delay_target_s is None else batch.delay_target_s for batch in batches]
        held = [
            target if batch.reachable_s is None else batch.reachable_s for batch, target in zip(batches, targets, strict=True)
        ]
        return np.array(targets), np.array(held)

    def shares(self) -> list[ClassShare]:
        """Return what happened to each class of each gate."""
        recent = self.state.decisions[-_RECENT:]
        shares = []
        for gate, names in self.classes.items():
            decisions = [
                (decision.gates[gate], self._count_offered(decision, gate)) for decision in recent if gate in decision.gates
            ]
            totals = self.state.class_totals(gate) or [self.state.totals().get(gate, (0, 0)) for _ in names]
            for index, name in enumerate(names):
                keeps = [(entries[index], offered) for entries, offered in decisions if index < len(entries)]
                if keeps:
                    offered, kept = totals[index] if index < len(totals) else (0, 0)
                    spread = _compute_spread([keep for keep, _ in keeps], [rows for _, rows in keeps])
                    spread = math.inf if self._has_hidden_loss(recent, gate) else spread
                    shares.append(ClassShare(gate, self.units.get(gate, "row"), name, offered, kept, keeps[-1][0], spread))
        return shares

    def _has_hidden_loss(self, decisions: Sequence[DecisionRecord], gate: str) -> bool:
        """Whether rows were shed for their age without a floor: no weight makes up for them."""
        for decision in decisions:
            record = self.state.batches.get(decision.batch_id) if decision.batch_id is not None else None
            older = (decision.older or {}).get(gate)
            if record is not None and older is not None and (record.expired or {}).get(gate) and 0.0 in older.entries:
                return True
        return False

    def _count_offered(self, decision: DecisionRecord, gate: str) -> float:
        """Return how many rows a decision was for, if it was for a batch, else 0."""
        record = self.state.batches.get(decision.batch_id) if decision.batch_id is not None else None
        return float(record.gates.get(gate, (0, 0))[0]) if record is not None else 0.0

    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean delay of each batch, and how many rows it kept."""
        batches = [(record.delay_s, sum(kept for _, kept in record.gates.values())) for record in self.batches]
        known = [(delay, kept) for delay, kept in batches if delay is not None and kept]
        return np.array([delay for delay, _ in known]), np.array([kept for _, kept in known], dtype=float)


def _compute_spread(keeps: Sequence[float], rows: Sequence[float]) -> float:
    """Return the mean per row of ``1 / keep - 1``. The relative error of a weighted count of n rows is ``sqrt(spread / n)``."""
    weights = np.asarray(rows) if any(rows) else np.ones(len(keeps))
    pairs = [(keep, weight) for keep, weight in zip(keeps, weights, strict=True) if weight > 0]
    return math.inf if any(keep <= 0 for keep, _ in pairs) else sum(w * (1 / k - 1) for k, w in pairs) / sum(w for _, w in pairs)
