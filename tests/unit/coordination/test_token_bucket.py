"""How much of a batch may pass."""

from __future__ import annotations

import pytest

from penstock.coordination.token_bucket import TokenBucket


def test_a_batch_keeps_what_may_pass() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    bucket.add_batch(1000, 10.0)
    assert bucket.admit(1000, 100.0) == pytest.approx(0.25)  # the first: what a quarter more than a pace lets pass
    bucket.add_batch(1000, 12.0)
    assert bucket.rate == pytest.approx(500.0)
    assert bucket.admit(1000, 100.0) == pytest.approx(0.2)
    assert bucket.admit(1000, None) == 1.0
    assert bucket.admit(0, 100.0) == 1.0


def test_an_arc_that_brings_two_batches_and_then_none_has_a_steady_rate() -> None:
    bucket = TokenBucket(2.0, is_steady=False)
    now, kept = 0.0, 0.0
    for turn in range(40):
        now += 2.0
        rows = 400 if turn % 2 else 0
        if rows:
            bucket.add_batch(rows, now)
            kept += rows * bucket.admit(rows, 100.0)
    assert bucket.rate == pytest.approx(100.0, rel=0.3)
    assert kept == pytest.approx(8000, rel=0.03)


def test_swings_make_up_for_each_other() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    sizes = []
    for turn in range(40):
        bucket.add_batch(1000, 2.0 * turn)
        sizes.append(1000 * bucket.admit(1000, 100.0, 0.1 if turn % 2 else 0.0))
    assert sum(sizes[1:]) / 39 == pytest.approx(200.0, rel=0.02)
    assert max(sizes[20:]) > 1.15 * min(sizes[20:])


def test_a_rate_expires_when_nothing_arrives() -> None:
    bucket = TokenBucket(2.0, is_steady=True)
    bucket.add_batch(1000, 10.0)
    bucket.expire(12.0)
    assert bucket.rate > 0
    bucket.expire(30.0)
    assert bucket.rate == 0
