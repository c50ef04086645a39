"""What every planner must do. New planners are discovered automatically."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import replace

import pytest

import penstock.planning
from penstock.coordination import DFitPlanner
from penstock.network import Network
from penstock.planning import PLANNERS, Exact, Plan, Planner
from penstock.planning.workload import Exponential
from penstock.testing import PlannerContract

EVERY = {**PLANNERS, DFitPlanner.name: DFitPlanner}
"""By name; D-FIT's is not among the others because it needs messages."""


def test_every_planner_class_is_listed() -> None:
    for module in pkgutil.iter_modules(penstock.planning.__path__):
        __import__(f"penstock.planning.{module.name}")
    planners = set()
    queue = [Planner]
    while queue:
        queue += (classes := queue.pop().__subclasses__())
        planners |= {cls for cls in classes if cls.__module__.startswith("penstock.") and not inspect.isabstract(cls)}
    assert planners == set(EVERY.values())


def contract_of(name: str) -> PlannerContract:
    class Contract(PlannerContract):
        # The error of EarlyFit is absolute, and Greedy plans each node by itself: neither promises a share of the optimum.
        relative_error = None if name in ("early-fit", "greedy") else 0.05

        def new_planner(self, network: Network) -> Planner:
            count = len(network.inputs)
            options = {
                "early-fit": {"error": 0.01},
                "solver-w": {"workload": Exponential([0.5] * count, [1.0] * count)},
            }
            return EVERY[name](network, **options.get(name, {}))

    return Contract()


@pytest.mark.parametrize("name", sorted(EVERY))
@pytest.mark.parametrize("check", [name for name in vars(PlannerContract) if name.startswith("test_")])
def test_keeps_the_contract(name: str, check: str) -> None:
    getattr(contract_of(name), check)()


class DropsAll(Exact):
    """Drops everything as soon as anything is overloaded."""

    def plan(self, rates: Mapping[str, float]) -> Plan:
        plan = super().plan(rates)
        return replace(plan, keep=dict.fromkeys(plan.keep, 0.0), score=0.0) if plan.overloaded else plan


class KeepsAll(Exact):
    """Drops nothing."""

    def plan(self, rates: Mapping[str, float]) -> Plan:
        plan = super().plan(rates)
        return replace(plan, loads={name: load * 2 for name, load in plan.loads.items()})


@pytest.mark.parametrize(
    ("kind", "check"), [(DropsAll, "test_scores_are_near_the_optimum"), (KeepsAll, "test_plans_are_feasible")]
)
def test_the_contract_finds_what_is_broken(kind: type[Exact], check: str) -> None:
    class Contract(PlannerContract):
        def new_planner(self, network: Network) -> Planner:
            return kind(network)

    with pytest.raises(AssertionError):
        getattr(Contract(), check)()


PAPERS = (
    "Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing",
    "Dealing with Overload in Distributed Stream Processing Systems",
)


def docstring_faults(planner: type) -> list[str]:
    """What the docstring of a planner's class lacks. ``inspect.getdoc`` would return an inherited docstring."""
    docstring = vars(planner).get("__doc__") or ""
    examples = doctest.DocTestParser().get_examples(docstring)
    references = " ".join(docstring.partition("References\n")[2].split()).lstrip("- ")
    checks = {
        "a summary line": docstring.strip().partition("\n")[0].endswith("."),
        "where it fails": "Where it fails:" in docstring,
        "an example of its use": any(f"{planner.__name__}(" in example.source for example in examples),
        "an expected result": any(example.want for example in examples),
        "a paper, or that it is ours": any(paper in references for paper in PAPERS) or references.startswith("Ours"),
    }
    return [fault for fault, holds in checks.items() if not holds]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_planner_says_what_it_does(name: str) -> None:
    assert docstring_faults(EVERY[name]) == []


def test_an_inherited_docstring_is_not_enough() -> None:
    class Undocumented(Exact):
        pass

    class WithoutExample(Exact):
        """Plans.

        Where it fails: everywhere.

        References
        ----------
        Ours.
        """

    assert len(docstring_faults(Undocumented)) == 5
    assert docstring_faults(WithoutExample) == ["an example of its use", "an expected result"]
