"""Values that pass between the engine and a controller."""

from __future__ import annotations

import dataclasses
import math

import pytest

from penstock.control import Decision, GateCount, Observation
from penstock.errors import PenstockError


def test_offered_is_kept_plus_shed() -> None:
    assert GateCount(10, 4).shed == 6


@pytest.mark.parametrize(("offered", "kept"), [(1, 2), (1, -1)])
def test_impossible_counts(offered: int, kept: int) -> None:
    with pytest.raises(PenstockError, match="kept must lie between 0 and offered"):
        GateCount(offered, kept)


@pytest.mark.parametrize("keep", [-0.1, 1.1, math.nan])
def test_impossible_keep(keep: float) -> None:
    with pytest.raises(PenstockError, match=r"keep must lie in \[0, 1\]"):
        Decision(keep)


def test_sums_over_gates() -> None:
    observation = Observation(0, 1.0, 3.0, gates={"a": GateCount(5, 3), "b": GateCount(2, 2)}, mean_arrival_s=0.5)
    assert (observation.offered, observation.kept, observation.period_s, observation.delay_s) == (7, 5, 2.0, 2.5)


def test_frozen_through_and_through() -> None:
    observation = Observation(0, 0.0, 1.0, gates={"a": GateCount(1, 1)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        observation.batch_id = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        observation.gates["b"] = GateCount(1, 1)  # type: ignore[index]


def test_a_clock_that_goes_back_has_no_length() -> None:
    assert Observation(0, 5.0, 4.0, mean_arrival_s=9.0).period_s == 0.0
    assert Observation(0, 5.0, 4.0, mean_arrival_s=9.0).delay_s == 0.0
