"""What controllers tell people of what they have learnt."""

from __future__ import annotations

import pytest

from penstock.control import Aurora, Controller, Ctrl, Decision, GateCount, KeepAll, MicroBatch, Observation, Seamless


def feed(controller: Controller) -> None:
    for number, kept in enumerate((0, 400, 800, 200, 600, 500, 100)):
        times = {"start_s": 10.0 * number, "end_s": 10.0 * number + 0.2 + 0.001 * kept}
        controller.update(Observation(number, gates={"in": GateCount(kept, kept)}, upcoming_rows=500, **times))


@pytest.mark.parametrize(
    "controller", [MicroBatch(2.0), Aurora(2.0), Ctrl(2.0), Seamless(2.0)], ids=lambda one: type(one).__name__
)
def test_cost_and_overhead_as_learnt(controller: Controller) -> None:
    feed(controller)
    learnt = controller.learnt()
    assert learnt["cost_s"] == pytest.approx(0.001, rel=0.1)
    assert learnt["overhead_s"] == pytest.approx(0.2, rel=0.2)
    assert 0.0 < learnt["batch_time_s"] <= 2.0


def test_nothing_is_known_at_first() -> None:
    assert "cost_s" not in MicroBatch(2.0).learnt()
    assert KeepAll(2.0).learnt() == {}


def test_a_controller_of_a_user_need_not_know_of_it() -> None:
    class Half(Controller):
        def update(self, observation: Observation) -> Decision:
            return Decision(0.5)

    assert Half(1.0).learnt() == {}
