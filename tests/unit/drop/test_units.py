"""Windows and their decisions, without Spark."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop.tables import SLOTS
from penstock.drop.units import WholeWindows, WindowRing
from penstock.errors import PenstockError


@given(
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 1.0)), min_size=1, max_size=8),
    st.integers(0, 1000),
)
def test_a_row_is_dropped_only_if_all_its_windows_are(
    slide: int, more: int, offset: int, steps: list[tuple[int, float]], seed: int
) -> None:
    unit = WholeWindows("t", f"{slide + more - 1}s", f"{slide}s", f"{offset}s" if offset else None)
    ring = WindowRing(unit, seed)
    first = 1_000
    for step, keep in steps:
        first += step
        ring.decide(first, keep)
    by_window, by_row = ring.tables()
    rng = np.random.default_rng(seed)
    lowest = first - 200
    for micros in rng.integers(lowest * unit.slide, (first + 200) * unit.slide, 40).tolist():
        newest = unit.ordinal(micros)
        its = [
            number
            for number in range(newest - unit.overlap, newest + 1)
            if unit.start(number) <= micros < unit.start(number) + unit.length
        ]
        assert its
        fates = ring.fate(np.array(its))
        kept = by_row.lookup(np.array([newest]))[0] > 0
        assert kept or not fates.any()
        if unit.length % unit.slide == 0:
            assert kept == fates.any()
        assert by_window.lookup(np.array(its)).tolist() == ring.keep(np.array(its)).tolist()


def test_what_has_begun_does_not_change() -> None:
    ring = WindowRing(WholeWindows("t", "1s"), seed=3)
    ring.decide(100, 0.5)
    before = ring.fate(np.arange(0, 200))
    ring.decide(150, 0.01)
    ring.decide(180, 1.0)
    after = ring.fate(np.arange(0, 200))
    assert (before[:150] == after[:150]).all()
    assert after[180:].all()
    assert after[150:180].sum() < 5


def test_windows_that_overlap_go_in_runs_so_that_rows_go() -> None:
    ring = WindowRing(WholeWindows("t", "10s", "1s"), seed=5)
    ring.decide(10_000, 0.25)
    _, rows = ring.tables()
    ordinals = np.arange(10_000, 12_000)
    assert ring.fate(ordinals).mean() == pytest.approx(0.25, abs=0.12)
    assert rows.lookup(ordinals).mean() < 1.35 * ring.fate(ordinals).mean()


def test_both_ends_of_the_ring_are_kept_if_nothing_was_shed() -> None:
    ring = WindowRing(WholeWindows("t", "1s"), seed=3)
    ring.decide(100_000, 0.0)
    _, rows = ring.tables()
    assert rows.lookup(np.array([0, 99_999, 100_000, 100_000 + SLOTS])).tolist() == [1.0, 1.0, 0.0, 1.0]


def test_a_window_that_was_dropped_stays_so_however_old() -> None:
    ring = WindowRing(WholeWindows("t", "10s", "1s"), seed=3)
    ring.decide(1_000, 0.0)
    for first in range(2_000, 60_000, 500):
        ring.decide(first, 1.0)
        by_window, by_row = ring.tables()
        assert by_window.lookup(np.array([1_500])).tolist() == [0.0]
        assert by_row.lookup(np.array([1_500])).tolist() == [0.0]
    never = WindowRing(WholeWindows("t", "1s"), seed=3)
    for first in range(1_000, 60_000, 500):
        never.decide(first, 1.0)
    assert never.tables()[1].lookup(np.array([0, 900])).tolist() == [1.0, 1.0], "a job that sheds nothing loses nothing"


def test_windows_ahead_of_the_table_are_kept_and_stay_so() -> None:
    ring = WindowRing(WholeWindows("t", "1s"), seed=3)
    ring.decide(1_000, 0.0)
    ahead = np.arange(5_000, 5_010)
    assert ring.tables()[1].lookup(ahead).tolist() == [1.0] * 10
    ring.decide(5_010, 0.0)  # a batch has brought rows of these ten
    assert ring.tables()[1].lookup(ahead).tolist() == [1.0] * 10
    assert ring.tables()[1].lookup(np.array([1_500, 2_900, 5_010])).tolist() == [0.0, 0.0, 0.0]


@given(st.lists(st.tuples(st.integers(0, 9_000), st.sampled_from([0.0, 0.3, 1.0])), min_size=1, max_size=12), st.integers(0, 12))
def test_a_ring_comes_back_from_its_snapshot(steps: list[tuple[int, float]], cut: int) -> None:
    ring, again = (WindowRing(WholeWindows("t", "4s", "1s"), seed=9) for _ in range(2))
    first = 1_000
    for number, (step, keep) in enumerate(steps):
        if number == cut:
            again.restore(json.loads(json.dumps(ring.snapshot())))
        first += step
        ring.decide(first, keep)
        if number >= cut:
            again.decide(first, keep)
    if cut < len(steps):
        for one, other in zip(ring.tables(), again.tables(), strict=True):
            assert one.oldest == other.oldest
            assert (one.keeps == other.keeps).all()


@pytest.mark.parametrize(
    ("offset", "micros"),
    [
        (None, 0),
        ("0 seconds", 0),
        (0, 0),
        ("-2 seconds", 3_000_000),
        (-2.0, 3_000_000),
        ("7s", 2_000_000),
        (timedelta(seconds=-2), 3_000_000),
    ],
)
def test_offsets_as_spark_takes_them(offset: str | float | timedelta | None, micros: int) -> None:
    assert WholeWindows("t", "5 seconds", None, offset).offset == micros


def test_too_many_windows_for_a_row_are_refused() -> None:
    with pytest.raises(PenstockError, match="at most 1,000 windows, and in windows of 7200 s by 1 s it lies in 7,200"):
        WholeWindows("t", "2 hours", "1 second")
