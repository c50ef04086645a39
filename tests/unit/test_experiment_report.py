"""Results of experiments, and the pure parts of the demo."""

from __future__ import annotations

import importlib.util
import json
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from benchmarks import EXPERIMENTS, experiment_named
from benchmarks.results import Bar, Claim, Result
from benchmarks.timing import best_of
from penstock.demo.page import render_page
from penstock.demo.summary import ArmRun, Batch, Demo, Settings, summarise
from penstock.demo.work import calibrate, score, scorer
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
    found = json.loads(result(Bar.at_most("a", 1.0, 2.0)).to_json())
    assert list(found) == ["name", "rows", "claims", "bars"]
    assert found["rows"][0] == {"arm": "plain", "ns": 4.25, "rows": 12345, "note": None}
    assert found["claims"][0] == {"what": "it is cheap", "paper": "18 ns", "ours": "19 ns", "holds": True}
    assert found["bars"] == [{"what": "a", "value": 1.0, "limit": 2.0, "holds": True}]


def test_the_table_shows_every_column_and_verdict() -> None:
    console = Console(width=100, no_color=True)
    with console.capture() as capture:
        console.print(result(Bar.at_most("too slow", 3.0, 2.0)))
    text = capture.get()
    for part in ("arm", "note", "4.25", "12,345", "1,234", "too slow", "NO", "it is cheap"):
        assert part in text


def test_a_result_without_rows_is_refused() -> None:
    with pytest.raises(PenstockError, match="'empty' measured nothing"):
        Result("empty", [])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_a_file_with_a_docstring(name: str) -> None:
    module = experiment_named(name)
    assert callable(module.run)
    assert len(module.__doc__ or "") > 200, "say what is measured and how"


def test_best_of_runs_the_arms_in_turn() -> None:
    calls: list[str] = []
    arms = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    best_of(arms, rounds=2, warm_up=1)
    assert calls == ["a", "b"] * 3


# -- the demo -----------------------------------------------------------------------------------------------------------


def batch(start_s: float, end_s: float, offered: int, kept: int, delay_s: float) -> Batch:
    return Batch(start_s, end_s, offered, kept, kept / offered if offered else 1.0, delay_s)


ARRIVALS = np.arange(100) / 10.0  # ten rows a second for ten seconds


def test_the_delay_of_a_row_is_the_end_of_its_batch_minus_its_arrival() -> None:
    run = ArmRun("b", 10.0, (batch(0, 9.5, 90, 30, 5.0), batch(9.5, 10.0, 10, 10, 0.5)), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    delays = np.concatenate([9.5 - ARRIVALS[:90], 10.0 - ARRIVALS[90:]])
    weights = np.repeat([1 / 3, 1.0], [90, 10])
    assert found.mean_delay_s == pytest.approx(np.average(delays, weights=weights))
    assert found.mean_violation_s == pytest.approx(np.average(np.maximum(0, delays - 2), weights=weights))
    assert found.max_violation_s == 7.5
    assert (found.arrived, found.kept, found.shed, found.queued) == (100, 40, 60, 0)
    assert found.goodput_rows_per_s == 4.0
    assert found.goodput_of_capacity == 0.5


def test_rows_still_queued_count_with_their_age() -> None:
    run = ArmRun("a", 10.0, (batch(0, 6, 50, 50, 1.0),), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    ages = 10.0 - ARRIVALS[50:]
    assert found.queued == 50
    assert found.arrived == found.kept + found.shed + found.queued
    assert found.mean_delay_s == pytest.approx(((6.0 - ARRIVALS[:50]).sum() + ages.sum()) / 100)


def test_of_queued_rows_only_the_share_that_is_kept_counts() -> None:
    shed = ArmRun("b", 10.0, (batch(0, 5, 50, 25, 1.0),), keep=0.0)
    found = summarise(shed, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0)
    assert found.mean_delay_s == pytest.approx((5.0 - ARRIVALS[:50]).mean())


def test_the_start_can_be_left_out() -> None:
    run = ArmRun("b", 10.0, (batch(0, 5, 50, 50, 1.0), batch(5, 10, 50, 10, 1.0)), keep=1.0)
    found = summarise(run, ARRIVALS, target_s=2.0, capacity_rows_per_s=8.0, from_s=5.0)
    assert (found.arrived, found.kept, found.shed, found.queued) == (50, 10, 40, 0)
    assert found.mean_delay_s == pytest.approx((10.0 - ARRIVALS[50:]).mean())


def test_an_arm_without_a_batch_has_a_summary() -> None:
    nothing = summarise(ArmRun("a", 0.001, (), keep=0.0), ARRIVALS[:0], target_s=2.0, capacity_rows_per_s=8.0)
    assert nothing.mean_delay_s == nothing.p99_delay_s == nothing.max_violation_s == 0.0


def test_the_score_depends_on_payload_and_rounds_alone() -> None:
    assert score(b"a", 5) == score(b"a", 5)
    assert len({score(b"a", 5), score(b"b", 5), score(b"a", 6)}) == 3


def test_calibration_takes_the_best_try() -> None:
    clock = iter([0.0, 10.0, 0.0, 5.0])  # ten rows of a thousand rounds: 1 s a row, then 0.5 s
    work = calibrate(0.25, clock=lambda: next(clock), tries=2)
    assert work.rounds == 500
    assert work.cost_s == pytest.approx(0.25)


def test_the_scorer_keeps_every_row_in_order() -> None:
    import pyarrow as pa

    rows = pa.RecordBatch.from_pydict({"arrival": [1, 2], "key": [7, 8], "payload": [b"x", b"y"]})
    (scored,) = scorer(3)(iter([rows]))
    assert scored.to_pydict() == {"arrival": [1, 2], "key": [7, 8], "score": [score(b"x", 3), score(b"y", 3)]}


def demo() -> Demo:
    alone = ArmRun("Spark <alone>", 10.0, (batch(0, 3, 30, 30, 2.5),), keep=1.0)
    shed = ArmRun("with Penstock", 10.0, (batch(0, 1, 50, 20, 1.0), batch(1, 2, 50, 20, 1.5)), keep=0.4)
    return Demo(Settings(seconds=10.0), 0.0004, 4.0, 0.2, ARRIVALS, [alone, shed])


def test_the_page_needs_nothing_else() -> None:
    text = render_page(demo(), b"png")
    assert "http" not in text
    assert "data:image/png;base64," in text
    assert "Spark &lt;alone&gt;" in text
    HTMLParser().feed(text)


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs Matplotlib")
def test_the_picture_can_be_drawn() -> None:
    from penstock.demo.plots import draw_picture

    assert draw_picture(demo()).startswith(b"\x89PNG")
