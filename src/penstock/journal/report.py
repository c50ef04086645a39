"""The ledger as an Arrow table and as text to read, built from journals alone."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.journal.ledger import ClassShare, QueryLedger

__all__ = ["LEDGER_SCHEMA", "Report"]

LEDGER_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("gate", pa.string()),
        ("batch_id", pa.int64()),
        ("offered", pa.int64()),
        ("kept", pa.int64()),
        ("shed", pa.int64()),
        ("expired", pa.int64()),
        ("keep", pa.float64()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("delay_s", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Report:
    """What was offered, kept and shed at every gate in every batch, and the delay compared with its target.

    ``print(report)`` shows totals; ``report.table`` is the ledger, with one row per gate and batch.
    """

    queries: Sequence[QueryLedger]

    @property
    def table(self) -> pa.Table:
        """The ledger as an Arrow table."""
        rows = [
            (
                *(q.label, gate, b.batch_id, offered, kept, offered - kept, (b.expired or {}).get(gate, 0)),
                *(b.keep, b.start_s, b.end_s, b.delay_s),
            )
            for q in self.queries
            for b in q.batches
            for gate, (offered, kept) in b.gates.items()
        ]
        columns = zip(*rows, strict=True) if rows else [[] for _ in LEDGER_SCHEMA]
        return pa.table([pa.array(c, t) for c, t in zip(columns, LEDGER_SCHEMA.types, strict=True)], schema=LEDGER_SCHEMA)

    @property
    def errors(self) -> list[str]:
        """What went wrong, one line each."""
        return [line for query in self.queries for line in (*query.state.errors, *query.state.damage)]

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [_build_ledger_table(self.queries), _build_delay_table(self.queries)]
        shares = [(query.label, share) for query in self.queries for share in query.shares()]
        if any(share.spread > 0.0 for _, share in shares):
            parts.append(_build_class_table(shares))
        parts += [Text(f"! {line}", style="yellow") for line in self.errors]
        return Group(*parts)

    def _repr_html_(self) -> str:
        """Return the same tables for a notebook."""
        tables = [_build_ledger_table(self.queries), _build_delay_table(self.queries)]
        notes = "".join(f"<li>{html.escape(line)}</li>" for line in self.errors)
        return "".join(_to_html(table) for table in tables) + (f"<ul>{notes}</ul>" if notes else "")

    def __str__(self) -> str:
        console = Console(width=110, no_color=True, highlight=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get()


def _to_html(table: Table) -> str:
    """Return a table as HTML; whatever a query is called, it stays text."""
    columns = [[html.escape(str(cell)) for cell in column.cells] for column in table.columns]
    align = ["right" if column.justify == "right" else "left" for column in table.columns]
    head = "".join(
        f'<th style="text-align:{side}">{html.escape(str(column.header))}</th>'
        for column, side in zip(table.columns, align, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(f'<td style="text-align:{side}">{cell}</td>' for cell, side in zip(row, align, strict=True)) + "</tr>"
        for row in zip(*columns, strict=True)
    )
    title = html.escape(str(table.title or ""))
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _start_table(title: str, *names: str, text: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name in text else "right")
    return table


def _build_ledger_table(queries: Sequence[QueryLedger]) -> Table:
    names = ("query", "gate", "offered", "kept", "shed", "of those expired", "kept %")
    table = _start_table("Ledger", *names, text=("query", "gate"))
    for query in queries:
        expired = query.state.expired_totals()
        for gate, (offered, kept) in query.state.totals().items():
            share = f"{100 * kept / offered:.1f}" if offered else "-"
            counts = [f"{count:,}" for count in (offered, kept, offered - kept, expired.get(gate, 0))]
            table.add_row(query.label, gate, *counts, share)
    return table


def _build_delay_table(queries: Sequence[QueryLedger]) -> Table:
    has_unreachable = any(batch.reachable_s is not None for query in queries for batch in query.batches)
    names = ("query", "set", "batches", "target s", "mean s", "worst batch s", "batches above target")
    more = ("reachable s", "batches above that") if has_unreachable else ()
    table = _start_table("Delay", *names, *more, text=("query", "set"))
    for query in queries:
        delays, rows = query.delays()
        targets, held = query.targets()
        mean = f"{np.average(delays, weights=rows):.2f}" if len(delays) else "-"
        worst = f"{delays.max():.2f}" if len(delays) else "-"
        above = f"{int((delays > targets).sum())}" if len(delays) else "-"
        batches = str(len(query.batches) + query.state.compacted_batches)
        values = [query.label, query.how, batches, f"{query.delay_target_s:g}", mean, worst, above]
        if has_unreachable:
            reachable = next((b.reachable_s for b in reversed(query.batches) if b.reachable_s is not None), None)
            values += ["-" if reachable is None else f"{reachable:.2g}", f"{int((delays > held).sum())}" if len(delays) else "-"]
        table.add_row(*values)
    return table


def _build_class_table(shares: Sequence[tuple[str, ClassShare]]) -> Table:
    """Show how far off recent keeps make a count that weights scale back up."""
    title = "Kept by class, and the error of a weighted count of so many rows, keys or windows"
    names = ("query", "gate", "of", "class", "offered", "kept", "keep now", "1,000", "100,000")
    table = _start_table(title, *names, text=("query", "gate", "of", "class"))
    for query, share in shares:
        errors = [f"±{100 * math.sqrt(share.spread / n):.2g}%" if share.spread < math.inf else "-" for n in (1_000, 100_000)]
        counts = [f"{share.offered:,}", f"{share.kept:,}", f"{share.keep:.3f}"]
        table.add_row(query, share.gate, f"{share.unit}s", share.name, *counts, *errors)
    return table
