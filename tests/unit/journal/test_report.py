"""The ledger for programs and for people."""

from __future__ import annotations

from rich.console import Console

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


def expiring(**more: float | None) -> BatchRecord:
    return BatchRecord(
        3,
        {"in": (200, 60), "b": (5, 5)},
        keep=0.5,
        start_s=8.0,
        end_s=10.0,
        mean_arrival_s=6.0,
        expired={"in": 123},
        **more,  # type: ignore[arg-type]
    )


def report_of(*batches: BatchRecord, delay_target_s: float = 2.0, folded_expired: dict[str, int] | None = None) -> Report:
    state = JournalState(batches={one.batch_id: one for one in batches}, folded_expired=folded_expired or {})
    return Report([QueryLedger("clicks", "by batch", delay_target_s, state)])


def test_expired_rows_are_in_the_ledger_and_in_the_text() -> None:
    report = report_of(expiring(), folded_expired={"in": 4_000})
    assert report.table["expired"].to_pylist() == [123, 0]
    header, row = (next(line for line in str(report).splitlines() if piece in line) for piece in ("of those expired", " in "))
    column = [cell.strip() for cell in header.split("┃")].index("of those expired")
    assert [cell.strip() for cell in row.replace("┃", "│").split("│")][column] == "4,123"


def test_delays_are_compared_with_the_target_of_their_batch() -> None:
    """A delay of 4 s meets a target of 5 s, and misses the 2 s that hold now."""
    early, late = expiring(delay_target_s=5.0), BatchRecord(4, {"in": (9, 9)}, end_s=10.0, mean_arrival_s=6.0, delay_target_s=2.0)
    report = report_of(early, late)
    targets, held = report.queries[0].targets()
    assert targets.tolist() == held.tolist() == [5.0, 2.0]
    assert column_of(report, "batches above target") == "1"
    assert column_of(report, "target s") == "2"
    assert "reachable" not in str(report)


def test_batches_of_an_older_journal_have_the_target_of_now() -> None:
    targets, held = report_of(expiring(), delay_target_s=3.0).queries[0].targets()
    assert targets.tolist() == held.tolist() == [3.0]


def test_an_unreachable_target_is_reported_against_both() -> None:
    """A delay of 4 s: above the target, below what could be reached."""
    slow = BatchRecord(4, {"in": (9, 9)}, end_s=20.0, mean_arrival_s=9.0, delay_target_s=2.0, reachable_s=5.0)
    report = report_of(expiring(delay_target_s=2.0, reachable_s=4.5), slow)
    targets, held = report.queries[0].targets()
    assert (targets.tolist(), held.tolist()) == ([2.0, 2.0], [4.5, 5.0])
    assert column_of(report, "batches above target") == "2"
    assert column_of(report, "reachable s") == "5"
    assert column_of(report, "batches above that") == "1"


def test_targets_and_delays_are_of_the_same_batches() -> None:
    empty = BatchRecord(1, {"in": (9, 0)}, end_s=20.0, mean_arrival_s=9.0, delay_target_s=7.0)
    untimed = BatchRecord(2, {"in": (9, 9)}, delay_target_s=8.0)
    query = report_of(empty, untimed, expiring(delay_target_s=2.0)).queries[0]
    assert query.delays()[0].tolist() == [4.0]
    assert query.targets()[0].tolist() == [2.0]


def column_of(report: Report, name: str) -> str:
    """The first cell of a column of the delays."""
    console = Console(width=250)
    with console.capture() as capture:
        console.print(report)
    lines = capture.get().splitlines()
    start = next(number for number, line in enumerate(lines) if "target s" in line)
    names = [cell.strip() for cell in lines[start].split("┃")]
    return [cell.strip() for cell in lines[start + 2].split("│")][names.index(name)]


def test_for_a_notebook() -> None:
    report = ledger()
    state = report.queries[0].state
    text = Report([QueryLedger("<script>alert(1)</script>", "by batch", 2.0, state)])._repr_html_()
    assert "<script>" not in text
    for piece in ("&lt;script&gt;", '<td style="text-align:right">1,127</td>', "<li>the controller failed</li>"):
        assert piece in text
