"""What the decision core tells its driver to do, in order. A driver that fails at one of them leaves out the rest."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.drop.tables import KeepTable
from penstock.journal.records import Record

__all__ = ["Append", "AppendLater", "Instruction", "Publish", "Warn"]


@dataclass(frozen=True, slots=True)
class Append:
    """Make records durable in one write, then report each decision among them with ``QueryCore.confirm``."""

    records: tuple[Record, ...]
    query: str | None = None
    """Whose journal: another query's that shares a gate. ``None`` is the core's own."""


@dataclass(frozen=True, slots=True)
class AppendLater:
    """Make records durable with the next ones, and report each decision among them at once: it says what holds already."""

    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Publish:
    """Put tables in force at a gate, from the next task on."""

    gate: str
    tables: tuple[KeepTable, ...]


@dataclass(frozen=True, slots=True)
class Warn:
    """Tell the user, once."""

    message: str
    error: Exception | None = None
    """What failed, if this is about a failure."""


Instruction = Append | AppendLater | Publish | Warn
