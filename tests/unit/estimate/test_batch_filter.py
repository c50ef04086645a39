"""The filter of overhead and cost: jumps, stalls, and an oracle of plain numbers."""

from __future__ import annotations

import random

import pytest

from penstock.estimate import BatchFilter


def settle(model: BatchFilter, overhead_s: float = 0.2, cost_s: float = 0.001) -> None:
    for kept in (0, 400, 500, 450, 400, 480):
        model.update(kept, overhead_s + cost_s * kept)


def test_a_jump_of_the_cost_is_taken_in_within_two_batches() -> None:
    model = BatchFilter()
    for kept in (0, 300, 500, 400, 450, 380, 420):
        model.update(kept, 0.3 + 0.001 * kept)
    for _ in range(2):
        model.update(400, 0.3 + 0.002 * 400)
    assert model.cost_s == pytest.approx(0.002, rel=0.1)
    assert model.overhead_s == pytest.approx(0.3, rel=0.25)


def test_one_size_does_not_move_the_overhead() -> None:
    """Under good control all batches are alike, and only the sum is known."""
    model = BatchFilter()
    for kept in (0, 200, 600, 400):
        model.update(kept, 0.2 + 0.001 * kept)
    before = model.overhead_s
    for _ in range(200):
        model.update(700, 0.9)
    assert model.overhead_s == pytest.approx(before, rel=0.1)
    assert (model.overhead_s or 0) + 700 * (model.cost_s or 0) == pytest.approx(0.9, rel=0.01)


def test_a_stall_leaves_no_trace() -> None:
    model, other = BatchFilter(), BatchFilter()
    for one in (model, other):
        settle(one)
    model.update(450, 30.0)
    other.update(450, 0.65)
    for one in (model, other):
        for kept in (450, 430):
            one.update(kept, 0.2 + 0.001 * kept)
    assert model.cost_s == pytest.approx(other.cost_s, rel=0.02)
    assert model.overhead_s == pytest.approx(other.overhead_s, rel=0.05)


def test_a_cost_ten_times_as_high_is_believed_when_the_next_batch_confirms_it() -> None:
    model = BatchFilter()
    settle(model)
    model.update(450, 0.2 + 0.01 * 450)
    assert model.cost_s == pytest.approx(0.001, rel=0.1), "perhaps a stall"
    model.update(440, 0.2 + 0.01 * 440)
    assert model.cost_s == pytest.approx(0.01, rel=0.1)
    assert (model.overhead_s or 0.0) < 0.5


@pytest.mark.parametrize("slow_s", [1.0, 3.0, 20.0])
def test_time_that_does_not_depend_on_rows_is_overhead(slow_s: float) -> None:
    model = BatchFilter()
    settle(model)
    for kept in (450, 150, 40, 100):  # a sink that has become slow, and a controller that sheds for it
        model.update(kept, slow_s + 0.001 * kept)
    assert model.overhead_s == pytest.approx(slow_s, rel=0.1)
    assert model.cost_s == pytest.approx(0.001, rel=0.5)


def test_two_surprises_of_one_size_say_nothing_about_the_overhead() -> None:
    model = BatchFilter()
    settle(model)
    for kept in (450, 400, 240):  # none has less than half of another's
        model.update(kept, 0.2 + 0.003 * kept)
    assert model.cost_s == pytest.approx(0.003, rel=0.1)


def test_a_cost_that_doubles_over_several_batches_is_no_overhead() -> None:
    """Rows that arrive from some moment on cost twice as much. A batch that is as long with a third fewer rows proves nothing."""
    model = BatchFilter()
    for kept in (5, 1_559, 2_260, 3_078, 2_913, 2_972, 2_980, 2_783, 2_615, 2_587, 2_827):
        model.update(kept, 0.46 + 0.00018 * kept)
    for kept, period_s in ((2_257, 1.19), (1_500, 1.14), (1_000, 1.0), (1_050, 0.95), (1_200, 1.05), (1_100, 1.0)):
        model.update(kept, period_s)
    assert (model.overhead_s or 0.0) < 0.6
    assert (model.overhead_s or 0.0) + 1_100 * (model.cost_s or 0.0) == pytest.approx(1.0, rel=0.1)


def test_one_batch_that_is_too_short_makes_neither_rows_cheap_nor_the_next_batch_overhead() -> None:
    """A lucky batch once made the next one four times as large, and its time, which had grown with its rows, an overhead."""
    model = BatchFilter()
    for kept in (1, 2, 3, 12, 303, 125, 104, 107, 106, 103, 103, 108, 97, 110, 91):
        model.update(kept, 0.5 + 0.005 * kept)
    model.update(88, 0.65)  # it should have taken 0.94 s
    assert model.cost_s == pytest.approx(0.005, rel=0.1)
    model.update(330, 2.24)
    assert model.overhead_s == pytest.approx(0.5, rel=0.1)
    assert model.cost_s == pytest.approx(0.005, rel=0.1)


def test_a_cost_that_falls_is_believed_when_the_next_batch_confirms_it() -> None:
    model = BatchFilter()
    settle(model)
    for _ in range(3):
        model.update(400, 0.2 + 0.0003 * 400)
    assert model.cost_s == pytest.approx(0.0003, rel=0.2)


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

    def __init__(self, kept: int, period_s: float) -> None:
        self.overhead_s, self.cost_s = 0.0, period_s / kept
        self.oo = (0.3 * period_s) ** 2
        self.cc, self.oc = (0.5 * period_s / kept) ** 2, -self.oo / kept
        self.settled = 0
        self.surprise: dict[str, float] | None = None
        self.before: tuple[float, float] | None = None
        self.rules: list[str] = []

    def update(self, kept: int, period_s: float) -> None:
        self.oo += (0.01 * period_s) ** 2
        self.cc += (0.05 * self.cost_s) ** 2
        expected_s, noise = self.overhead_s + self.cost_s * kept, (0.06 * period_s) ** 2
        error_s = period_s - expected_s
        cost_before_s = self.cost_s if self.surprise is None else self.surprise["cost_s"]
        now = {"rows": float(kept), "period_s": period_s, "cost_s": cost_before_s}
        if abs(error_s) <= 3.0 * (self.variance(kept) + noise) ** 0.5:
            self.rules.append("settled")
            self.settled, self.surprise = self.settled + 1, None
        elif self.is_back(kept, period_s, expected_s):
            self.rules.append("back")
            return
        elif self.surprise is None and self.settled >= 3 and (error_s < 0.0 < kept or period_s > 4.0 * max(expected_s, 1e-12)):
            self.rules.append("held off" if error_s > 0.0 else "luck")
            self.surprise = now
            return
        elif self.surprise is not None and self.depends_little_on_rows(self.surprise, kept, period_s):
            self.rules.append("overhead")
            self.jump_overhead(self.surprise["cost_s"], kept, period_s)
            return
        elif kept and not (4.0 * self.cost_s * kept < abs(error_s) <= 0.5 * expected_s):
            self.rules.append("cost")
            self.settled, self.surprise = 0, now
            self.cc += (error_s / kept) ** 2
        self.correct(kept, period_s, error_s, noise)

    def is_back(self, kept: int, period_s: float, expected_s: float) -> bool:
        """The overhead had jumped, and a batch is as short as it would have been before."""
        if self.before is None or period_s >= expected_s:
            return False
        cost_s, overhead_s = self.before
        if abs(overhead_s + cost_s * kept - period_s) > 0.3 * period_s:
            return False
        self.before = None
        self.cost_s, self.overhead_s = cost_s, overhead_s
        self.cc, self.oc, self.oo = (0.5 * cost_s) ** 2, 0.0, (0.2 * period_s) ** 2
        self.settled, self.surprise = 0, None
        return True

    @staticmethod
    def depends_little_on_rows(last: dict[str, float], kept: int, period_s: float) -> bool:
        """One has at most half of the other's rows, and took at least three quarters of the other's time."""
        smaller_s, larger_s = (period_s, last["period_s"]) if kept < last["rows"] else (last["period_s"], period_s)
        larger, smaller = max(last["rows"], kept), min(last["rows"], kept)
        if larger == 0:
            return True
        return smaller <= 0.5 * larger and smaller_s >= 0.75 * larger_s

    def jump_overhead(self, cost_s: float, kept: int, period_s: float) -> None:
        """The cost is what it was, but rows take at most half of the batch; the rest is overhead."""
        before_s = self.overhead_s
        self.cost_s = max(1e-12, min(cost_s, 0.5 * period_s / kept if kept else period_s))
        if self.before is None:
            self.before = (self.cost_s, before_s)
        self.overhead_s = period_s - self.cost_s * kept
        self.cc, self.oc, self.oo = (0.5 * self.cost_s) ** 2, 0.0, (0.2 * period_s) ** 2
        self.settled, self.surprise = 0, None

    def correct(self, kept: int, period_s: float, error_s: float, noise: float) -> None:
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


def run_both(seed: int) -> list[str]:
    """Compare the two on a trace with jumps of the cost, jumps of the overhead and stalls; return the rules that applied."""
    dice = random.Random(seed)
    overhead_s, cost_s = dice.uniform(0.05, 1.0), 10 ** dice.uniform(-6, -2)
    model, oracle = BatchFilter(), ScalarFilter(1000, overhead_s + 1000 * cost_s)
    model.update(1000, overhead_s + 1000 * cost_s)
    for _ in range(200):
        cost_s *= dice.choice([1.0] * 48 + [0.3, 3.0])
        overhead_s = dice.choice([overhead_s] * 39 + [dice.uniform(0.05, 5.0)])
        kept = dice.choice([0, dice.randint(1, 10), dice.randint(1, 100_000), 3000, 3000, 3000])
        period_s = (overhead_s + cost_s * kept) * dice.uniform(0.85, 1.15)
        if kept > 10 and dice.random() < 0.05:
            period_s *= 20.0
        model.update(kept, period_s)
        oracle.update(kept, period_s)
        # After a jump in a batch of one row the algebra cancels all but a few digits.
        assert model.cost_s == pytest.approx(oracle.cost_s, rel=1e-7)
        assert model.overhead_s == pytest.approx(oracle.overhead_s, rel=1e-7, abs=1e-9)
    return oracle.rules


@pytest.mark.parametrize("seed", range(20))
def test_batch_filter_agrees_with_the_filter_written_out_for_two_numbers(seed: int) -> None:
    run_both(seed)


def test_the_traces_of_the_oracle_meet_every_rule() -> None:
    rules = [rule for seed in range(20) for rule in run_both(seed)]
    assert all(rules.count(rule) >= 20 for rule in ("settled", "held off", "luck", "overhead", "cost"))
