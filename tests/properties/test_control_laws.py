"""Laws of every controller, in the simulators: leave a light load alone, hold a heavy one, and stay sane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control import Aurora, Controller, Ctrl, MicroBatch, Seamless
from penstock.simulation.micro_batch_engine import simulate_micro_batches
from penstock.simulation.queue import simulate_queue
from penstock.simulation.traffic import constant, exponential

KINDS: list[type[Controller]] = [Aurora, Ctrl, MicroBatch, Seamless]


@pytest.mark.parametrize("how", ["by batch", "by arrival"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(load=st.floats(0.05, 0.6), overhead_s=st.floats(0.05, 0.2), cost_ms=st.floats(0.5, 5.0))
def test_below_capacity_nothing_is_shed_for_long(
    kind: type[Controller], how: str, load: float, overhead_s: float, cost_ms: float
) -> None:
    """A batch time of o / (1 - load) is at most half a second here, a quarter of the target."""
    arrivals = constant(load / cost_ms * 1e3, 60)
    run = simulate_micro_batches(arrivals, kind(2.0), cost_s=cost_ms / 1e3, overhead_s=overhead_s, how=how)  # type: ignore[arg-type]
    late = run.series["t_s"] > 20
    assert (run.series["keep"][late] == 1.0).all()


@pytest.mark.parametrize("kind", [Aurora, Ctrl, Seamless])
@settings(max_examples=25, deadline=None)
@given(load=st.floats(0.05, 0.6), seed=st.integers(0, 1000))
def test_below_capacity_the_queue_is_left_alone(kind: type[Controller], load: float, seed: int) -> None:
    run = simulate_queue(exponential(load / 0.002, 60, seed=seed), kind(2.0), cost_s=0.002)
    assert run.loss < 0.001


@pytest.mark.parametrize("kind", [Ctrl, Seamless])
@settings(max_examples=15, deadline=None)
@given(load=st.floats(1.3, 4.0), cost_ms=st.floats(1.0, 8.0))
def test_feedback_holds_the_target_whatever_the_overload(kind: type[Controller], load: float, cost_ms: float) -> None:
    run = simulate_queue(constant(load / cost_ms * 1e3, 120), kind(2.0), cost_s=cost_ms / 1e3, headroom=0.97)
    settled = run.series["t_s"] > 60
    assert np.nanmean(run.series["delay_s"][settled]) == pytest.approx(2.0, rel=0.1)


@settings(max_examples=25, deadline=None)
@given(load=st.floats(1.2, 5.0), overhead_s=st.floats(0.02, 0.5), cost_ms=st.floats(0.5, 5.0), noise=st.floats(0.0, 0.08))
def test_micro_batch_holds_batches_at_half_the_target(load: float, overhead_s: float, cost_ms: float, noise: float) -> None:
    arrivals = constant(load / cost_ms * 1e3, 60)
    run = simulate_micro_batches(arrivals, MicroBatch(2.0, worst=1.0), cost_s=cost_ms / 1e3, overhead_s=overhead_s, noise=noise)
    settled = run.series["t_s"] > 20
    # A sample comes out larger than meant by a standard deviation now and then, and the law leaves room for one.
    rows, keep = (1.0 - overhead_s) / (cost_ms / 1e3), run.series["keep"][settled].mean()
    room_s = cost_ms / 1e3 * np.sqrt(rows * (1.0 - keep))
    assert np.mean(run.series["batch_s"][settled]) == pytest.approx(1.0 - room_s, rel=0.05)
    # Within three points of the least loss for that batch time.
    least = 1.0 - (1.0 - overhead_s / 1.0) / load
    assert 1.0 - keep <= least + room_s / load + 0.03
