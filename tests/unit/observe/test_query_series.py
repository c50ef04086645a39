"""Columns of a query: bounded memory, right sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.journal.records import DecisionRecord, encode
from penstock.observe import query_series
from penstock.observe.query_series import QuerySeries
from tests.journals import make_records


def fill(batches: int, **options: object) -> QuerySeries:
    series = QuerySeries()
    for decision, batch in make_records(batches, **options):  # type: ignore[arg-type]
        series.add_line(encode(decision))
        series.add_line(encode(batch))
    return series


def test_an_empty_one_has_answers() -> None:
    series = QuerySeries()
    assert series.span() is None
    assert series.last("delay_s") is None
    assert len(series.table()["end_s"]) == 0


def test_classes_and_expired_rows_add_up() -> None:
    series = fill(400, has_classes=True)
    (counts,) = series.classes.values()
    assert sum(offered for offered, _ in counts) == series.totals["in"][0]
    assert sum(kept for _, kept in counts) == series.totals["in"][1]
    assert series.expired["in"] == float(series.column("expired").sum()) > 0
    assert series.expired_classes == {"in": [0, series.expired["in"]]}


def test_beyond_a_bound_the_oldest_go_into_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fill(3000)
    monkeypatch.setattr(query_series, "_MOST_BATCHES", 512)
    series = fill(3000)
    assert len(series) <= 512
    for name in ("offered", "kept", "expired", "batches"):
        assert series.table()[name].sum() == whole.table()[name].sum()
    assert np.nanmax(series.table()["delay_max_s"]) == pytest.approx(np.nanmax(whole.table()["delay_max_s"]))
    assert series.column("batch_id")[-1] == 2999


def test_a_replaced_batch_counts_once() -> None:
    series = QuerySeries()
    for kept in (5, 3):
        series.add_line({"kind": "batch", "batch_id": 1, "gates": {"in": [10, kept]}, "expired": {"in": 2}})
    assert (series.totals, series.expired, series.batches) == ({"in": (10, 3)}, {"in": 2}, 1)


def test_a_clock_that_was_set_back_leaves_the_table_in_order() -> None:
    series = QuerySeries()
    for number, end_s in enumerate((100.0, 101.0, 50.0, 51.0)):
        series.add_line({"kind": "batch", "batch_id": number, "gates": {"in": [10, 10]}, "end_s": end_s})
    assert series.table()["end_s"].tolist() == [50.0, 51.0, 100.0, 101.0]
    assert all(span_s > 0 or math.isnan(span_s) for span_s in series.column("span_s"))


def test_thousands_of_table_entries_are_not_kept() -> None:
    series = QuerySeries()
    series.add_line({"kind": "decision", "gates": {"in": [0.5] * 4096}, "keep": 0.5, "batch_id": 0, "controller": {"big": 1}})
    assert series.decisions[0]["gates"] == {}
    assert "controller" not in series.decisions[0]


def test_a_batch_whose_end_stays_unknown_has_no_delay() -> None:
    series = QuerySeries()
    for _ in range(2):  # a replay writes its record once more
        series.add_line({"kind": "batch", "batch_id": 0, "gates": {"in": [10, 10]}, "mean_arrival_s": 5.0})
    assert series.last("delay_s") is None


def test_the_bound_of_a_gate_is_no_keep() -> None:
    """The table of a bounded gate ends in a number of rows, and by batch in one that nothing reaches."""
    series = QuerySeries()
    for entries in ([0.4, 2.0**40], [1.0, 0.4, 512.0]):
        series.add_line({"kind": "decision", "gates": {"in": entries}, "keep": 0.4, "batch_id": 0})
    assert [decision["gates"]["in"] for decision in series.decisions] == [[0.4], [1.0, 0.4]]


def test_what_marks_the_start_of_a_run_is_no_decision() -> None:
    series = QuerySeries()
    series.add_line({"kind": "decision", "gates": {"in": [0.4]}, "keep": 0.4, "from_slot": 70})
    series.add_line(encode(DecisionRecord({}, 1.0, from_slot=0, is_shared=True)))
    assert [decision["keep"] for decision in series.decisions] == [0.4]
