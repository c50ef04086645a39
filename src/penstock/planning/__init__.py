"""Where to shed: planners map a network and its input rates to the keep at each drop location."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.early_fit import EarlyFit
from penstock.planning.exact import Exact
from penstock.planning.fit import Fit
from penstock.planning.fit_node import FitNode
from penstock.planning.greedy import Greedy
from penstock.planning.plan import Plan, Planner
from penstock.planning.solver import Solver
from penstock.planning.solver_w import SolverW
from penstock.planning.table import Delta, Table, delta_between
from penstock.planning.workload import Empirical, Exponential

__all__ = [
    "Delta",
    "EarlyFit",
    "Empirical",
    "Exact",
    "Exponential",
    "Fit",
    "FitNode",
    "Greedy",
    "PLANNERS",
    "Plan",
    "Planner",
    "Solver",
    "SolverW",
    "Table",
    "delta_between",
    "planner_named",
]

PLANNERS: Mapping[str, Callable[..., Planner]] = {
    planner.name: planner for planner in (Exact, Greedy, Solver, SolverW, Fit, EarlyFit)
}


def planner_named(name: str, network: Network, **options: Any) -> Planner:
    """Return the planner with a given name, for a network.

    Parameters
    ----------
    name
        One of the keys of ``PLANNERS``.
    network
        The network to plan for.
    options
        Options of the planner's class.

    Raises
    ------
    PenstockError
        If there is no such planner.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a").build()
    >>> planner_named("exact", network).plan({"i": 4.0}).keep
    {'i': 0.25}
    >>> planner_named("best", network)
    Traceback (most recent call last):
    penstock.errors.PenstockError: there is no planner 'best'; there are exact, greedy, solver, solver-w, fit, early-fit
    """
    if name not in PLANNERS:
        raise PenstockError(f"there is no planner {name!r}; there are {', '.join(PLANNERS)}")
    return PLANNERS[name](network, **options)
