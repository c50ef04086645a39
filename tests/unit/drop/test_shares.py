"""How a keep is shared out: alike, by priority, by bucket."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.drop.priorities import Priorities
from penstock.drop.shares import BucketShares, EqualShare, PriorityShares, Shares, WorkReading
from penstock.las.bucket_keeps import BucketKeeps


def every_kind() -> list[Shares]:
    model = BucketKeeps(3)
    model.update(np.full(3, 10.0), np.array([0.1, 0.2, 0.4]), np.ones(3))
    return [EqualShare(), PriorityShares(Priorities("tier", {"gold": 4.0, "free": 1.0}, floor=0.05)), BucketShares(model)]


@given(keep=st.floats(0.0, 1.0), kind=st.integers(0, 2))
def test_every_kind_has_one_probability_per_class(keep: float, kind: int) -> None:
    shares = every_kind()[kind]
    entries = shares.entries(keep)
    assert len(entries) == shares.count
    assert all(type(entry) is float and 0.0 <= entry <= 1.0 for entry in entries), "as JSON and a table take them"
    assert entries == shares.entries(keep)


@pytest.mark.parametrize("kind", range(3))
def test_keep_all_keeps_all(kind: int) -> None:
    shares = every_kind()[kind]
    assert shares.entries(1.0) == (1.0,) * shares.count


def test_names_of_classes() -> None:
    assert [shares.names for shares in every_kind()] == [("all",), ("gold", "free", "(other)"), ()]


def test_without_rows_all_classes_count_as_equally_frequent() -> None:
    shares = PriorityShares(Priorities("tier", {"gold": 4.0, "free": 1.0}))
    before = shares.entries(0.5)
    shares.update_offered([0, 0, 0])
    assert shares.entries(0.5) == before
    assert sum(before) / 3 == pytest.approx(0.5)


def test_frequencies_follow_the_batches_and_older_ones_count_less() -> None:
    shares = PriorityShares(Priorities("tier", {"gold": 9.0, "free": 1.0}))
    shares.update_offered([100, 0, 0])
    assert shares.entries(0.5)[0] == pytest.approx(0.5), "gold alone"
    for _ in range(60):
        shares.update_offered([100, 100, 0])
    gold, free, _ = shares.entries(0.5)
    assert (gold, free) == (pytest.approx(0.9), pytest.approx(0.1))


def test_buckets_learn_from_rows_timed_one_by_one() -> None:
    model = BucketKeeps(2)
    shares = BucketShares(model)
    shares.put_in_force([0.5, 1.0])
    shares.update_work(WorkReading(np.array([10.0, 10.0]), np.array([0.1, 0.4]), []))
    assert model.rows.tolist() == [20.0, 10.0], "what was offered, from what was kept"
    assert np.argmax(model.costs_s) == 1


def test_buckets_learn_from_rows_timed_together() -> None:
    model = BucketKeeps(2)
    shares = BucketShares(model)
    shares.put_in_force([0.5, 1.0])
    for _ in range(40):
        totals = [
            (np.array([0]), np.array([10.0]), 0.1),
            (np.array([0, 1]), np.array([5.0, 10.0]), 0.45),
        ]
        shares.update_work(WorkReading(np.array([15.0, 10.0]), np.zeros(2), totals))
    assert model.costs_s.tolist() == pytest.approx([0.01, 0.04], rel=0.15)
    assert model.rows.tolist() == pytest.approx([30.0, 10.0])


def test_the_seconds_of_a_reading() -> None:
    rows, seconds = np.array([1.0, 2.0]), np.array([0.25, 0.5])
    assert WorkReading(rows, seconds, []).total_s == 0.75
    assert (
        WorkReading(rows, np.zeros(2), [(np.array([0]), np.array([1.0]), 2.0), (np.array([1]), np.array([2.0]), 3.0)]).total_s
        == 5.0
    )


def test_what_kinds_do_not_learn_they_ignore() -> None:
    shares = EqualShare()
    shares.update_offered([5])
    shares.update_work(WorkReading(np.zeros(1), np.zeros(1), []))
    shares.put_in_force([0.1])
    assert (shares.entries(0.5), shares.warn([5])) == ((0.5,), None)
