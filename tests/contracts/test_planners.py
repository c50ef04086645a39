"""What every planner promises; a new one is found by itself."""

from __future__ import annotations

import inspect
import pkgutil

import pytest

import penstock.planning
from penstock.planning import PLANNERS, Planner
from penstock.planning.workload import Exponential
from tests.networks import figure1, figure7


def test_every_planner_class_is_listed() -> None:
    for module in pkgutil.iter_modules(penstock.planning.__path__):
        __import__(f"penstock.planning.{module.name}")
    found = set()
    queue = [Planner]
    while queue:
        queue += (classes := queue.pop().__subclasses__())
        found |= {cls for cls in classes if cls.__module__.startswith("penstock.") and not inspect.isabstract(cls)}
    assert found == set(PLANNERS.values())


@pytest.mark.parametrize("name", sorted(PLANNERS))
@pytest.mark.parametrize("network", [figure1(), figure7()], ids=["chains", "split"])
def test_plans_are_feasible_and_worth_something(name: str, network: object) -> None:
    options = {
        "early-fit": {"error": 0.01},
        "solver-w": {"workload": Exponential([0.5] * len(network.inputs), [1.0] * len(network.inputs))},
    }
    planner = PLANNERS[name](network, **options.get(name, {}))
    for load in (0.05, 0.2, 0.5, 1.0):
        plan = planner.plan(dict.fromkeys(network.inputs, load))
        assert plan.feasible
        assert all(0.0 <= keep <= 1.0 for keep in plan.keep.values())
        assert plan.score > 0
        assert plan == planner.plan(dict.fromkeys(network.inputs, load))


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_every_planner_says_what_it_does(name: str) -> None:
    assert inspect.getdoc(PLANNERS[name])
