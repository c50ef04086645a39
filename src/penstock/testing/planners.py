"""What every planner must do. Subclass the contract in a test of yours, and pytest runs it on your planner."""

from __future__ import annotations

import math

from penstock.errors import PenstockError
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact, Planner

__all__ = ["PlannerContract", "build_chains", "build_split"]

_LOADS = (0.0, 0.05, 0.2, 0.5, 1.0)


def build_chains() -> Network:
    """Return two chains over two nodes, each node dearer for one of them: where shedding locally loses."""
    return (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i1", max_rate=1.0)
        .input("i2", max_rate=1.0)
        .operator("a1", "A", "i1", cost=1.0)
        .operator("a2", "A", "i2", cost=2.0)
        .operator("b1", "B", "a1", cost=3.0)
        .operator("b2", "B", "a2", cost=1.0)
        .output("q1", "b1")
        .output("q2", "b2")
        .build()
    )


def build_split() -> Network:
    """Return one input that splits into a cheap and a dear branch: where dropping at the input loses."""
    return (
        NetworkBuilder()
        .node("A")
        .input("i", max_rate=1.0)
        .operator("s", "A", "i", cost=1.0)
        .operator("top", "A", "s", cost=2.0)
        .operator("bottom", "A", "s", cost=5.0)
        .output("q1", "top")
        .output("q2", "bottom")
        .build()
    )


class PlannerContract:
    """Subclass it as ``class TestMine(PlannerContract)`` and define ``new_planner``."""

    relative_error: float | None = 0.05
    """How far below the exact optimum a score may lie; ``None`` if the planner promises nothing of the kind."""

    def new_planner(self, network: Network) -> Planner:
        """Return a planner for a network."""
        raise NotImplementedError("return your planner here")

    def test_plans_are_feasible(self) -> None:
        """No node and no link has more to do than it can, and every keep is a probability."""
        for network, planner in self._planners():
            for rates in _rates(network):
                plan = planner.plan(rates)
                assert plan.feasible, f"{rates}: loads {dict(plan.loads)} exceed {dict(plan.capacities)}"
                assert all(0.0 <= keep <= 1.0 for keep in plan.keep.values()), f"{rates}: {dict(plan.keep)}"

    def test_nothing_is_dropped_without_an_overload(self) -> None:
        """What fits stays."""
        for network, planner in self._planners():
            plan = planner.plan(dict.fromkeys(network.inputs, 0.01))
            assert not plan.overloaded
            assert all(keep == 1.0 for keep in plan.keep.values()), dict(plan.keep)

    def test_scores_are_near_the_optimum(self) -> None:
        """The exact planner, a linear program, is the judge."""
        for network, planner in self._planners():
            exact = Exact(network)
            for rates in _rates(network):
                best, score = exact.plan(rates).score, planner.plan(rates).score
                assert score <= best * (1 + 1e-6), f"{rates}: {score} is above the optimum {best}: the score is wrong"
                if self.relative_error is not None:
                    assert score >= best * (1 - self.relative_error) - 1e-6, f"{rates}: {score} of a possible {best}"

    def test_the_same_rates_give_the_same_plan(self) -> None:
        """A plan depends on the rates alone, not on those asked for before."""
        for network, planner in self._planners():
            first = [planner.plan(rates) for rates in _rates(network)]
            again = [planner.plan(rates) for rates in reversed(_rates(network))]
            for one, other in zip(first, reversed(again), strict=True):
                assert math.isclose(one.score, other.score, rel_tol=1e-9, abs_tol=1e-12), (one, other)

    def test_bad_rates_are_refused_by_name(self) -> None:
        """A rate for an unknown input, one that is missing, or no number."""
        for network, planner in self._planners():
            known = dict.fromkeys(network.inputs, 0.5)
            name = next(iter(known))
            for rates in ({**known, "nobody": 0.5}, {**known, name: -1.0}, {**known, name: math.nan}, {}):
                try:
                    planner.plan(rates)
                except PenstockError as error:
                    assert any(word in str(error) for word in ("nobody", name)), f"the message must name the input: {error}"
                else:
                    raise AssertionError(f"rates {rates} must be refused")

    def _planners(self) -> list[tuple[Network, Planner]]:
        return [(network, self.new_planner(network)) for network in (build_chains(), build_split())]


def _rates(network: Network) -> list[dict[str, float]]:
    """Rates on a coarse grid, with one input loaded and the others not among them."""
    names = list(network.inputs)
    even = [dict.fromkeys(names, load) for load in _LOADS]
    uneven = [{name: load if name == loaded else 0.02 for name in names} for loaded in names for load in _LOADS]
    return [*even, *uneven]
