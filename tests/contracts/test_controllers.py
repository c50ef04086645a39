"""What every controller must do; a new one is found by itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import control
from penstock.control import Controller, Decision, GateCount, Observation, controller_named
from penstock.errors import PenstockError

KINDS = [
    kind
    for name in control.__all__
    if isinstance(kind := getattr(control, name), type) and issubclass(kind, Controller) and kind is not Controller
]
every_controller = pytest.mark.parametrize("kind", KINDS)

numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e10)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    offered = draw(st.integers(0, 10**9))
    return Observation(
        batch_id=draw(st.integers(-1, 10**6)),
        start_s=draw(numbers),
        end_s=draw(numbers),
        gates={"in": GateCount(offered, draw(st.integers(0, offered)))},
        keep=draw(st.floats(0, 1)),
        busy_s=draw(st.floats(0, 1e6)),
        mean_arrival_s=draw(st.none() | numbers),
        backlog_rows={"source0": draw(st.integers(0, 10**9))},
        upcoming_rows=draw(st.none() | st.integers(0, 10**9)),
        waited_s=draw(st.none() | st.floats(0, 1e10)),
        taken_s=draw(st.none() | numbers),
        completed=draw(st.none() | st.integers(0, 10**9)),
        cold=draw(st.booleans()),
    )


def batch(number: int, rows: int, period_s: float = 1.0, **more: Any) -> Observation:
    start_s = 1000.0 + number
    return Observation(number, start_s, start_s + period_s, gates={"in": GateCount(rows, rows)}, busy_s=period_s, **more)


def test_there_are_controllers() -> None:
    assert {kind.__name__ for kind in KINDS} >= {"Aurora", "Ctrl", "KeepAll", "MicroBatch", "Seamless"}


@every_controller
@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_refuses_a_target_that_is_none(kind: type[Controller], target: float) -> None:
    with pytest.raises(PenstockError, match="delay_target_s must be positive"):
        kind(target)


@every_controller
def test_is_found_by_its_name(kind: type[Controller]) -> None:
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("-")
    assert type(controller_named(name, 2.0)) is kind


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(PenstockError, match=r"unknown controller 'pid': there are aurora, ctrl, keep-all, micro-batch, seamless"):
        controller_named("pid", 2.0)


@every_controller
def test_first_call_and_empty_batches(kind: type[Controller]) -> None:
    controller = kind(2.0)
    for number in range(3):
        assert isinstance(controller.update(batch(number, 0, period_s=0.0)), Decision)


@every_controller
def test_the_same_moment_twice(kind: type[Controller]) -> None:
    controller = kind(2.0)
    same = batch(0, 100)
    first = controller.update(same)
    assert isinstance(first, Decision)
    assert isinstance(controller.update(same), Decision)


@every_controller
@given(seen=st.lists(observations(), max_size=30))
def test_keep_stays_a_probability(kind: type[Controller], seen: list[Observation]) -> None:
    controller = kind(2.0)
    for observation in seen:
        keep = controller.update(observation).keep
        assert keep is None or 0.0 <= keep <= 1.0


@every_controller
@given(seen=st.lists(observations(), min_size=1, max_size=20), cut=st.integers(0, 20))
def test_restored_in_the_middle_it_goes_on_as_before(kind: type[Controller], seen: list[Observation], cut: int) -> None:
    whole, first = kind(2.0), kind(2.0)
    before, after = seen[:cut], seen[cut:]
    for observation in before:
        whole.update(observation)
        first.update(observation)
    second = kind(2.0).restore(json.loads(json.dumps(first.snapshot())))
    assert [second.update(o) for o in after] == [whole.update(o) for o in after]


@every_controller
def test_light_load_is_left_alone(kind: type[Controller]) -> None:
    """Ten rows a second that cost a millisecond each, in batches of a tenth of a second."""
    controller = kind(2.0)
    keeps = [
        controller.update(Observation(n, 10.0 + n, 10.11 + n, gates={"in": GateCount(10, 10)}, busy_s=0.05)).keep
        for n in range(20)
    ]
    assert keeps[-1] in (None, 1.0)
