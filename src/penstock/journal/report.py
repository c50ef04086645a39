"""The ledger as an Arrow table, and as a person wants to read it. It is made from journals and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.journal.journal import BatchRecord, DecisionRecord, JournalState, added

__all__ = ["LEDGER_SCHEMA", "QueryLedger", "Report", "Share"]

LEDGER_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("gate", pa.string()),
        ("batch_id", pa.int64()),
        ("offered", pa.int64()),
        ("kept", pa.int64()),
        ("shed", pa.int64()),
        ("keep", pa.float64()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("delay_s", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Share:
    """What happened to one class of rows at one gate."""

    gate: str
    unit: str
    name: str
    offered: int
    kept: int
    now: float
    """The keep of the last decision."""
    spread: float
    """Of late, the mean over rows of ``1 / keep - 1``; infinite where none was kept."""


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

    def totals(self) -> dict[str, tuple[int, int]]:
        """Rows offered and kept a gate, since the journal began."""
        totals = dict(self.state.totals)
        for record in self.batches:
            for gate, (offered, kept) in record.gates.items():
                before = totals.get(gate, (0, 0))
                totals[gate] = (before[0] + offered, before[1] + kept)
        return totals

    def shares(self) -> list[Share]:
        """What happened to each class of each gate."""
        recent = self.state.decisions[-_RECENT:]
        found = []
        for gate, names in self.classes.items():
            keeps = [(decision.gates[gate], self._offered(decision, gate)) for decision in recent if gate in decision.gates]
            totals = self._class_totals(gate) or [self.totals().get(gate, (0, 0)) for _ in names]
            for place, name in enumerate(names):
                known = [(keep[place], offered) for keep, offered in keeps if place < len(keep)]
                if known:
                    offered, kept = totals[place] if place < len(totals) else (0, 0)
                    spread = _spread([keep for keep, _ in known], [rows for _, rows in known])
                    found.append(Share(gate, self.units.get(gate, "row"), name, offered, kept, known[-1][0], spread))
        return found

    def _offered(self, decision: DecisionRecord, gate: str) -> float:
        """Rows that a decision was for, where it was for a batch."""
        record = self.state.batches.get(decision.batch_id) if decision.batch_id is not None else None
        return float(record.gates.get(gate, (0, 0))[0]) if record is not None else 0.0

    def _class_totals(self, gate: str) -> list[tuple[int, int]]:
        totals = list(self.state.class_totals.get(gate, ()))
        for record in self.batches:
            totals = added(totals, (record.classes or {}).get(gate, ()))
        return totals

    def delays(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean delay of each batch and the rows it kept."""
        timed = [(record.delay_s, sum(kept for _, kept in record.gates.values())) for record in self.batches]
        known = [(delay, kept) for delay, kept in timed if delay is not None and kept]
        return np.array([delay for delay, _ in known]), np.array([kept for _, kept in known], dtype=float)


_RECENT = 100


def _spread(keeps: Sequence[float], rows: Sequence[float]) -> float:
    """The mean over rows of ``1 / keep - 1``: a count of n of them that weights scale up is off by the root of it over n."""
    weights = np.asarray(rows) if any(rows) else np.ones(len(keeps))
    used = [(keep, weight) for keep, weight in zip(keeps, weights, strict=True) if weight > 0]
    return math.inf if any(keep <= 0 for keep, _ in used) else sum(w * (1 / k - 1) for k, w in used) / sum(w for _, w in used)


def _errors(shares: Sequence[tuple[str, Share]]) -> Table:
    """What the keeps of late do to a count that weights scale back up."""
    table = Table(title="Kept by class, and how far off a count of so many rows, keys or windows is", title_justify="left")
    for name in ("query", "gate", "of", "class", "offered", "kept", "keep now", "1,000", "100,000"):
        table.add_column(name, justify="left" if name in ("query", "gate", "of", "class") else "right")
    for query, share in shares:
        errors = [f"±{100 * math.sqrt(share.spread / n):.2g}%" if share.spread < math.inf else "-" for n in (1_000, 100_000)]
        counts = [f"{share.offered:,}", f"{share.kept:,}", f"{share.now:.3f}"]
        table.add_row(query, share.gate, f"{share.unit}s", share.name, *counts, *errors)
    return table


@dataclass(frozen=True, slots=True)
class Report:
    """What was offered, kept and shed, at every gate in every batch, and the delay against its target.

    ``print(report)`` shows the sums; ``report.table`` is the ledger, a row a gate and batch.
    """

    queries: Sequence[QueryLedger]

    @property
    def table(self) -> pa.Table:
        """The ledger as an Arrow table."""
        rows = [
            (q.label, gate, b.batch_id, offered, kept, offered - kept, b.keep, b.start_s, b.end_s, b.delay_s)
            for q in self.queries
            for b in q.batches
            for gate, (offered, kept) in b.gates.items()
        ]
        columns = zip(*rows, strict=True) if rows else [[] for _ in LEDGER_SCHEMA]
        return pa.table([pa.array(c, t) for c, t in zip(columns, LEDGER_SCHEMA.types, strict=True)], schema=LEDGER_SCHEMA)

    @property
    def errors(self) -> list[str]:
        """What went wrong, a line each."""
        return [line for query in self.queries for line in (*query.state.errors, *query.state.damage)]

    def __rich__(self) -> RenderableType:
        ledger = Table(title="Ledger", title_justify="left")
        for name in ("query", "gate", "offered", "kept", "shed", "kept %"):
            ledger.add_column(name, justify="left" if name in ("query", "gate") else "right")
        for query in self.queries:
            for gate, (offered, kept) in query.totals().items():
                share = f"{100 * kept / offered:.1f}" if offered else "-"
                ledger.add_row(query.label, gate, f"{offered:,}", f"{kept:,}", f"{offered - kept:,}", share)
        delay = Table(title="Delay", title_justify="left")
        for name in ("query", "set", "batches", "target s", "mean s", "worst batch s", "batches above target"):
            delay.add_column(name, justify="left" if name in ("query", "set") else "right")
        for query in self.queries:
            delays, rows = query.delays()
            mean = f"{np.average(delays, weights=rows):.2f}" if len(delays) else "-"
            worst = f"{delays.max():.2f}" if len(delays) else "-"
            above = f"{int((delays > query.delay_target_s).sum())}" if len(delays) else "-"
            batches = str(len(query.batches) + query.state.compacted_batches)
            delay.add_row(query.label, query.how, batches, f"{query.delay_target_s:g}", mean, worst, above)
        parts: list[RenderableType] = [ledger, delay]
        shares = [(query.label, share) for query in self.queries for share in query.shares()]
        if any(share.spread > 0.0 for _, share in shares):
            parts.append(_errors(shares))
        parts += [Text(f"! {line}", style="yellow") for line in self.errors]
        return Group(*parts)

    def __str__(self) -> str:
        console = Console(width=110, no_color=True, highlight=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get()
