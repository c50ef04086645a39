"""CTRL and SEaMLeSS, equation by equation, and MicroBatch's law."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from penstock.control import Ctrl, GateCount, MicroBatch, Observation, Seamless, controller_named
from penstock.control.design import ControlLaw
from penstock.errors import PenstockError
from penstock.estimate import BatchFilter


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
        # e = 0, u = 0: only what is processed meanwhile may come in, H T / c = 80 of 400 rows.
        assert first.keep == pytest.approx(0.2)
        second = ctrl.update(period(1, 400, 80, 160))
        # 240 queued: y = 1.5, e = 0.5, u = 0.4 * 0.5 * H / c = 32 rows more.
        assert second.keep == pytest.approx((80 + 32) / 400)
        third = ctrl.update(period(2, 400, 112, 112))
        # e stays: u = (0.4 - 0.31) * 0.5 * 160 + 0.8 * 32 = 7.2 + 25.6.
        assert third.keep == pytest.approx((80 + 32.8) / 400)

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


def batch(number: int, start_s: float, length_s: float, kept: int, offered: int, upcoming: int | None) -> Observation:  # noqa: PLR0917
    gates = {"in": GateCount(offered, kept)}
    return Observation(number, start_s, start_s + length_s, gates=gates, upcoming_rows=upcoming, waited_s=length_s)


class TestMicroBatch:
    def test_the_law_by_hand(self) -> None:
        """o = 0.2 s, c = 1 ms, half of 0.97 D is 0.97 s. The last batch took 0.82 s: half of the spare 0.15 s may be used."""
        law = MicroBatch(2.0, worst=0.97)
        law.update(batch(0, 0.0, 0.2, 0, 0, 10))
        for number in range(1, 12):
            decision = law.update(batch(number, number, 0.2 + 0.4 + 0.02 * number, 400 + 20 * number, 2000, 1500))
        assert law.model.overhead_s == pytest.approx(0.2, abs=0.02)
        assert law.model.cost_s == pytest.approx(0.001, rel=0.05)
        assert decision.keep == pytest.approx((0.97 + 0.075 - 0.2) / 1.5, rel=0.05)
        # A batch of 1.5 s has used up the time of the next one: 1.94 - 1.5 = 0.44 s, that is 240 rows.
        assert law.update(batch(12, 20.0, 1.5, 1300, 2000, 2000)).keep == pytest.approx(240 / 2000, rel=0.2)

    def test_a_first_burst_passes_and_a_backlog_after_a_restart_does_not(self) -> None:
        law = MicroBatch(2.0)
        for number in range(5):
            law.update(batch(number, number, 0.21, 10, 10, 10))
        assert law.update(batch(5, 5.0, 0.21, 10, 10, 3000)).keep == 1.0
        for number in range(6, 12):
            law.update(batch(number, number, 0.2 + 0.6, 600, 3000, 3000))
        again = MicroBatch(2.0).restore(law.snapshot())
        keep = again.update(Observation(11, 5000.0, 5000.0, upcoming_rows=1_000_000)).keep
        assert keep is not None
        assert keep * 1_000_000 < 2_000

    def test_rows_that_come_after_an_idle_hour_have_not_waited(self) -> None:
        law = MicroBatch(2.0)
        for number, kept in enumerate((0, 400, 420, 380, 410)):
            law.update(batch(number, number, 0.2 + kept / 1e3, kept, kept, kept))
        observation = Observation(9, 9.0, 9.6, gates={"in": GateCount(400, 400)}, upcoming_rows=700, waited_s=0.0, taken_s=3600.0)
        assert law.update(observation).keep == 1.0
        # The same after an hour in which a trigger held them back: all of the time is used up.
        assert (law.update(replace(observation, upcoming_rows=5000, waited_s=3600.0)).keep or 0.0) < 0.05

    def test_a_target_below_the_overhead_is_said_once(self) -> None:
        law = MicroBatch(0.5)
        notes = [law.update(batch(n, n, 0.4 + 0.001 * k, k, 100, 100)).note for n, k in enumerate((0, 50, 100, 20, 80))]
        said = [note for note in notes if note]
        assert len(said) == 1
        assert "delay target of 0.5 s can't be reached" in said[0]
        assert "least target is about 0.8" in said[0]

    def test_bad_worst(self) -> None:
        with pytest.raises(PenstockError, match=r"worst must lie in \[0.1, 2\], got 0"):
            MicroBatch(2.0, worst=0.0)


class TestBatchFilter:
    def test_a_jump_of_the_cost_is_taken_in_within_two_batches(self) -> None:
        model = BatchFilter()
        for kept in (0, 300, 500, 400, 450, 380, 420):
            model.update(kept, 0.3 + 0.001 * kept)
        for _ in range(2):
            model.update(400, 0.3 + 0.002 * 400)
        assert model.cost_s == pytest.approx(0.002, rel=0.1)
        assert model.overhead_s == pytest.approx(0.3, rel=0.25)

    def test_one_size_does_not_move_the_overhead(self) -> None:
        """Under good control all batches are alike, and only the sum is known."""
        model = BatchFilter()
        for kept in (0, 200, 600, 400):
            model.update(kept, 0.2 + 0.001 * kept)
        before = model.overhead_s
        for _ in range(200):
            model.update(700, 0.9)
        assert model.overhead_s == pytest.approx(before, rel=0.1)
        assert (model.overhead_s or 0) + 700 * (model.cost_s or 0) == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize("first_s", [0.3, 0.5, 0.7, 1.2, 5.0])
def test_a_slow_empty_batch_at_the_start_does_not_spoil_the_cost(first_s: float) -> None:
    model = BatchFilter()
    model.update(0, first_s)
    for kept in (400, 400, 300, 400, 350, 400, 0, 400):
        model.update(kept, 0.2 + 0.001 * kept)
        assert (model.cost_s or 0.0) < 0.002
    assert model.cost_s == pytest.approx(0.001, rel=0.5)


class ScalarFilter:
    """The filter of ``BatchFilter`` written out for two numbers: the oracle for the one that is built on vectors."""

    def __init__(self) -> None:
        self.overhead_s, self.cost_s = 0.0, 0.0
        self.oo = self.oc = self.cc = 0.0

    def begin(self, kept: int, period_s: float) -> None:
        self.oo = (0.3 * period_s) ** 2
        self.cost_s = period_s / kept
        self.cc, self.oc = (0.5 * period_s / kept) ** 2, -self.oo / kept

    def update(self, kept: int, period_s: float) -> None:
        self.oo += (0.01 * period_s) ** 2
        self.cc += (0.05 * self.cost_s) ** 2
        error_s, noise = period_s - self.overhead_s - self.cost_s * kept, (0.06 * period_s) ** 2
        if kept and error_s**2 > 9.0 * (self.variance(kept) + noise):
            self.cc += (error_s / kept) ** 2
        variance = self.variance(kept) + noise
        oo, oc, cc = self.oo, self.oc, self.cc
        to_overhead, to_cost = (oo + kept * oc) / variance, (oc + kept * cc) / variance
        self.overhead_s = min(max(0.0, self.overhead_s + to_overhead * error_s), period_s)
        self.cost_s = max(1e-12, self.cost_s + to_cost * error_s)
        self.oo = max(0.0, oo - to_overhead * (oo + kept * oc))
        self.oc = oc - to_overhead * (oc + kept * cc)
        self.cc = max(0.0, cc - to_cost * (oc + kept * cc))

    def variance(self, kept: int) -> float:
        return max(0.0, self.oo + 2.0 * kept * self.oc + kept * kept * self.cc)


@pytest.mark.parametrize("seed", range(20))
def test_batch_filter_agrees_with_the_filter_written_out_for_two_numbers(seed: int) -> None:
    dice, model, oracle = random.Random(seed), BatchFilter(), ScalarFilter()
    overhead_s, cost_s = dice.uniform(0.05, 1.0), 10 ** dice.uniform(-6, -2)
    model.update(1000, overhead_s + 1000 * cost_s)
    oracle.begin(1000, overhead_s + 1000 * cost_s)
    for _ in range(200):
        cost_s *= dice.choice([1.0] * 48 + [0.3, 3.0])
        kept = dice.choice([0, dice.randint(1, 10), dice.randint(1, 100_000), 3000, 3000, 3000])
        period_s = (overhead_s + cost_s * kept) * dice.uniform(0.85, 1.15)
        model.update(kept, period_s)
        oracle.update(kept, period_s)
        # After a jump in a batch of one row the algebra cancels all but a few digits.
        assert model.cost_s == pytest.approx(oracle.cost_s, rel=1e-7)
        assert model.overhead_s == pytest.approx(oracle.overhead_s, rel=1e-7, abs=1e-9)


def test_by_arrival_short_batches_are_no_overload() -> None:
    """A short batch is mostly overhead: what its rows seem to cost must not be stretched to a batch of ten times the length."""
    law = MicroBatch(delay_target_s=20.0)
    batches = ((0.0, 0, 0.3), (0.35, 688, 0.47), (0.85, 432, 0.522), (1.4, 877, 0.53), (1.95, 1016, 0.5))  # as measured on Spark
    for number, (start, rows, took) in enumerate(batches):
        observation = Observation(number, start, start + took, gates={"in": GateCount(rows, rows)}, cold=number < 2)
        assert law.update(observation).keep in (None, 1.0), number


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
