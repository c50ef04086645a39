"""What comes in, what fits, and what a row has really waited."""

from __future__ import annotations

import pytest

from penstock.control import GateCount, Observation
from penstock.control.load_model import LoadModel


def period(number: int, offered: int, length_s: float = 0.5) -> Observation:
    start_s = length_s * number
    return Observation(number, start_s, start_s + length_s, gates={"in": GateCount(offered, offered)}, completed=0)


def batch(start_s: float, end_s: float, kept: int, **more: object) -> Observation:
    return Observation(0, start_s, end_s, gates={"in": GateCount(kept, kept)}, **more)  # type: ignore[arg-type]


class TestIncoming:
    def test_rows_in_every_period_are_those_of_the_last(self) -> None:
        load = LoadModel(2.0)
        for number, rows in enumerate((10, 20, 30)):
            load.update(period(number, rows))
            assert load.incoming(period(number, rows)) == (rows, 0.5)

    def test_a_period_without_rows_is_between_two_clumps(self) -> None:
        load = LoadModel(2.0)
        for number, rows in enumerate((100, 0, 100, 0, 200, 0, 0)):
            load.update(period(number, rows))
        # A clump per second: the last one counts a quarter.
        assert load.incoming(period(6, 0)) == (125.0, 1.0)

    def test_clumps_count_for_no_longer_than_the_target(self) -> None:
        load = LoadModel(2.0)
        load.update(period(0, 100))
        load.update(period(7200, 100))
        assert load.incoming(period(7200, 100)) == (100.0, 2.0)

    def test_before_the_first_row_nothing_comes(self) -> None:
        load = LoadModel(2.0)
        load.update(period(0, 0))
        assert load.incoming(period(0, 0)) == (0.0, 0.5)

    def test_the_rows_of_a_batch_came_while_the_one_before_ran(self) -> None:
        load = LoadModel(2.0)
        load.update(batch(0.0, 0.8, 10))
        load.update(batch(0.8, 1.0, 400))
        assert load.incoming(batch(0.8, 1.0, 400)) == (400.0, 0.8)
        # At 400 rows in 0.8 s, a batch of half the target gathers 500.
        assert load.expect_batch(batch(0.8, 1.0, 400)) == pytest.approx(500.0)
        assert load.expect_batch(batch(0.8, 1.0, 400, upcoming_rows=70)) == 70.0


class TestBatches:
    def test_at_least_the_rows_fit_that_are_known_to(self) -> None:
        """10 rows took 0.2 s, so 50 take a second at most, whatever they cost."""
        load = LoadModel(2.0, cost_s=0.5)
        assert load.count_fitting(batch(0.0, 0.2, 10), 0.97) == pytest.approx(50.0)
        # A batch that took longer than half the target proves nothing.
        assert load.count_fitting(batch(0.0, 1.5, 10), 0.97) == pytest.approx(0.97 / 0.5)
        assert load.count_fitting(batch(0.0, 1.5, 0), 0.1) == 1.0

    def test_the_headroom_is_what_the_overhead_leaves_of_a_batch(self) -> None:
        load = LoadModel(2.0)
        assert load.headroom == 0.97
        for kept in (100, 400, 200, 300):
            load.update(batch(0.0, 0.4 + 0.001 * kept, kept))
        assert load.headroom == pytest.approx(0.6, abs=0.01)

    def test_a_delay_counts_from_when_the_row_could_come_in(self) -> None:
        load = LoadModel(2.0)
        load.update(batch(0.0, 1.0, 10))
        load.update(batch(1.0, 1.7, 10))
        assert load.measure_delay(batch(1.0, 1.7, 10, mean_arrival_s=0.5)) == pytest.approx(1.2)
        assert load.measure_delay(batch(1.0, 1.7, 10, mean_arrival_s=-500.0)) == pytest.approx(1.7)
        assert load.measure_delay(batch(1.0, 1.7, 10)) is None
