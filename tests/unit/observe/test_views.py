"""What is shown of a query."""

from __future__ import annotations

import json

import pytest

from penstock.journal.records import encode
from penstock.observe.query_series import QuerySeries
from penstock.observe.views import list_decisions, summarise, trace
from tests.journals import make_records


@pytest.fixture(scope="module")
def series() -> QuerySeries:
    made = QuerySeries()
    for decision, batch in make_records(1000, has_classes=True):
        made.add_line(encode(decision))
        made.add_line(encode(batch))
    return made


def test_curves_have_one_length_and_are_plain_json(series: QuerySeries) -> None:
    curves = trace(series, points=100)
    lengths = {len(values) for values in curves.values() if isinstance(values, list)}
    assert lengths == {len(curves["t"])}
    assert len(curves["t"]) <= 110
    assert not curves["is_exact"]
    json.dumps(curves, allow_nan=False)


def test_few_batches_are_shown_one_by_one(series: QuerySeries) -> None:
    _, last_s = series.span() or (0.0, 0.0)
    curves = trace(series, since_s=last_s - 60.0)
    assert curves["is_exact"]
    assert curves["batch"][-1] == 999


def test_rates_add_up_to_the_rows_whatever_the_resolution(series: QuerySeries) -> None:
    table = series.table()
    span_s = table["span_s"][1:].sum()
    for points in (10, 100, 5000):
        curves = trace(series, points=points)
        assert max(rate for rate in curves["arrivals"] if rate is not None) > 0
        shed = [a - k for a, k in zip(curves["arrivals"], curves["kept_rate"], strict=True) if a is not None]
        parts = [o + e for o, e in zip(curves["overload_rate"], curves["expired_rate"], strict=True) if o is not None]
        assert shed == pytest.approx(parts, abs=0.2)  # rates of thousands have five digits
    (rate,) = {round(table["offered"][1:].sum() / span_s)}
    assert rate > 0


def test_a_line_breaks_where_nothing_ran() -> None:
    series = QuerySeries()
    for number, end_s in enumerate([*range(50), *range(4000, 4050)]):
        series.add_line({"kind": "batch", "batch_id": number, "gates": {"in": [10, 10]}, "end_s": float(end_s)})
    curves = trace(series)
    assert curves["keep"].count(None) == 1
    assert curves["t"] == sorted(curves["t"])


def test_the_summary_of_nothing_is_no_error() -> None:
    summary = summarise(QuerySeries())
    assert (summary["batches"], summary["delay_s"], summary["keep"], summary["gates"]) == (0, None, None, [])


def test_the_summary_adds_up(series: QuerySeries) -> None:
    summary = summarise(series, {"in": ["gold"]})
    assert summary["offered"] == summary["kept"] + summary["shed"]
    gate = summary["gates"][0]
    assert [one["name"] for one in gate["classes"]] == ["gold", "class 2"]
    assert sum(one["offered"] for one in gate["classes"]) == gate["offered"]
    assert summary["capacity"] == pytest.approx((1.0 - 0.12) / 4e-4, rel=0.05)
    json.dumps(summary, allow_nan=False)


def test_decisions_come_with_reasons_newest_first(series: QuerySeries) -> None:
    decisions = list_decisions(series, 5)
    assert [one["batch"] for one in decisions] == [999, 998, 997, 996, 995]
    assert all(one["reason"] and one["decided"] and one["happened"] for one in decisions)
