"""The shedder of one partition drops what the plain classes drop, tuple for tuple, whatever pieces the tuples come in."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.las import ABS, AVG, CostSketch, FullKnowledge, Las, StrawMan
from penstock.las.shedder_state import Bound, Instance, ShedderState, TuplePolicy
from penstock.las.task_shedder import TaskShedder
from penstock.las.tuple_shedder import ClockShedder

_ROWS = 2_000


def state_of(policy: TuplePolicy = "las", bound: Bound = "abs", **changes: object) -> ShedderState:
    rng = np.random.default_rng(1)
    sketch = CostSketch(0.05, 0.1, seed=3)
    sketch.add(rng.integers(0, 50, 500), rng.random(500) * 0.01)
    values: dict[str, object] = {
        "policy": policy,
        "bound": bound,
        "tau_s": 1.0,
        "margin": 0.05 if policy == "las" else 0.0,
        "phase": "RUN",
        "begin_us": 1_700_000_000_000_000,
        "mean_s": 0.004,
        "version": 1,
        "sketch": sketch,
        "instances": {0: Instance(0.2, 40.0, 80), 2: Instance(0.4, 10.0, 8)},
    }
    return ShedderState(**(values | changes))  # type: ignore[arg-type]


def oracle_of(state: ShedderState, partition: int, costs_s: dict[int, float]) -> ClockShedder:
    instance = state.instance(partition)
    constraint: ABS | AVG = ABS(state.tau_s)
    if state.bound == "avg":
        constraint = AVG(state.tau_s)
        constraint._total_s, constraint._count = instance.total_s, instance.count
    oracle: ClockShedder = FullKnowledge(constraint, costs_s.__getitem__)
    if state.policy == "las":
        oracle = Las(constraint, state.sketch)
    elif state.policy == "straw-man":
        oracle = StrawMan(constraint, state.mean_s or 0.0)
    oracle.clock_s = instance.offset_s
    return oracle


@pytest.mark.parametrize("bound", ["abs", "avg"])
@pytest.mark.parametrize("policy", ["las", "straw-man", "full-knowledge"])
@pytest.mark.parametrize("partition", [0, 1])
def test_it_drops_what_the_plain_classes_drop(policy: TuplePolicy, bound: Bound, partition: int) -> None:
    rng = np.random.default_rng([2, partition])
    keys = rng.integers(0, 60, _ROWS)
    arrivals_s = -np.sort(rng.random(_ROWS) * 2.0)[::-1] * (1.0 if bound == "abs" else 0.6)
    costs_s = {key: 1e-4 * key for key in range(60)}
    state = state_of(policy, bound)
    oracle = oracle_of(state, partition, costs_s)
    expected = [oracle.shed(int(key), float(now_s)) for key, now_s in zip(keys, arrivals_s, strict=True)]
    shedder = TaskShedder(state, partition)
    given_s = np.array([costs_s[int(key)] for key in keys])
    pieces = np.array_split(np.arange(_ROWS), 7)
    dropped = np.concatenate([np.isnan(shedder.decide(keys[piece], arrivals_s[piece], given_s[piece])) for piece in pieces])
    assert dropped.tolist() == expected
    assert 0 < dropped.sum() < _ROWS
    if bound == "avg":
        assert shedder.instance.count == state.instance(partition).count + _ROWS - sum(expected)
        assert shedder.instance.total_s / shedder.instance.count <= state.tau_s


def test_nothing_is_dropped_in_nop() -> None:
    shedder = TaskShedder(state_of(phase="NOP"), 0)
    assert not np.isnan(shedder.decide(np.arange(9), np.full(9, -1e9))).any()


def test_arrivals_that_are_no_moment_in_the_past_count_as_now() -> None:
    """A clock that is ahead must not move the operator's clock into the future, where nothing would be kept any more."""
    begins_s = TaskShedder(state_of(), 0).decide(np.zeros(3, dtype=np.int64), np.array([math.nan, 1e9, 0.0]))
    assert begins_s[0] == pytest.approx(0.2)
    assert not np.isnan(begins_s).any()


def test_costs_that_are_no_costs_count_as_nothing_and_are_counted() -> None:
    shedder = TaskShedder(state_of("full-knowledge"), 0)
    begins_s = shedder.decide(np.arange(4), np.zeros(4), np.array([math.nan, -1.0, math.inf, 0.5]))
    assert begins_s.tolist() == [0.2] * 4
    assert shedder.bad_costs == 3


def test_no_tuples() -> None:
    assert TaskShedder(state_of(), 5).decide(np.array([], dtype=np.int64), np.array([])).size == 0


@pytest.mark.parametrize("with_matrices", [True, False])
def test_a_state_is_the_same_after_the_journal(with_matrices: bool) -> None:
    state = state_of(mean_s=None)
    entries = state.to_entries(with_matrices=with_matrices)
    again = ShedderState.from_entries(entries, state.sketch)
    assert again.to_entries() == state.to_entries()
    assert again.mean_s is None
    assert all(math.isfinite(entry) for entry in entries)
