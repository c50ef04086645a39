"""The result of a benchmark: when it holds, its JSON and its tables."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from benchmarks.support.results import Bar, Claim, Result
from penstock.errors import PenstockError


def result(*bars: Bar) -> Result:
    rows = [{"arm": "plain", "ns": 4.25, "rows": 12345, "note": None}, {"arm": "gate", "ns": 1234.5}]
    return Result("gate", rows, bars, [Claim("it is cheap", "18 ns", "19 ns", True), Claim("not decided", "46", "48", None)])


def test_bars_hold_on_their_limit() -> None:
    assert Bar.at_most("a", 1.25, 1.25).holds
    assert not Bar.at_most("a", 1.26, 1.25).holds
    assert Bar.at_least("a", 10.0, 10.0).holds
    assert not Bar.at_least("a", 9.9, 10.0).holds
    assert not Bar.at_most("a", float("nan"), 1.0).holds


def test_a_result_holds_if_every_bar_does() -> None:
    good, bad = Bar.at_most("a", 1.0, 2.0), Bar.at_most("b", 3.0, 2.0)
    assert result().holds
    assert result(good).holds
    assert not result(good, bad).holds


def test_json_has_the_keys_of_the_design() -> None:
    loaded = json.loads(result(Bar.at_most("a", 1.0, 2.0)).to_json())
    assert list(loaded) == ["name", "rows", "claims", "bars"]
    assert loaded["rows"][0] == {"arm": "plain", "ns": 4.25, "rows": 12345, "note": None}
    assert loaded["claims"][0] == {"what": "it is cheap", "paper": "18 ns", "ours": "19 ns", "holds": True}
    assert loaded["bars"] == [{"what": "a", "value": 1.0, "limit": 2.0, "holds": True}]


def test_the_tables_show_every_column_and_verdict() -> None:
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(result(Bar.at_most("too slow", 3.0, 2.0)))
    text = capture.get()
    for part in ("arm", "note", "4.25", "12,345", "1,234", "too slow", "NO", "it is cheap"):
        assert part in text


def test_a_result_without_rows_is_refused() -> None:
    with pytest.raises(PenstockError, match="'empty' measured nothing"):
        Result("empty", [])
