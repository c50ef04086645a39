"""A durable record: every decision before it takes effect, and what every batch did. Independent of Spark."""

from __future__ import annotations

from penstock.journal.journal import Journal, read_journal
from penstock.journal.ledger import QueryLedger
from penstock.journal.records import BatchRecord, DecisionRecord, OutputRecord
from penstock.journal.report import Report
from penstock.journal.state import JournalState

__all__ = ["BatchRecord", "DecisionRecord", "Journal", "JournalState", "OutputRecord", "QueryLedger", "Report", "read_journal"]
