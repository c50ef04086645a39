"""Keep and rows shed over time, by gate and by class."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.journal.records import encode
from penstock.observe.part_curves import choose_parts
from penstock.observe.query_series import RECENT, QuerySeries
from penstock.observe.views import trace
from tests.journals import make_records


def series_of(*lines: dict[str, Any]) -> QuerySeries:
    series = QuerySeries()
    for number, line in enumerate(lines):
        series.add_line({"kind": "batch", "batch_id": number, "start_s": float(number), "end_s": number + 1.0, **line})
    return series


def test_each_class_has_a_curve_under_the_name_that_the_job_gave_it() -> None:
    line = {"gates": {"in": [100, 40]}, "classes": {"in": [[10, 10], [90, 30]]}}
    curves = trace(series_of(line, line), classes={"in": ["gold"]})
    assert (curves["parts"], curves["parts_by"]) == ({"in/0": "gold", "in/1": "class 2"}, "class")
    assert curves["keep/in/0"] == [1.0, 1.0]
    assert curves["keep/in/1"] == [pytest.approx(1 / 3, abs=1e-4)] * 2
    assert curves["shed/in/1"] == [60.0, 60.0]


def test_gates_without_classes_are_told_apart_and_one_alone_is_what_the_other_charts_show() -> None:
    curves = trace(series_of({"gates": {"a": [10, 5], "b": [20, 20]}}))
    assert curves["parts"] == {"a": "a", "b": "b"}
    assert (curves["keep/a"], curves["keep/b"]) == ([0.5], [1.0])
    mixed = trace(series_of({"gates": {"a": [10, 5], "b": [20, 20]}, "classes": {"a": [[4, 4], [6, 1]]}}))
    assert list(mixed["parts"].values()) == ["a: class 1", "a: class 2", "b"]
    assert (curves["parts_by"], mixed["parts_by"]) == ("gate", "gate and class")
    assert trace(series_of({"gates": {"a": [10, 5]}}))["parts"] == {}
    assert trace(QuerySeries())["parts"] == {}


def test_of_many_those_with_the_most_rows_are_drawn_in_their_own_order() -> None:
    gates = {f"g{number}": [100 * (number % 7 + 1), 1] for number in range(30)}
    parts, left = choose_parts(series_of({"gates": gates}))
    assert (len(parts), left) == (8, 22)
    assert [part.gate for part in parts] == sorted((part.gate for part in parts), key=lambda name: int(name[1:]))
    assert {"g6", "g13", "g20", "g27"} <= {part.gate for part in parts}


def test_a_class_without_rows_in_a_batch_keeps_its_line() -> None:
    full, without = (
        {"gates": {"in": [20, 15]}, "classes": {"in": counts}} for counts in ([[10, 10], [10, 5]], [[20, 15], [0, 0]])
    )
    curves = trace(series_of(without, full, without))
    assert curves["keep/in/1"] == [None, 0.5, 0.5]
    assert curves["shed/in/1"][1:] == [5.0, 0.0]


@pytest.mark.parametrize("points", [10, 200, 5000])
def test_classes_add_up_to_their_gate_whatever_the_resolution(points: int) -> None:
    series = QuerySeries()
    for records in make_records(900, has_classes=True):
        for record in records:
            series.add_line(encode(record))
    curves = trace(series, points=points)
    assert {len(values) for values in curves.values() if isinstance(values, list)} == {len(curves["t"])}
    for one, two, all_, arrivals in zip(
        *(curves[name] for name in ("shed/in/0", "shed/in/1", "overload_rate", "arrivals")), strict=True
    ):
        if all_ is not None:
            assert one + two >= all_ - 0.01 * arrivals - 1.0


def test_what_the_journal_no_longer_holds_one_by_one_is_not_drawn() -> None:
    series = QuerySeries()
    for records in make_records(RECENT + 500, has_classes=True):
        for record in records:
            series.add_line(encode(record))
    curves = trace(series, points=10_000)
    assert curves["keep/in/1"][:400] == [None] * 400
    assert curves["keep"][0] is not None
    assert None not in curves["keep/in/1"][-RECENT:]
