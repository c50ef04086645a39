"""Rows to try while little is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control.row_ramp import RowRamp
from penstock.estimate import BatchFilter

NOTHING = BatchFilter()


def model_of(*batches: tuple[int, float]) -> BatchFilter:
    model = BatchFilter()
    for kept, period_s in batches:
        model.update(kept, period_s)
    return model


def step(ramp: RowRamp, kept: int, period_s: float, *, is_cold: bool = False) -> float:
    ramp.update(kept, period_s, batch_s=1.0, work_s=0.9 * period_s, is_cold=is_cold)
    return ramp.limit(NOTHING, 1.0)


def test_with_nothing_known_it_is_the_first_number() -> None:
    assert RowRamp(500.0).limit(NOTHING, 1.0) == 500.0


@pytest.mark.parametrize(
    ("kept", "period_s", "limit"),
    [
        (500, 0.5, 2_000.0),  # half of the time: fourfold
        (500, 0.6, 500 / 0.6),  # more than half: what is proven, at most
        (500, 1.0, 500.0),
        (10, 0.2, 500.0),  # a small batch takes nothing back
        (500, 2.0, 250.0),  # twice too long: half of the rows fit for sure
        (500, 1e6, 1.0),  # some rows must pass, or nothing is ever learned
        (20, 4.0, 62.5),  # a small batch says little: an eighth stays
        (0, 5.0, 500.0),  # nothing was kept
        (500, 0.0, 500.0),  # a clock that stands still
        (500, 1e-9, 500.0),
    ],
)
def test_one_batch(kept: int, period_s: float, limit: float) -> None:
    assert step(RowRamp(500.0), kept, period_s) == pytest.approx(limit)


def test_it_grows_geometrically_as_batches_prove_short() -> None:
    ramp = RowRamp(500.0)
    limits = [step(ramp, round(ramp.limit(NOTHING, 1.0)), 0.3) for _ in range(4)]
    assert limits == [2_000.0, 8_000.0, 32_000.0, 128_000.0]


def test_a_cold_batch_is_an_upper_bound() -> None:
    """Up to three seconds of it may be warm-up, but it proves no more rows than it had."""
    assert step(RowRamp(500.0), 500, 3.4, is_cold=True) == pytest.approx(500.0)
    assert step(RowRamp(500.0), 500, 7.0, is_cold=True) == pytest.approx(500 / 4.0)
    assert step(RowRamp(500.0), 500, 3.2, is_cold=False) == pytest.approx(500 / 3.2)
    assert step(RowRamp(2_000.0), 1_643, 1.06, is_cold=True) == 2_000.0  # 6,572 in the demo: a batch that was all work


def test_batches_that_are_not_tiny_say_what_the_next_step_may_be() -> None:
    """The first number counts no longer: 25 rows in 0.5 s may be 20 ms each."""
    ramp, model = RowRamp(500.0), model_of((25, 0.4))
    ramp.update(24, 0.4, 1.0, work_s=0.4)
    assert ramp.limit(model, 1.0) == pytest.approx(500.0)
    ramp.update(25, 0.4, 1.0, work_s=0.4)
    assert ramp.limit(model, 1.0) <= 100.0


def test_a_job_that_is_late_tries_few_unless_the_cost_was_given() -> None:
    assert RowRamp(500.0).limit(NOTHING, 1.0, is_late=True) == 100.0
    assert RowRamp(500.0, is_known=True).limit(NOTHING, 1.0, is_late=True) == 500.0


def test_a_cold_batch_is_no_proof_of_what_large_batches_cost() -> None:
    ramp = RowRamp(500.0)
    ramp.update(500, 2.0, 1.0, work_s=1.8, is_cold=True)
    assert ramp.snapshot()["largest"] == 0.0
    assert ramp.snapshot()["has_worked"] is False


def test_a_cost_that_is_known_is_believed() -> None:
    ramp, model = RowRamp(500.0), model_of((0, 0.2), (500, 0.7), (600, 0.8), (550, 0.75))
    for kept, period_s in ((500, 0.7), (600, 0.8), (550, 0.75)):
        ramp.update(kept, period_s, 1.0, work_s=0.001 * kept)
    assert ramp.limit(model, 1.0) == pytest.approx(800, rel=0.05)
    assert ramp.limit(model, 0.5) == pytest.approx(300, rel=0.05)


def test_a_cost_is_not_believed_for_a_batch_many_times_larger() -> None:
    """Short batches say little about a batch of ten times the rows: there the cost counts as high as it may be."""
    cheap = model_of((0, 0.2), *((100, 0.21),) * 20)
    ramp = RowRamp(500.0)
    for _ in range(20):
        ramp.update(100, 0.21, 1.0, work_s=0.01)
    fitting = (1.0 - (cheap.overhead_s or 0.0)) / (cheap.cost_s or 1.0)
    careful = (1.0 - (cheap.overhead_s or 0.0)) / ((cheap.cost_s or 1.0) + 2.0 * cheap.cost_deviation_s)
    assert fitting > 4_000
    assert ramp.limit(cheap, 1.0) == pytest.approx(max(100 / 0.21, 4.0 * 100, careful))
    assert ramp.limit(cheap, 1.0) < 0.7 * fitting
    ramp.update(2_000, 0.5, 1.0, work_s=0.2)
    assert ramp.limit(cheap, 1.0) == pytest.approx(min(fitting, 8_000)), "now it has seen some"


def test_no_time_is_room_for_one_row() -> None:
    """Some rows must pass, or nothing is ever learned."""
    ramp, model = RowRamp(500.0), model_of((0, 0.5), (500, 1.0), (500, 1.0))
    ramp.update(500, 1.0, 1.0, work_s=0.5)
    assert ramp.limit(model, 0.1) == 1.0
    assert ramp.limit(model, -1.0) == 1.0


batches = st.lists(st.tuples(st.integers(0, 10**7), st.floats(0.0, 1e4), st.booleans()), max_size=20)


@given(first_rows=st.floats(1.0, 1e6), history=batches, batch_s=st.floats(0.0, 100.0))
def test_the_limit_is_a_number_that_lets_something_pass(
    first_rows: float, history: list[tuple[int, float, bool]], batch_s: float
) -> None:
    ramp, model = RowRamp(first_rows), BatchFilter()
    for kept, period_s, is_cold in history:
        ramp.update(kept, period_s, 1.0, work_s=period_s / 2.0, is_cold=is_cold)
        if not is_cold:
            model.update(kept, period_s)
        for known in (NOTHING, model):
            limit = ramp.limit(known, batch_s)
            assert math.isfinite(limit)
            assert limit >= 1.0


@given(cost_s=st.floats(1e-6, 1.0), overhead_s=st.floats(0.0, 1.0), first_rows=st.floats(1.0, 1e5))
def test_whatever_rows_cost_a_batch_takes_at_most_twice_its_time_after_a_few(
    cost_s: float, overhead_s: float, first_rows: float
) -> None:
    """The first one may be too long; r times the rows of a batch take at most r times as long."""
    ramp, model, batch_s = RowRamp(first_rows), BatchFilter(), 1.0 + 2.0 * overhead_s
    for number in range(20):
        kept = int(max(1.0, ramp.limit(model, batch_s)))
        period_s = overhead_s + cost_s * kept
        if number >= 6 and kept > 1:
            assert period_s <= 2.2 * batch_s
        model.update(kept, period_s)
        ramp.update(kept, period_s, batch_s, work_s=(model.cost_s or 0.0) * kept)
