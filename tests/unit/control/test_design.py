"""Pole placement, margins, identification, advice on the period."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control import Ctrl
from penstock.control.design import PUBLISHED, ControlLaw, advise_period, identify
from penstock.errors import PenstockError
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import on_off


def settle(law: ControlLaw, ratio: float, periods: int = 400) -> float:
    """The error that is left after a step of the target, with a true cost of ``ratio`` times the assumed one."""
    delay = error = u = 0.0
    for _ in range(periods):
        now = 1.0 - delay
        u = law.step(now, error, u, gain=1.0)
        error, delay = now, delay + ratio * u
    return abs(1.0 - delay)


def test_three_periods_are_the_published_law() -> None:
    """Paper 001, equation 3."""
    assert ControlLaw.converging_in(3) == PUBLISHED == ControlLaw(0.4, -0.31, -0.8)


@given(periods=st.floats(0.5, 50), a=st.floats(-1, 0.5))
def test_poles_are_where_they_were_put(periods: float, a: float) -> None:
    law = ControlLaw.converging_in(periods, a, exact=True)
    # A double root is found to half of the digits.
    assert np.allclose(np.abs(law.poles), math.exp(-1 / periods), atol=1e-5)


@given(periods=st.floats(0.5, 50))
def test_rounding_is_never_slower_than_asked(periods: float) -> None:
    law = ControlLaw.converging_in(periods)
    assert max(abs(pole) for pole in law.poles) <= max(math.exp(-1 / periods), 0.1) + 1e-5


def test_an_error_is_gone_after_ten_times_the_convergence_time() -> None:
    law = ControlLaw.converging_in(20, exact=True)
    assert settle(law, 1.0, periods=200) < 0.01


@pytest.mark.parametrize("law", [PUBLISHED, ControlLaw.converging_in(5, a=-1.0), ControlLaw.converging_in(2, a=0.0)])
def test_the_margin_is_where_the_loop_becomes_unstable(law: ControlLaw) -> None:
    low, high = law.cost_margin
    assert low == 0.0
    assert settle(law, 0.97 * high, periods=4000) < 0.01
    assert settle(law, 1.03 * high, periods=4000) > 1.0


def test_an_unstable_choice_says_the_margin() -> None:
    with pytest.raises(PenstockError, match=r"unstable: a pole at \|z\| = 1.14.*stable if the true cost were 0 to 0.4 times"):
        ControlLaw(2.5, 0.5, -0.8)
    with pytest.raises(PenstockError, match="no cost makes it stable"):
        ControlLaw(-0.4, 0.3, -0.8)
    with pytest.raises(PenstockError, match="convergence time must be positive, got 0 periods"):
        ControlLaw.converging_in(0)


class TestIdentification:
    def test_finds_the_simulated_queue(self) -> None:
        """Input: rows admitted above capacity in a period. Output: the delay that the queue stands for. Gain: the cost."""
        cost_s, period_s = 0.005, 0.5
        run = simulate_queue(
            on_off(300, 400, seed=3), Ctrl(2.0, cost_s=cost_s, headroom=1.0), cost_s=cost_s, period_s=period_s, stop_s=400
        )
        kept = run.series["rate"] * run.series["keep"] * period_s
        delay_s = np.concatenate([[0.0], run.series["queue"][:-1] * cost_s])
        # Where the queue is never empty the server takes period / cost rows.
        busy = slice(20, 780)
        model = identify(kept[busy] - period_s / cost_s, delay_s[busy])
        assert model.order == 1
        assert model.integrates
        assert model.gain == pytest.approx(cost_s, rel=0.1)
        assert model.fit > 0.8

    def test_finds_the_order(self) -> None:
        rng = np.random.default_rng(1)
        u = rng.standard_normal(500)
        y = np.zeros(500)
        for k in range(2, 500):
            y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + 0.3 * u[k - 1] + 0.1 * u[k - 2]
        noisy = identify(u, y + 0.001 * rng.standard_normal(500))
        assert noisy.order == 2
        assert not noisy.integrates
        assert noisy.gain == pytest.approx(0.4, rel=0.05)

    @pytest.mark.parametrize(
        ("inputs", "outputs", "message"),
        [
            ([1.0] * 50, [2.0] * 50, "input never changes"),
            ([1.0, 2.0], [1.0, 2.0], "needs at least 30 periods, got 2"),
            ([1.0, math.nan] * 20, [1.0, 2.0] * 20, "finite"),
            ([1.0, 2.0] * 20, [1.0] * 39, "one length"),
        ],
    )
    def test_bad_recordings(self, inputs: list[float], outputs: list[float], message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            identify(inputs, outputs)


class TestAdvice:
    def test_both_rules_pull(self) -> None:
        advice = advise_period(on_off(300, 400, seed=1), 0.005, 2.0)
        assert 0.125 <= advice.best_s <= 1.0
        assert list(advice.surprise_s) == sorted(advice.surprise_s)
        assert list(advice.blur_s) == sorted(advice.blur_s, reverse=True)

    def test_more_rows_want_a_shorter_period(self) -> None:
        few, many = on_off(300, 200, seed=1), on_off(30_000, 200, seed=1)
        assert advise_period(many, 0.00005, 2.0).best_s <= advise_period(few, 0.005, 2.0).best_s

    @pytest.mark.parametrize("times", [[], [1.0], [1.0, 1.0]])
    def test_a_trace_without_rows(self, times: list[float]) -> None:
        with pytest.raises(PenstockError, match="needs a trace"):
            advise_period(times, 0.005, 2.0)

    def test_a_trace_that_is_too_short(self) -> None:
        with pytest.raises(PenstockError, match="too short"):
            advise_period([0.0, 0.1], 0.005, 2.0)
