"""The numbers of a query, from its records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.journal import BatchRecord, DecisionRecord, JournalState
from penstock.metrics.instruments import BOUNDS_S, COUNTERS, GAUGES, HISTOGRAMS
from penstock.metrics.tally import MOST_GATES, MOST_QUERIES, OTHER, QueryTally, TallyBook, clean_label


def batch(number: int, offered: int = 100, kept: int = 40, **more: object) -> BatchRecord:
    return BatchRecord(number, {"in": (offered, kept)}, **more)  # type: ignore[arg-type]


def values(tally: QueryTally) -> dict[str, float]:
    return {".".join((sample.key, *sample.labels[2:])): sample.value for sample in tally.samples()}


def state_of(*batches: BatchRecord) -> JournalState:
    state = JournalState()
    for record in batches:
        state.add(record)
    return state


def test_rows_are_split_by_reason() -> None:
    tally = QueryTally("q")
    tally.record([batch(0, 100, 40, expired={"in": 25}), batch(1, 10, 10)], 5.0)
    assert {key: values(tally)[key] for key in ("offered", "kept", "shed.overload", "shed.expired", "batches")} == {
        "offered": 110,
        "kept": 50,
        "shed.overload": 35,
        "shed.expired": 25,
        "batches": 2,
    }


def test_a_batch_counts_once_however_often_its_record_is_replaced() -> None:
    """By batch the times of a batch come with the next one; a replay after a crash writes it again, perhaps with other counts."""
    tally = QueryTally("q")
    first = batch(0, mean_arrival_s=1.0)
    timed = replace(first, start_s=1.0, end_s=3.0)
    tally.record([first], 3.0)
    assert tally.histograms["delay"].count == 0
    tally.record([timed, DecisionRecord({"in": (0.5,)}, 0.5, batch_id=1)], 3.1)
    tally.record([timed], 3.2)
    tally.record([replace(timed, gates={"in": (90, 30)})], 3.3)
    assert (values(tally)["offered"], values(tally)["kept"], values(tally)["batches"]) == (90, 30, 1)
    assert (tally.histograms["delay"].count, tally.histograms["delay"].total) == (1, 2.0)
    assert (tally.histograms["duration"].count, tally.histograms["duration"].total) == (1, 2.0)


def test_counters_continue_those_of_the_journal() -> None:
    state = state_of(*(batch(number, start_s=1.0, end_s=2.0) for number in range(3)))
    state.compacted_batches, state.folded_gates, state.folded_expired = 7, {"in": (1_000, 500)}, {"in": 100}
    tally = QueryTally("q", state)
    assert (values(tally)["offered"], values(tally)["kept"], values(tally)["shed.expired"]) == (1_300, 620, 100)
    assert values(tally)["batches"] == 10
    assert tally.histograms["duration"].count == 0  # they begin with the process
    tally.record([batch(2, start_s=3.0, end_s=4.0), batch(3)], 5.0)  # batch 2 is replayed
    assert (values(tally)["offered"], values(tally)["batches"]) == (1_400, 11)
    since = {".".join((s.key, *s.labels[2:])): tally.since_start(s) for s in tally.samples() if s.key in COUNTERS}
    assert since == {
        "offered": 100,
        "kept": 40,
        "shed.overload": 60,
        "shed.expired": 0,
        "batches": 1,
        "errors": 0,
        "journal_errors": 0,
    }


def test_gauges_follow_the_last_batch_and_decision() -> None:
    tally = QueryTally("q")
    assert "keep" not in values(tally)
    tally.record([DecisionRecord({"in": (0.3,)}, 0.3, batch_id=0)], 10.0)
    assert (values(tally)["keep"], values(tally)["batch_start"], values(tally)["last_write"]) == (0.3, 10.0, 10.0)
    tally.record([batch(0, delay_target_s=2.0, reachable_s=3.5, backlog_rows=17)], 11.0)
    assert "batch_start" not in values(tally)
    assert (values(tally)["target"], values(tally)["reachable"], values(tally)["backlog"]) == (2.0, 3.5, 17.0)
    tally.record([batch(1, delay_target_s=2.0)], 12.0)
    assert "reachable" not in values(tally)
    tally.record([DecisionRecord({"in": (0.4,)}, 0.4, batch_id=2)], 13.0)
    tally.close()
    assert values(tally)["active"] == 0.0
    assert "batch_start" not in values(tally)


def test_what_marks_the_start_of_a_run_is_no_keep() -> None:
    mark = DecisionRecord({}, 1.0, from_slot=0, is_shared=True)
    decided = DecisionRecord({"in": (0.3,)}, 0.3, from_slot=70)
    tally = QueryTally("q", JournalState(decisions=[decided, mark]))
    assert values(tally)["keep"] == 0.3
    tally.record([mark], 10.0)
    assert values(tally)["keep"] == 0.3


def test_the_decision_of_a_replayed_batch_starts_a_batch() -> None:
    """After a crash the batch is in the journal, or not; only one that is not counts as running."""
    tally = QueryTally("q", state_of(batch(0)))
    tally.record([DecisionRecord({"in": (0.3,)}, 0.3, batch_id=0)], 10.0)
    assert "batch_start" not in values(tally)


def test_a_journal_that_fails_is_seen_and_its_rows_still_count() -> None:
    tally = QueryTally("q")
    tally.miss([batch(0)], 1.0)
    tally.fail()
    now = values(tally)
    assert (now["failing"], now["journal_errors"], now["errors"], now["offered"]) == (1.0, 1, 1, 100)
    tally.record([batch(1)], 2.0)
    assert (values(tally)["failing"], values(tally)["offered"]) == (0.0, 200)


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (BOUNDS_S[0], 0), (0.051, 1), (BOUNDS_S[-1], -2), (1e9, -1)])
def test_a_bucket_holds_its_upper_limit(value: float, bucket: int) -> None:
    tally = QueryTally("q")
    tally.record([batch(0, start_s=0.0, end_s=value)], 1.0)
    assert tally.histograms["duration"].counts[bucket] == 1
    buckets, total = tally.read_histogram("duration")
    assert buckets[-1] == ("+Inf", 1)
    assert total == value


def test_what_no_row_was_kept_of_has_no_delay_and_clocks_may_step_back() -> None:
    tally = QueryTally("q")
    tally.record([batch(0, 100, 0, start_s=5.0, end_s=4.0, mean_arrival_s=1.0)], 1.0)
    tally.record([batch(1, 100, 1, start_s=5.0, end_s=4.0, mean_arrival_s=9.0)], 1.0)
    assert tally.histograms["delay"].count == 1
    assert tally.histograms["delay"].total == 0.0
    assert tally.histograms["duration"].total == 0.0


def test_gates_beyond_a_number_are_put_together() -> None:
    tally = QueryTally("q")
    tally.record([BatchRecord(0, {f"g{number}": (2, 1) for number in range(MOST_GATES + 5)})], 1.0)
    offered = {sample.labels[1]: sample.value for sample in tally.samples() if sample.key == "offered"}
    assert len(offered) == MOST_GATES + 1
    assert offered[OTHER] == 10


def test_names_are_told_apart_and_limited(caplog: pytest.LogCaptureFixture) -> None:
    book = TallyBook()
    tallies = [book.watch("q", JournalState()) for _ in range(3)]
    assert [tally.label for tally in tallies if tally is not None] == ["q", "q (2)", "q (3)"]
    tallies[0].close()  # type: ignore[union-attr]
    again = book.watch("q", JournalState())
    assert again is not None
    assert again.label == "q"
    for number in range(MOST_QUERIES - 3):
        assert book.watch(f"n{number}", JournalState()) is not None
    assert book.watch("one more", JournalState()) is None
    assert "'one more' is left out" in caplog.text
    again.close()
    assert book.watch("one more", JournalState()) is not None
    assert len(book.tallies) == MOST_QUERIES


def test_labels_can_always_be_encoded() -> None:
    assert len(clean_label("x" * 10_000)) == 120
    assert clean_label("a\ud800b").encode() == b"a?b"


def test_names_are_conventional() -> None:
    names = {instrument.prometheus_name for group in (COUNTERS, GAUGES, HISTOGRAMS) for instrument in group.values()}
    assert {
        "penstock_rows_offered",
        "penstock_rows_kept",
        "penstock_rows_shed",
        "penstock_delay_seconds",
        "penstock_delay_target_seconds",
        "penstock_keep_ratio",
        "penstock_batch_seconds",
        "penstock_decision_errors",
    } <= names
