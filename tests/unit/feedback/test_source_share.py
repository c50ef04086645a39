"""The share that producers should send: it follows what the gate keeps, and returns to all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.feedback.source_share import SourceShare


class Plant:
    """Producers that follow the share, a topic, and a job that takes so many rows a second."""

    def __init__(self, capacity: float, lag_s: int, listening: float = 1.0) -> None:
        self.capacity, self.listening = capacity, listening
        self.shares = [1.0] * (lag_s + 1)
        self.source = SourceShare(settle_s=max(1.0, 2.0 * lag_s))
        self.now_s = 0.0
        self.sent = self.kept = 0.0

    def run(self, rate: float, seconds: int) -> None:
        for _ in range(seconds):
            effective = self.listening * self.shares[0] + 1.0 - self.listening
            offered = rate * effective
            kept = min(offered, self.capacity)
            self.now_s += 1.0
            self.sent, self.kept = offered, kept
            self.shares = [*self.shares[1:], self.source.update(round(offered), round(kept), self.now_s)]


@given(
    capacity=st.floats(100.0, 1e5), overload=st.floats(1.3, 50.0), lag_s=st.integers(0, 8), listening=st.sampled_from([1.0, 0.6])
)
@settings(max_examples=60, deadline=None)
def test_it_spares_the_network_and_starves_no_job(capacity: float, overload: float, lag_s: int, listening: float) -> None:
    plant = Plant(capacity, lag_s, listening)
    plant.run(capacity * overload, 60 * (lag_s + 1))
    worst_sent = worst_kept = None
    for _ in range(40 * (lag_s + 1)):
        plant.run(capacity * overload, 1)
        worst_kept = min(plant.kept, plant.kept if worst_kept is None else worst_kept)
        worst_sent = max(plant.sent, plant.sent if worst_sent is None else worst_sent)
    assert worst_kept is not None
    assert worst_sent is not None
    deaf = capacity * overload * (1.0 - listening)
    assert worst_sent <= 1.35 * capacity + deaf + 1.0, "producers that listen send hardly more than the job takes"
    if deaf < 0.5 * capacity:
        assert worst_kept >= 0.75 * capacity, "and hardly less"


@given(capacity=st.floats(100.0, 1e4), overload=st.floats(2.0, 20.0), lag_s=st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_after_the_burst_all_is_sent_again(capacity: float, overload: float, lag_s: int) -> None:
    plant = Plant(capacity, lag_s)
    plant.run(capacity * overload, 100)
    assert plant.source.share < 1.0
    plant.run(0.5 * capacity, 25 * (2 * lag_s + 2))
    assert plant.source.share == 1.0


def test_a_job_that_is_idle_lets_the_share_grow() -> None:
    source = SourceShare(settle_s=1.0)
    assert source.update(100, 10, 0.0) == pytest.approx(0.1 / 0.95)
    for second in range(1, 3):
        assert source.update(0, 0, float(second)) == pytest.approx(0.1 / 0.95), "it may be stuck in a batch"
    for second in range(3, 30):
        source.update(0, 0, float(second))
    assert source.share == 1.0


def test_nothing_shed_leaves_it_alone_and_a_floor_stays() -> None:
    source = SourceShare(settle_s=1.0, floor=0.2)
    assert source.update(0, 0, 0.0) == 1.0
    assert source.update(100, 100, 0.0) == 1.0
    assert source.update(100, 90, 1.0) == 1.0, "within the slack"
    assert source.update(100, 0, 2.0) == 0.2


def test_a_clock_that_steps_back_does_not_stop_it() -> None:
    source = SourceShare(settle_s=10.0)
    source.update(100, 50, 1000.0)
    assert source.update(100, 50, 10.0) < 0.5 / 0.95


@pytest.mark.parametrize(
    ("options", "said"), [({"settle_s": 0.0}, "settle_s must be positive"), ({"floor": 0.0}, "floor must lie")]
)
def test_bad_options_are_named(options: dict[str, float], said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        SourceShare(**options)
