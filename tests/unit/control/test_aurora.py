"""Aurora: shed L - Lc."""

from __future__ import annotations

import math
import random

import pytest

from penstock.control import Aurora, Decision, GateCount, Observation
from penstock.errors import PenstockError
from penstock.estimate import BatchRegression


def run(
    controller: Aurora, *, rate: float, overhead_s: float, cost_s: float, batches: int, knows_size: bool, cold_s: float = 5.0
) -> list[float]:
    """A micro-batch engine in three lines: batch time = overhead + cost * kept; the next batch has what arrived meanwhile.

    The first batch has few rows and takes ``cold_s``: code generation and warm-up.
    """
    start_s, keep, periods, offered = 0.0, 1.0, [], 10
    for number in range(batches):
        kept = int(keep * offered)
        period_s = overhead_s + cost_s * kept if number else cold_s
        arrived = int(rate * period_s)
        decision = controller.update(
            Observation(
                number,
                start_s,
                start_s + period_s,
                gates={"in": GateCount(offered, kept)},
                upcoming_rows=arrived if knows_size else None,
                cold=number == 0,
            )
        )
        keep = keep if decision.keep is None else decision.keep
        start_s, offered = start_s + period_s, arrived
        periods.append(period_s)
    return periods


def test_capacity_over_load_is_kept() -> None:
    """SEaMLeSS, equation 1: 350 tuples/s at 1/207 s each with H = 0.97 leaves 0.97 * 207 / 350."""
    aurora = Aurora(2.0, cost_s=1 / 207, headroom=0.97)
    keep = aurora.update(Observation(0, 0.0, 0.5, gates={"in": GateCount(175, 175)})).keep
    assert keep == pytest.approx(0.97 * 207 / 350)


def test_below_capacity_everything_is_kept() -> None:
    aurora = Aurora(2.0, cost_s=1 / 207, headroom=0.97)
    assert aurora.update(Observation(0, 0.0, 0.5, gates={"in": GateCount(100, 100)})).keep == 1.0


@pytest.mark.parametrize("knows_size", [True, False])
def test_batch_time_settles_at_overhead_over_one_minus_headroom(knows_size: bool) -> None:
    """The steady state of the micro-batch engine, o / (1 - H), at three times its capacity."""
    aurora = Aurora(2.0, cost_s=0.001, headroom=0.75)
    periods = run(aurora, rate=3000, overhead_s=0.2, cost_s=0.001, batches=60, knows_size=knows_size)
    assert periods[-1] == pytest.approx(0.2 / (1 - 0.75), rel=0.02)


def test_without_a_headroom_the_worst_delay_is_the_target() -> None:
    """Cost and overhead are learned: the batch time goes to D/2, so that two batches take D."""
    periods = run(Aurora(2.0), rate=3000, overhead_s=0.2, cost_s=0.001, batches=80, knows_size=True)
    assert max(periods[40:]) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("knows_size", [True, False])
@pytest.mark.parametrize("rate", [10, 100, 500, 700])
def test_a_load_below_capacity_is_left_alone_from_the_first_batch_on(knows_size: bool, rate: float) -> None:
    """Batches back to back, a slow first one, and a backlog after it that goes away by itself."""
    watched = Aurora(2.0)
    keeps: list[float | None] = []
    update = watched.update

    def noting(observation: Observation) -> Decision:
        decision = update(observation)
        keeps.append(decision.keep)
        return decision

    watched.update = noting  # type: ignore[method-assign]
    run(watched, rate=rate, overhead_s=0.2, cost_s=0.001, batches=60, knows_size=knows_size)
    assert set(keeps) <= {None, 1.0}


@pytest.mark.parametrize(("knows_size", "worst_s"), [(True, 1.05), (False, 2.1)])
def test_after_a_cold_start_under_overload_it_is_soon_at_its_target(knows_size: bool, worst_s: float) -> None:
    """Half the target is a second; without the batch's size it swings, a decision being a batch late."""
    periods = run(Aurora(2.0), rate=3000, overhead_s=0.2, cost_s=0.001, batches=40, knows_size=knows_size)
    assert max(periods[4:]) <= worst_s
    assert max(periods[20:]) <= 1.2


@pytest.mark.parametrize("quiet", [0, 1, 7, 15])
def test_a_burst_after_a_quiet_time_is_not_yet_an_overload(quiet: int) -> None:
    """Batches of a few rows are all overhead; then 700 rows/s, which is within capacity, must pass whole."""
    aurora = Aurora(2.0)
    start_s, kept = 0.0, quiet
    for number in range(60):
        rate = 20 if number < 20 else 700
        period_s = 0.2 + 0.001 * kept + 0.01 * (number % 3)
        upcoming = int(rate * period_s) if number >= 20 else (quiet + number % 3)
        observation = Observation(
            number, start_s, start_s + period_s, gates={"in": GateCount(kept, kept)}, upcoming_rows=upcoming
        )
        assert aurora.update(observation).keep in (None, 1.0), number
        start_s, kept = start_s + period_s, upcoming


def test_an_overhead_above_the_target_is_best_effort() -> None:
    periods = run(Aurora(0.5), rate=3000, overhead_s=0.4, cost_s=0.001, batches=60, knows_size=True)
    assert all(math.isfinite(period_s) for period_s in periods)
    assert periods[-1] < 1.0


@pytest.mark.parametrize("cost_s", [0.0, -1.0, math.nan, math.inf])
def test_bad_cost(cost_s: float) -> None:
    with pytest.raises(PenstockError, match="cost_s must be positive"):
        Aurora(2.0, cost_s=cost_s)


@pytest.mark.parametrize("headroom", [0.0, -0.5, 1.5, math.nan])
def test_bad_headroom(headroom: float) -> None:
    with pytest.raises(PenstockError, match=r"headroom must lie in \(0, 1\]"):
        Aurora(2.0, headroom=headroom)


def test_cost_of_equal_batches_is_attributed_to_the_rows() -> None:
    model = BatchRegression()
    for _ in range(10):
        model.update(100, 0.5)
    assert model.cost_s == pytest.approx(0.005)
    assert model.overhead_s is None


def test_cost_follows_a_change() -> None:
    model = BatchRegression()
    for number in range(40):
        kept = 100 + 50 * (number % 3)
        model.update(kept, 0.2 + (0.001 if number < 20 else 0.002) * kept)
    assert model.cost_s == pytest.approx(0.002, rel=0.2)


def test_noise_on_equal_batches_is_not_taken_for_a_slope() -> None:
    """Batches that take 8% more or less at random under changing overload: none is let grow far beyond half the target."""
    for seed in range(20):
        dice, aurora = random.Random(seed), Aurora(2.0)
        start_s, keep, offered, periods = 0.0, 1.0, 10, []
        for number in range(150):
            kept = int(keep * offered)
            period_s = (0.4 + 0.00025 * kept) * dice.gauss(1, 0.08) if number else 3.0
            arrived = int(dice.uniform(3_000, 25_000) * period_s)
            gates = {"in": GateCount(offered, kept)}
            observation = Observation(number, start_s, start_s + period_s, gates=gates, upcoming_rows=arrived, cold=not number)
            decided = aurora.update(observation).keep
            keep = keep if decided is None else decided
            start_s, offered = start_s + period_s, arrived
            periods.append(period_s)
        assert max(periods[15:]) < 1.6


def test_cost_of_one_row_falls_as_more_rows_take_no_longer() -> None:
    model = BatchRegression()
    for kept, period_s in ((1, 0.5), (2, 0.51), (4, 0.49), (8, 0.5), (16, 0.51)):
        model.update(kept, period_s)
    assert (model.cost_s or 0.0) < 0.02
    assert model.overhead_s is None, "all but noise is constant: there is no slope to believe"


def test_empty_batches_do_not_wipe_out_what_rows_cost() -> None:
    model = BatchRegression()
    for kept in (100, 400, 200, 300, *[0] * 10_000):
        model.update(kept, 0.2 + 0.001 * kept)
    assert model.cost_s == pytest.approx(0.001)
    assert model.overhead_s == pytest.approx(0.2)
    unknown = BatchRegression()
    for kept in (5, *[0] * 10_000):
        unknown.update(kept, 0.3)
    assert (unknown.cost_s or 0.0) < 0.3


@pytest.mark.parametrize("seed", range(10))
def test_noise_on_batches_of_a_few_rows_is_no_slope(seed: int) -> None:
    dice, model = random.Random(seed), BatchRegression()
    for _ in range(50):
        model.update(dice.choice([0, 1, 1, 2, 3]), 0.5 * dice.gauss(1, 0.05))
        assert (model.overhead_s is None) or (model.cost_s or 0.0) < 0.1
    assert (model.cost_s or 0.0) < 0.1


@pytest.mark.parametrize("decay", [0.0, -1.0, 1.5])
def test_bad_decay(decay: float) -> None:
    with pytest.raises(PenstockError, match="decay"):
        BatchRegression(decay=decay)
