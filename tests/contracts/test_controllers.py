"""What every controller must do: the contract that ships in ``penstock.testing``, on each of ours, and on some that break it."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import control
from penstock.control import Controller, Decision, GateCount, KeepAll, MicroBatch, Observation, controller_named
from penstock.errors import PenstockError
from penstock.testing import ControllerContract

KINDS = [
    kind
    for name in control.__all__
    if isinstance(kind := getattr(control, name), type) and issubclass(kind, Controller) and kind is not Controller
]
every_controller = pytest.mark.parametrize("kind", KINDS)
CHECKS = [name for name in vars(ControllerContract) if name.startswith("test_")]

numbers = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e10)


def contract_of(kind: type[Controller]) -> ControllerContract:
    class Contract(ControllerContract):
        sheds = kind is not KeepAll

        def new_controller(self, delay_target_s: float) -> Controller:
            return kind(delay_target_s)

    return Contract()


@every_controller
@pytest.mark.parametrize("check", CHECKS)
def test_keeps_the_contract(kind: type[Controller], check: str) -> None:
    getattr(contract_of(kind), check)()


class Forgetful(MicroBatch):
    """Loses its memory."""

    def snapshot(self) -> dict[str, Any]:
        return MicroBatch(self.delay_target_s).snapshot()


class Blind(Controller):
    """Never sheds."""

    def update(self, observation: Observation) -> Decision:
        return Decision(1.0)


class Greedy(Controller):
    """Sheds whatever comes."""

    def update(self, observation: Observation) -> Decision:
        return Decision(0.0)


class Wild(Controller):
    """Answers with a ratio that is no probability."""

    def update(self, observation: Observation) -> Decision:
        return Decision(observation.kept / max(1, observation.offered - 1))


class Careless(Blind):
    """Takes any target."""

    def __init__(self, delay_target_s: float) -> None:
        self.delay_target_s = delay_target_s


@pytest.mark.parametrize(
    ("kind", "check"),
    [
        (Forgetful, "test_restored_it_goes_on_as_if_it_had_never_stopped"),
        (Blind, "test_an_overload_is_shed_and_the_delay_comes_down"),
        (Greedy, "test_an_overload_is_shed_and_the_delay_comes_down"),
        (Greedy, "test_a_light_load_is_left_alone"),
        (Wild, "test_any_observation_gets_a_probability_or_none"),
        (Careless, "test_a_target_must_be_positive"),
    ],
)
def test_the_contract_finds_what_is_broken(kind: type[Controller], check: str) -> None:
    with pytest.raises((AssertionError, PenstockError)):
        getattr(contract_of(kind), check)()


def test_there_are_controllers() -> None:
    assert {kind.__name__ for kind in KINDS} >= {"Aurora", "Ctrl", "KeepAll", "MicroBatch", "Seamless"}
    assert len(CHECKS) >= 6


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


@every_controller
@given(trace=st.lists(observations(), max_size=30))
def test_keep_stays_a_probability(kind: type[Controller], trace: list[Observation]) -> None:
    controller = kind(2.0)
    for observation in trace:
        keep = controller.update(observation).keep
        assert keep is None or 0.0 <= keep <= 1.0


@every_controller
@given(trace=st.lists(observations(), min_size=1, max_size=20), cut=st.integers(0, 20))
def test_restored_in_the_middle_it_goes_on_as_before(kind: type[Controller], trace: list[Observation], cut: int) -> None:
    whole, first = kind(2.0), kind(2.0)
    for observation in trace[:cut]:
        whole.update(observation)
        first.update(observation)
    second = kind(2.0).restore(json.loads(json.dumps(first.snapshot())))
    assert [second.update(o) for o in trace[cut:]] == [whole.update(o) for o in trace[cut:]]
