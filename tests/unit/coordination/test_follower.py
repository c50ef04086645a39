"""Following the coordinator's plans."""

from __future__ import annotations

import pytest

from penstock.coordination import (
    COORDINATOR,
    Follower,
    Message,
)
from penstock.coordination.agent import Agent
from tests.unit.coordination.engine import PACE, figure1


def test_a_plan_needs_no_scaling_when_rates_change() -> None:
    """Plans name flows, so the share of a batch follows from its size: twice the rows, half the share."""
    follower = Follower(figure1(), "A")
    plan = {"number": 1, "flows": {"i1": 50.0, "i2": 100.0}, "keep": {}}
    for number, (kind, body) in enumerate((("plan", plan), ("announce", {"number": 1}))):
        follower.receive(Message(COORDINATOR, "A", 1, number, kind, body, 0.0))
    agent = Agent(figure1(), "A", follower, None, PACE, queries={"a1": ["a1"], "a2": ["a2"]}, clock=lambda: 0.0)
    kept = [rows * agent.decide_batch("a1", {"i1": rows}, PACE * turn)["i1"] for turn, rows in enumerate([200] * 8 + [400] * 8)]
    assert sum(kept[2:8]) / 6 == pytest.approx(50.0 * PACE, rel=0.02)
    assert sum(kept[10:]) / 6 == pytest.approx(50.0 * PACE, rel=0.02)


def test_a_plan_that_comes_again_is_not_forgotten() -> None:
    follower = Follower(figure1(), "A")
    for number in range(1, 300):
        body = {"number": number, "flows": {"i1": float(number)}, "keep": {}}
        follower.receive(Message(COORDINATOR, "A", 1, number, "plan", body, 0.0))
    for kind in ("announce", "plan"):
        follower.receive(Message(COORDINATOR, "A", 1, 500, kind, {"number": 3, "flows": {"i1": 3.0}, "keep": {}}, 0.0))
    assert follower.decide({}).flows == {"i1": 3.0}
    assert not [kind for _, kind, _ in follower.take_messages() if kind == "request"]
