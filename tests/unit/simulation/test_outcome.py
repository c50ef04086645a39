"""The histogram of delays: percentiles to a known precision at any size."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.control import KeepAll
from penstock.simulation.operator_network import OperatorNetwork, simulate_network
from penstock.simulation.outcome import DelayTally, Outcome, find_bin


@pytest.mark.parametrize("scale_s", [0.01, 1.0, 500.0, 999.99, 1_000.0, 2_800.0, 1e6, 1e10])
def test_p99_at_any_size(scale_s: float) -> None:
    """Above 1,000 s it read 1,000 s."""
    delays_s = scale_s * np.random.default_rng(1).uniform(0.5, 1.5, 10_000)
    run = Outcome.of(delays_s, 2.0, delays_s.size, delays_s.size, {})
    assert run.p99_delay_s == pytest.approx(np.quantile(delays_s, 0.99), rel=0.006, abs=0.006)


def test_p99_is_never_above_the_longest() -> None:
    for longest_s in (0.001, 5.0, 1_000.0, 54_321.0, 1e15):
        assert Outcome.of(np.array([longest_s]), 2.0, 1, 1, {}).p99_delay_s <= longest_s


def test_compiled_loops_use_the_same_bins() -> None:
    delays_s = np.concatenate([np.geomspace(1e-4, 1e13, 2_000), [0.0, 0.005, 999.999, 1_000.0, 1_000.001]])
    tally = DelayTally(2.0)
    tally.add(delays_s)
    counts = np.zeros_like(tally.counts)
    for delay_s in delays_s:
        counts[find_bin(delay_s, counts.size)] += 1
    assert (counts == tally.counts).all()


def test_the_network_s_p99_does_not_saturate() -> None:
    """100 rows of 50 s each at once: the 99th leaves after 4,950 s."""
    run = simulate_network(np.zeros(100), OperatorNetwork.flat(1, 50.0), KeepAll(2.0), train=1)
    assert run.p99_delay_s == pytest.approx(4950.0, rel=0.006)
