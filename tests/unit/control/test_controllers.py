"""CTRL and SEaMLeSS, equation by equation, and what holds for every controller."""

from __future__ import annotations

import json

import pytest

from penstock.control import Ctrl, GateCount, Observation, Seamless, controller_named
from penstock.control.design import ControlLaw
from penstock.errors import PenstockError


def period(number: int, offered: int, kept: int, completed: int, **more: object) -> Observation:
    start_s = 0.5 * number
    gates = {"in": GateCount(offered, kept)}
    return Observation(number, start_s, start_s + 0.5, gates=gates, completed=completed, **more)  # type: ignore[arg-type]


class TestCtrl:
    def test_equation_3_by_hand(self) -> None:
        """c = 5 ms, H = 0.8: 320 queued rows are a delay of 2 s; then the error is 0."""
        ctrl = Ctrl(2.0, cost_s=0.005, headroom=0.8)
        first = ctrl.update(period(0, 400, 400, 80))
        assert ctrl.queue == 320
        assert ctrl.estimated_delay_s == pytest.approx(2.0)
        # e = 0, u = 0: as many may come in as left, 80 of 400 rows.
        assert first.keep == pytest.approx(0.2)
        second = ctrl.update(period(1, 400, 80, 160))
        # 240 queued: y = 1.5, e = 0.5, u = 0.4 * 0.5 * H / c = 32 rows more than left.
        assert second.keep == pytest.approx((160 + 32) / 400)
        third = ctrl.update(period(2, 400, 112, 112))
        # e stays: u = (0.4 - 0.31) * 0.5 * 160 + 0.8 * 32 = 7.2 + 25.6.
        assert third.keep == pytest.approx((112 + 32.8) / 400)

    def test_what_could_have_left_counts_where_nothing_is_left(self) -> None:
        """An idle server: u = 0.4 * 2 * H / c = 128 rows, and H T / c = 80 could have left; 400 rows come in."""
        ctrl = Ctrl(2.0, cost_s=0.005, headroom=0.8)
        assert ctrl.update(period(0, 400, 40, 40)).keep == pytest.approx((128 + 80) / 400)

    def test_more_out_than_in_reads_as_an_empty_queue(self) -> None:
        ctrl = Ctrl(2.0, cost_s=0.005, headroom=0.99)
        for number in range(20):
            decision = ctrl.update(period(number, 250, 250, 500))
        assert ctrl.queue == 0
        assert decision.keep == 1.0

    def test_the_cost_is_learned_if_it_is_not_given(self) -> None:
        ctrl = Ctrl(2.0, headroom=1.0)
        for number in range(30):
            ctrl.update(period(number, 200, 200, 100, busy_s=0.5))
        assert ctrl._load.cost_s == pytest.approx(0.005)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"cost_s": 0.0}, "cost_s must be positive, got 0"),
            ({"headroom": 0.0}, r"headroom must lie in \(0, 1\], got 0"),
            ({"headroom": 1.2}, r"headroom must lie in \(0, 1\], got 1.2"),
        ],
    )
    def test_bad_options(self, options: dict[str, float], message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            Ctrl(2.0, **options)

    def test_another_law(self) -> None:
        quick, slow = Ctrl(2.0, 0.005, 1.0, ControlLaw.converging_in(1)), Ctrl(2.0, 0.005, 1.0, ControlLaw.converging_in(20))
        full = period(0, 600, 600, 100)
        assert (quick.update(full).keep or 0.0) < (slow.update(full).keep or 0.0)


class TestSeamless:
    def test_equations_4_to_6_by_hand(self) -> None:
        law = Seamless(2.0, cost_s=0.005, headroom=0.8, coefficients={"join": 0.002})
        decision = law.update(period(0, 400, 400, 80, backlog_rows={"source": 160, "join": 400}))
        assert law.queued_load_s == pytest.approx(160 * 0.005 + 400 * 0.002)
        assert law.estimated_delay_s == pytest.approx(2.0)
        assert decision.keep == pytest.approx(0.8 * 0.5 / (400 * 0.005))  # u = 0: H T of 2 s of work
        later = law.update(period(1, 400, 80, 80, backlog_rows={"source": 160, "join": 200}))
        # qL = 1.2, y = 1.5, e = 0.5, u = H * 0.4 * 0.5 = 0.16.
        assert later.keep == pytest.approx((0.16 + 0.4) / 2.0)

    def test_without_queues_the_rows_inside_are_the_queued_load(self) -> None:
        law = Seamless(2.0, cost_s=0.005, headroom=0.8)
        assert law.update(period(0, 400, 400, 80)).keep == pytest.approx(0.4 / 2.0)
        assert law.queued_load_s == pytest.approx(320 * 0.005)

    def test_a_wait_behind_a_cap_does_not_lower_the_headroom(self) -> None:
        """Batches of 1.3 s, one after the other, whose rows have waited in the source for minutes."""
        law = Seamless(2.0, adjust_every=3)
        for number in range(12):
            start_s = 1.3 * number
            gates = {"in": GateCount(2000, 1000)}
            law.update(Observation(number, start_s, start_s + 1.3, gates=gates, keep=0.5, mean_arrival_s=start_s - 200.0))
        assert law.headroom > 0.25
        # 2.6 s is the longest that a row can have waited since it could come in, which is 1.3 targets.
        assert law.headroom == pytest.approx(0.8 / 1.3**4)

    def test_headroom_follows_the_real_delay_while_shedding(self) -> None:
        law = Seamless(2.0, cost_s=0.005, headroom=0.8, adjust_every=3)
        for number in range(2):
            law.update(period(number, 100, 50, 50, keep=0.5, mean_arrival_s=0.5 * number + 0.5 - 4.0))
        assert law.headroom == 0.8
        # Not shedding: this one does not count.
        law.update(period(2, 100, 100, 50, keep=1.0, mean_arrival_s=-100.0))
        law.update(period(3, 100, 50, 50, keep=0.5, mean_arrival_s=2.0 - 4.0))
        assert law.headroom == pytest.approx(0.8 * 2.0 / 4.0)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"adjust_every": 0}, "adjust_every must be at least 1 period, got 0"),
            ({"coefficients": {"join": -1.0}}, "queue 'join' must not be negative, got -1"),
            ({"headroom": 2.0}, "headroom"),
        ],
    )
    def test_bad_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(PenstockError, match=message):
            Seamless(2.0, **options)  # type: ignore[arg-type]


EVERY = ["aurora", "ctrl", "keep-all", "micro-batch", "seamless"]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("step_s", [5e-324, 1e-308, 1e-300, 1e-200])
@pytest.mark.parametrize("upcoming_rows", [None, 0, 1000])
def test_a_clock_that_hardly_moves_is_one_that_stands_still(name: str, step_s: float, upcoming_rows: int | None) -> None:
    """Rows over a time of next to nothing make a rate beyond all numbers."""
    controller = controller_named(name, 2.0)
    for number in range(4):
        start_s = number * step_s
        gates = {"in": GateCount(1000, 500)}
        observation = Observation(number, start_s, start_s + step_s, gates=gates, busy_s=step_s, upcoming_rows=upcoming_rows)
        assert controller.update(observation).keep in (None, 1.0)
    # What it remembers is finite: JSON has no other numbers.
    json.dumps(controller.snapshot(), allow_nan=False)
    for number in range(4, 12):
        gates = {"in": GateCount(10, 10)}
        decision = controller.update(Observation(number, number, number + 0.1, gates=gates, busy_s=0.1, upcoming_rows=10))
    assert decision.keep in (None, 1.0)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("apart_s", [5e-324, 1e-308, 1e-300])
def test_batches_that_start_at_nearly_the_same_time_make_no_infinite_rate(name: str, apart_s: float) -> None:
    controller = controller_named(name, 2.0)
    for number in range(6):
        kept = 100 * (number + 1)
        observation = Observation(number, number * apart_s, 0.2 + 0.0001 * kept, gates={"in": GateCount(kept, kept)})
        assert controller.update(observation).keep in (None, 1.0), "60 ms of work in 0.26 s are no overload"
    json.dumps(controller.snapshot(), allow_nan=False)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("upcoming_rows", [None, 0])
def test_a_long_time_without_rows_leaves_the_cost_a_number(name: str, upcoming_rows: int | None) -> None:
    controller = controller_named(name, 2.0)
    for number in range(9_000):
        gates = {"in": GateCount(5, 5) if number == 3 else GateCount(0, 0)}
        observation = Observation(number, number, number + 0.3, gates=gates, upcoming_rows=upcoming_rows)
        assert controller.update(observation).keep in (None, 1.0), number
    json.dumps(controller.snapshot(), allow_nan=False)
