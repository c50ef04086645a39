"""Whether rows pile up behind a cap."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.control import GateCount, Observation
from penstock.control.source_lag import SourceLag


def batches(
    ages_s: list[float], *, size: int = 1_000, kept: int = 1_000, apart_s: float = 1.0, length_s: float = 1.0
) -> Iterator[Observation]:
    """Batches that start ``apart_s`` apart, whose rows have these mean ages when they start."""
    for number, age_s in enumerate(ages_s):
        start_s = 100.0 + apart_s * number
        gates = {"in": GateCount(size, kept)}
        arrival = {"mean_arrival_s": start_s - age_s} if kept else {"mean_expired_arrival_s": start_s - age_s, "expired": size}
        yield Observation(number, start_s, start_s + length_s, gates, upcoming_rows=size, **arrival)  # type: ignore[arg-type]


def watch(observations: Iterator[Observation]) -> SourceLag:
    lag = SourceLag()
    for observation in observations:
        lag.update(observation)
    return lag


def test_an_uncapped_source_is_not_behind() -> None:
    lag = SourceLag()
    for number, (rows, age_s) in enumerate(((900, 0.5), (1_100, 1.5), (1_300, 2.5), (1_000, 3.5), (1_200, 4.5))):
        gates = {"in": GateCount(rows, rows)}
        lag.update(Observation(number, number, number + 1.0, gates, mean_arrival_s=number - age_s, upcoming_rows=rows))
    assert not lag.is_capped
    assert not lag.is_behind


def test_batches_that_are_alike_because_all_are_in_step_are_not_capped() -> None:
    """A steady rate under good control: every batch has the rows of one batch time, and they waited for half of it."""
    assert not watch(batches([0.5] * 10)).is_capped
    assert watch(batches([0.9] * 10)).is_capped


def test_batches_of_one_size_with_rows_that_get_older_are_behind() -> None:
    lag = watch(batches([1.0, 1.5, 2.0, 2.5]))
    assert lag.is_capped
    assert lag.is_behind
    assert not lag.is_hopeless
    # 0.5 s of arrivals per batch of 1,000 rows.
    assert lag.rate == pytest.approx(2_000, rel=0.05)
    assert lag.pace_s == pytest.approx(0.5, rel=0.05)


def test_batches_of_one_size_are_no_lag_while_their_rows_are_young() -> None:
    """A steady source at a steady pace: however the ages waver, no row is older than since the last batch."""
    dice = random.Random(1)
    lag = SourceLag()
    for observation in batches([dice.uniform(0.0, 1.0) for _ in range(500)], size=4, kept=4):
        lag.update(observation)
        assert not lag.is_behind
    for observation in batches([0.3, 0.5, 0.7, 0.9], size=4, kept=4):
        lag.update(observation)
    assert not lag.is_behind


def test_old_rows_that_get_no_older_are_no_lag() -> None:
    """A clock that is behind by a minute."""
    assert not watch(batches([60.0] * 10)).is_behind


def test_it_ends_with_the_cap() -> None:
    lag = watch(batches([1.0, 1.5, 2.0, 2.5]))
    last = list(batches([3.0] * 5))[-1]
    lag.update(replace(last, upcoming_rows=400))
    assert not lag.is_capped
    assert not lag.is_behind
    assert lag.pace_s == math.inf


def test_rows_that_get_older_though_hardly_anything_is_kept_are_hopeless() -> None:
    ages = [1.0 + 0.5 * number for number in range(8)]
    assert watch(batches(ages, kept=0)).is_hopeless
    assert watch(batches(ages, kept=20)).is_hopeless
    assert not watch(batches(ages, kept=21)).is_hopeless
    assert not watch(batches(ages[:5], kept=0)).is_hopeless, "within ten batches, not at once"


def test_a_little_older_is_not_hopeless() -> None:
    """Batch times vary: rows must get older by more than a tenth of the time that passes."""
    assert not watch(batches([1.5 + 0.05 * number for number in range(20)], kept=0)).is_hopeless


def test_hope_returns_when_rows_get_younger() -> None:
    lag = watch(batches([1.0 + 0.5 * number for number in range(8)], kept=0))
    assert lag.is_hopeless
    for observation in batches([4.0, 3.0, 2.0, 1.0], kept=0):
        arrival_s = (observation.mean_expired_arrival_s or 0.0) + 100.0
        lag.update(replace(observation, start_s=observation.start_s + 100.0, mean_expired_arrival_s=arrival_s))
    assert not lag.is_hopeless


def test_where_rows_have_no_age_what_is_left_in_the_source_tells_it() -> None:
    """4,000 rows/s arrive and batches of a second take 1,500: 2,500 more are left with each."""
    lag = SourceLag()
    for number in range(8):
        gates = {"in": GateCount(1_500, 500)}
        observation = Observation(number, number, number + 1.0, gates, upcoming_rows=1_500, left_rows=2_500 * (number + 1))
        lag.update(observation)
    assert lag.rate == pytest.approx(4_000)
    assert lag.is_capped
    assert lag.is_behind
    assert lag.oldest_age_s(replace(observation, taken_s=8.5)) == pytest.approx(2_500 * 8 / 4_000 + 1.5)


def test_a_source_that_leaves_nothing_is_not_capped() -> None:
    lag = SourceLag()
    for number in range(8):
        rows = 1_000 + 100 * (number % 3)
        lag.update(Observation(number, number, number + 1.0, {"in": GateCount(rows, rows)}, upcoming_rows=rows, left_rows=0))
    assert not lag.is_capped
    assert not lag.is_behind
    assert lag.oldest_age_s(Observation(9, 9.0, 10.0)) == 0.0


@pytest.mark.parametrize("sizes", [[0, 0, 0, 0], [1_000, 0, 1_000, 0]])
def test_empty_batches_are_no_cap(sizes: list[int]) -> None:
    lag = SourceLag()
    for number, size in enumerate(sizes):
        lag.update(Observation(number, number, number + 1.0, {"in": GateCount(size, size)}, upcoming_rows=size))
    assert not lag.is_capped


def test_a_clock_that_stands_still_makes_no_infinite_rate() -> None:
    lag = SourceLag()
    for number in range(6):
        gates = {"in": GateCount(1_000, 1_000)}
        lag.update(Observation(number, 5.0, 5.0, gates, mean_arrival_s=4.0 - number, upcoming_rows=1_000, left_rows=10))
    assert lag.rate is None or math.isfinite(lag.rate)
