"""The demo without Spark: its summary, its calibrated work, its page and its picture."""

from __future__ import annotations

import importlib.util
from html.parser import HTMLParser

import numpy as np
import pytest

from penstock.demo.page import render_page
from penstock.demo.summary import ArmRun, Batch, Demo, Settings, summarise
from penstock.demo.work import calibrate, score, scorer


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
