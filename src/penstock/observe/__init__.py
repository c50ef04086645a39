"""What journals and run directories say, for people and for machines: reading only, nothing of Spark."""

from __future__ import annotations

from penstock.journal.places import JournalPlace
from penstock.observe.discovery import find_journals
from penstock.observe.explanation import explain_batch
from penstock.observe.journal_tail import JournalTail
from penstock.observe.observatory import Observatory
from penstock.observe.query_series import QuerySeries

__all__ = ["JournalPlace", "JournalTail", "Observatory", "QuerySeries", "explain_batch", "find_journals"]
