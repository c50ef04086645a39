"""A ceiling on what is shed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control import Decision
from penstock.decision.loss_ceiling import WINDOW_S, LossCeiling
from penstock.errors import PenstockError

ceilings = st.floats(0.0, 1.0, exclude_max=True) | st.sampled_from([0.0, 1e-300, 1e-12, 0.5, 0.9, 1.0 - 2**-53])
sizes = st.integers(0, 10_000) | st.sampled_from([0, 1, 10**15])


@given(max_loss=ceilings, batches=st.lists(st.tuples(st.floats(0.0, 50.0), sizes, st.floats(0.0, 1.0)), max_size=25))
def test_the_minute_that_ends_with_a_batch_stays_below_the_ceiling_or_all_of_it_is_kept(
    max_loss: float, batches: list[tuple[float, int, float]]
) -> None:
    """Against an oracle that adds up the whole history. Kept rows are fractions: the expectation."""
    ceiling, now_s, history = LossCeiling(max_loss), 1_000.0, []
    for gap_s, rows, wish in batches:
        now_s += gap_s
        least = ceiling.least_keep(now_s, rows)
        assert 0.0 <= least <= 1.0
        keep = max(wish, least)
        kept = math.ceil(rows * keep) if rows < 10**9 else rows * keep
        history.append((now_s, rows, kept))
        ceiling.record(now_s, rows, kept)  # type: ignore[arg-type] - an expectation
        recent = [(offered, passed) for time_s, offered, passed in history if now_s - WINDOW_S <= time_s]
        offered, passed = sum(one for one, _ in recent), sum(one for _, one in recent)
        assert keep == 1.0 or rows == 0 or offered - passed <= max_loss * offered * (1.0 + 1e-9) + 1e-6


@given(now_s=st.floats(-1e10, 1e10), rows=st.floats(0.0, 1e18), offered=sizes, data=st.data())
def test_without_a_ceiling_anything_may_be_shed(now_s: float, rows: float, offered: int, data: st.DataObject) -> None:
    ceiling = LossCeiling(1.0)
    assert not ceiling.is_set
    ceiling.record(now_s, offered, data.draw(st.integers(0, offered)))
    assert ceiling.least_keep(now_s, rows) == 0.0


@given(rows=st.integers(1, 10**15))
def test_a_ceiling_of_nothing_keeps_everything(rows: int) -> None:
    ceiling = LossCeiling(0.0)
    assert ceiling.least_keep(0.0, rows) == 1.0
    ceiling.record(0.0, rows, rows)
    assert ceiling.least_keep(1.0, rows) == 1.0


def test_what_was_lost_too_much_is_made_up_for() -> None:
    ceiling = LossCeiling(0.9)
    ceiling.record(10.0, 1_000, 0)
    assert ceiling.least_keep(11.0, 1_000) == pytest.approx(0.2)
    assert ceiling.least_keep(11.0, 10) == 1.0
    assert ceiling.least_keep(10.0 + WINDOW_S, 1_000) == pytest.approx(0.2)
    assert ceiling.least_keep(10.1 + WINDOW_S, 1_000) == pytest.approx(0.1), "a minute ago"


@pytest.mark.parametrize("step_s", [-3_600.0, 3_600.0])
def test_a_clock_that_steps_starts_a_new_minute(step_s: float) -> None:
    ceiling = LossCeiling(0.5)
    for second in range(10):
        ceiling.record(10_000.0 + second, 1_000, 1_000)
        ceiling.record(10_000.0 + second, 1_000, 400)
    assert ceiling.least_keep(10_010.0, 10_000) == pytest.approx(0.5), "what was kept beyond it is not lent to others"
    ceiling.record(10_010.0, 10_000, 0)
    assert ceiling.least_keep(10_010.0, 1_000) == 1.0
    assert ceiling.least_keep(10_010.0 + step_s, 1_000) == pytest.approx(0.5)


def test_no_rows_need_no_keep() -> None:
    assert LossCeiling(0.1).least_keep(0.0, 0) == 0.0


@pytest.mark.parametrize("max_loss", [-0.1, 1.1, math.nan, math.inf])
def test_bad_ceilings(max_loss: float) -> None:
    with pytest.raises(PenstockError, match=r"max_loss must lie in \[0, 1\], got"):
        LossCeiling(max_loss)


def test_of_a_batch_of_unknown_size_the_ceiling_leaves_its_share() -> None:
    ceiling = LossCeiling(0.9)
    ceiling.record(10.0, 1_000, 99)  # one too few, by chance
    decision, warnings = ceiling.hold(Decision(0.0, full_rows=5.0), 11.0, None, "q")
    assert decision.keep == pytest.approx(0.1)
    assert decision.full_rows is None, "a bound by rank knows no ceiling"
    assert len(warnings) == 1
