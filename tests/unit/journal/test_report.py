"""The ledger for programs and for people."""

from __future__ import annotations

from penstock.journal import BatchRecord, JournalState
from penstock.journal.report import LEDGER_SCHEMA, QueryLedger, Report


def ledger() -> Report:
    batches = {
        1: BatchRecord(1, {"in": (100, 50), "b": (10, 10)}, keep=0.5, start_s=2.0, end_s=4.0, mean_arrival_s=1.0),
        0: BatchRecord(0, {"in": (20, 20)}, keep=1.0, start_s=0.0, end_s=1.0, mean_arrival_s=0.5),
        2: BatchRecord(2, {"in": (7, 0)}, keep=0.0),
    }
    state = JournalState(batches=batches, folded_gates={"in": (1000, 900)}, compacted_batches=5, errors=["the controller failed"])
    return Report([QueryLedger("clicks", "by batch", 2.0, state)])


def test_as_an_arrow_table() -> None:
    table = ledger().table
    assert table.schema == LEDGER_SCHEMA
    assert table["batch_id"].to_pylist() == [0, 1, 1, 2]
    assert table["offered"].to_pylist() == [20, 100, 10, 7]
    assert [o - k for o, k in zip(table["offered"].to_pylist(), table["kept"].to_pylist(), strict=True)] == table[
        "shed"
    ].to_pylist()
    assert table["delay_s"].to_pylist() == [0.5, 3.0, 3.0, None]


def test_totals_include_what_was_compacted() -> None:
    assert ledger().queries[0].state.totals() == {"in": (1127, 970), "b": (10, 10)}


def test_as_text() -> None:
    text = str(ledger())
    for piece in ("clicks", "by batch", "1,127", "970", "157", "86.1", "the controller failed"):
        assert piece in text


def test_an_empty_report() -> None:
    assert Report([]).table.num_rows == 0
    assert "Ledger" in str(Report([]))
