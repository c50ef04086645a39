"""What every planner must do. New planners are discovered automatically."""

from __future__ import annotations

import doctest
import inspect
import pkgutil

import pytest

import penstock.planning
from penstock.planning import PLANNERS, Exact, Planner
from penstock.planning.workload import Exponential
from tests.networks import figure1, figure7


def test_every_planner_class_is_listed() -> None:
    for module in pkgutil.iter_modules(penstock.planning.__path__):
        __import__(f"penstock.planning.{module.name}")
    planners = set()
    queue = [Planner]
    while queue:
        queue += (classes := queue.pop().__subclasses__())
        planners |= {cls for cls in classes if cls.__module__.startswith("penstock.") and not inspect.isabstract(cls)}
    assert planners == set(PLANNERS.values())


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


@pytest.mark.parametrize("name", sorted(PLANNERS))
def test_every_planner_says_what_it_does(name: str) -> None:
    assert docstring_faults(PLANNERS[name]) == []


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
