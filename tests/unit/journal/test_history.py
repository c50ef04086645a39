"""The history of a journal: bounded, and no row is lost in it."""

from __future__ import annotations

import json

from penstock.journal import BatchRecord, DecisionRecord, JournalState
from penstock.journal.history import History, summarise_batch


def batch(number: int, end_s: float, *, rows: int = 100, kept: int = 40) -> BatchRecord:
    return BatchRecord(
        number,
        {"in": (rows, kept)},
        keep=kept / rows,
        start_s=end_s - 1.0,
        end_s=end_s,
        mean_arrival_s=end_s - 1.5,
        delay_target_s=2.0,
        expired={"in": 7},
    )


def test_two_years_take_a_few_hundred_buckets_and_lose_no_row() -> None:
    history, hour_s, count = History(), 3600.0, 24 * 730
    for number in range(count):
        history.add(summarise_batch(batch(number, 1.7e9 + number * hour_s), hour_s))
    assert len(history) < 2048
    assert sum(bucket.offered for bucket in history) == 100 * count
    assert sum(bucket.expired for bucket in history) == 7 * count
    starts = [bucket.start_s for bucket in history]
    assert starts == sorted(starts)
    widths = [bucket.width_s for bucket in history]
    assert widths == sorted(widths, reverse=True)  # the older, the coarser


def test_it_survives_json() -> None:
    history = History()
    for number in range(2000):
        history.add(summarise_batch(batch(number, 1.7e9 + 60.0 * number), 60.0, {"cost_s": 0.001}))
    again = History.from_rows(json.loads(json.dumps(history.to_rows())))
    assert [bucket.offered for bucket in again] == [bucket.offered for bucket in history]
    assert again.to_rows() == history.to_rows()
    again.add(summarise_batch(batch(0, 1.7e9), 1.0))
    assert sum(bucket.batches for bucket in again) == 2001


def test_a_copy_stays_as_it_was() -> None:
    history = History()
    history.add(summarise_batch(batch(0, 1.7e9), 1.0))
    copy = history.copy()
    history.add(summarise_batch(batch(1, 1.7e9), 1.0))
    assert [bucket.batches for bucket in copy] == [1]


def test_a_batch_without_an_end_or_with_a_strange_one_is_left_out() -> None:
    history = History()
    history.add(summarise_batch(BatchRecord(0, {"in": (1, 1)}), 1.0))
    history.add(summarise_batch(BatchRecord(0, {"in": (1, 1)}, end_s=float("nan")), 1.0))
    assert len(history) == 0


def test_compaction_folds_batches_into_it_with_what_was_learnt() -> None:
    state = JournalState()
    for number in range(100):
        state.add(DecisionRecord({"in": (0.4,)}, 0.4, batch_id=number, learnt={"cost_s": 0.002, "overhead_s": 0.1}))
        state.add(batch(number, 1.7e9 + number))
    state.fold(retain=10)
    again = JournalState()
    for line in json.loads(json.dumps(state.to_lines())):
        again.add_line(line)
    assert sum(bucket.batches for bucket in again.history) == 90 == again.compacted_batches
    first = next(iter(again.history))
    assert (first.cost_s, first.overhead_s, first.target_s) == (0.002, 0.1, 2.0)
    assert first.delay_min_s == first.delay_max_s == 1.5


def test_a_journal_of_an_older_version_has_none() -> None:
    state = JournalState()
    state.add_line({"kind": "totals", "gates": {"in": [5, 4]}, "batches": 3})
    assert len(state.history) == 0
    assert state.totals() == {"in": (5, 4)}
