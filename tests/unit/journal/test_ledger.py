"""The ledger of one query: totals and the spread of each class."""

from __future__ import annotations

import pytest

from penstock.journal import BatchRecord, DecisionRecord, JournalState
from penstock.journal.report import QueryLedger, Report


def test_the_error_is_that_of_each_keep_not_of_their_mean() -> None:
    decisions = [DecisionRecord({"in": (keep, 1.0)}, keep, batch_id=number) for number, keep in enumerate((0.1, 0.9))]
    batches = {
        number: BatchRecord(number, {"in": (200, 100)}, classes={"in": [(100, kept), (100, 100)]})
        for number, kept in enumerate((9, 91))
    }
    state = JournalState(decisions=decisions, batches=batches, folded_classes={"in": [(1_000, 500), (10, 10)]})
    query = QueryLedger("q", "by batch", 2.0, state, {"in": ("free", "paid")}, {"in": "row"})
    free, paid = query.shares()
    assert (free.offered, free.kept, free.keep) == (1_200, 600, 0.9)
    assert free.spread == pytest.approx((9 + 1 / 9) / 2)
    assert (paid.offered, paid.kept, paid.spread) == (210, 210, 0.0)
    text = str(Report([query]))
    assert "±6.7%" in text  # the root of 4.56 / 1,000
    assert "free" in text
