"""Solver and Solver-W: plans for the whole space of rates, prepared in advance in a region quadtree."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import cheapest_path_costs
from penstock.network.drops import Ties
from penstock.network.model import Network
from penstock.planning.exact import Exact
from penstock.planning.floors import remove_floors
from penstock.planning.flows import Flows, Vector, feasible_keep
from penstock.planning.parametric import Parametric
from penstock.planning.plan import Planner, check_epsilon
from penstock.planning.quadtree import SIDE, RegionQuadtree
from penstock.planning.workload import Marginal, Workload

__all__ = ["MAX_PROGRAMS", "Scorer", "Solver", "useful_rates"]

_MAX_INPUTS = 12
MAX_PROGRAMS = 200_000

Scorer = Callable[[Vector], tuple[float, Vector]]
"""Maps rates to the optimal score and the keep at each location."""


class _PointByPoint:
    """Plans from a scorer that is called once per point. Has the methods of ``Parametric``."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._keeps: list[Vector] = []

    def solve(self, rates: NDArray[np.float64]) -> tuple[Vector, NDArray[np.int64]]:
        first = len(self._keeps)
        solutions = [self._scorer(row) for row in rates]
        self._keeps += [keep for _, keep in solutions]
        return np.array([score for score, _ in solutions]), np.arange(first, len(self._keeps))

    def keep(self, rates: Vector, number: int) -> Vector:  # noqa: ARG002 - the signature of Parametric
        return self._keeps[number].copy()

    @property
    def programs_solved(self) -> int:
        return len(self._keeps)


class _PlannedPoints:
    """The corners of regions that have a plan, numbered in the order of planning."""

    def __init__(self, plans: Parametric | _PointByPoint, flows: Flows, sides: Vector, has_worth: NDArray[np.bool_]) -> None:
        self._plans, self._flows = plans, flows
        self._unit = sides / SIDE
        self._has_worth = has_worth
        self._numbers: dict[tuple[int, ...], int] = {}
        self._plan_numbers: list[int] = []
        self.scores: list[float] = []
        self.overloaded: list[bool] = []

    def add(self, corners: list[tuple[int, ...]]) -> None:
        """Plan for all corners that have no plan yet, in one call."""
        new = [corner for corner in dict.fromkeys(corners) if corner not in self._numbers]
        if not new:
            return
        rates = np.zeros((len(new), self._has_worth.size))
        rates[:, self._has_worth] = np.array(new) * self._unit
        scores, plan_numbers = self._plans.solve(rates)
        self._numbers.update(zip(new, range(len(self.scores), len(self.scores) + len(new)), strict=True))
        self.scores += scores.tolist()
        self._plan_numbers += plan_numbers.tolist()
        self.overloaded += self._flows.are_overloaded(rates).tolist()

    def number(self, corner: tuple[int, ...]) -> int:
        """Return the number of a corner, after planning for it if necessary."""
        if corner not in self._numbers:
            self.add([corner])
        return self._numbers[corner]

    def rates(self, corner: tuple[int, ...]) -> Vector:
        """Return the input rates at a corner; 0 for inputs without worth."""
        rates = np.zeros(self._has_worth.size)
        rates[self._has_worth] = np.array(corner) * self._unit
        return rates

    def keep(self, corner: tuple[int, ...]) -> Vector:
        """Return the keep at each location in the plan of a corner."""
        return self._plans.keep(self.rates(corner), self._plan_numbers[self.number(corner)])

    def greatest_rates(self, corner: tuple[int, ...], limits: Vector) -> Vector:
        """Return the rates at a corner, or the limits where it lies at the edge of the space."""
        at_edge = np.zeros(self._has_worth.size, dtype=bool)
        at_edge[self._has_worth] = np.array(corner) >= SIDE
        return np.where(at_edge, limits, self.rates(corner))

    def scale(self, rates: Vector, corner: tuple[int, ...]) -> Vector:
        """Return the plan of a corner for other rates, which are scaled down to what the plan lets in."""
        keep = self.keep(corner)
        passing = self.rates(corner) * keep[: rates.size]
        np.divide(np.minimum(passing, rates), rates, out=keep[: rates.size], where=rates > 0)
        return keep


class Solver(Planner):
    """Divides the space of rates in advance until one plan serves all rates of a region, within epsilon of the best score.

    Staying FIT (Tatbul, Çetintemel, Zdonik), section 5.1. The best score never falls when a rate rises, so every score in a
    region lies between the scores of its bottom-most point p and its top-most point q. If ``(score(q) - score(p)) / score(q)``
    is at most epsilon, all rates in the region can be scaled down to p and use the plan of p. The region with the greatest error
    is divided next, so the division can stop at any time; ``error`` is the error that remains. At run time, a plan is one lookup
    in the quadtree, in microseconds.

    Where it fails: a division produces 2^m regions for m inputs, so more than 12 inputs are rejected. Every input needs a
    ``max_rate``. Floors are reserved before a plan is looked up, which on several nodes may leave some capacity unused.

    Parameters
    ----------
    network
        The network to plan for.
    epsilon
        The relative error of the score that is allowed, in (0, 1).
    max_programs, max_seconds
        Stop after this many planned points or this long, even if the error is above epsilon. Plans then carry a note. Fragments
        of the network are planned apart, and share these limits. A million points take about 10 s and 700 MB; ``None`` for no
        limit.
    clock
        The clock for ``max_seconds``.
    scorer
        Computes the optimal score and keeps, instead of the exact planner. For comparisons.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("i1", max_rate=100.0).input("i2", max_rate=100.0)
    ...     .operator("a1", "A", "i1", cost=0.02).operator("a2", "A", "i2", cost=0.01)
    ...     .output("q1", "a1").output("q2", "a2").build()
    ... )
    >>> solver = Solver(network, epsilon=0.05)
    >>> best = Exact(network).plan({"i1": 70.0, "i2": 90.0}).score
    >>> solver.plan({"i1": 70.0, "i2": 90.0}).score >= 0.95 * best
    True

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "solver"
    _plans_ahead = True
    _adds_errors: ClassVar[bool] = False
    """Whether the errors of fragments add up, as expected errors do."""

    def __init__(
        self,
        network: Network,
        epsilon: float = 0.05,
        *,
        max_programs: int | None = MAX_PROGRAMS,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(network, Flows(network))
        self.epsilon = check_epsilon(epsilon)
        for option, limit in (("max_programs", max_programs), ("max_seconds", max_seconds)):
            if limit is not None and not limit > 0:
                raise PenstockError(f"{option} must be positive, got {limit}")
        if scorer is None and self._plan_apart(
            lambda part, count: self._plan_fragment(
                part,
                count,
                max_programs=max_programs and max(1, max_programs // count),
                max_seconds=max_seconds and max_seconds / count,
                clock=clock,
            )
        ):
            errors = [fragment.planner.error for fragment in self.fragments]
            self.error = sum(errors) if self._adds_errors else max(errors)
            return
        _check_network(self.name, network, dimensions=int(self._has_worth.sum()))
        network = remove_floors(network)
        self._limits = np.array([stream.max_rate for stream in network.inputs.values()])
        # Beyond the useful rate, more of an input changes nothing: such rates are treated like those at the edge of the space.
        sides = np.minimum(self._limits, 2.0 * useful_rates(network))[self._has_worth]
        self._plans = Parametric(Exact(network, self.flows, ties=Ties())) if scorer is None else _PointByPoint(scorer)
        self._all_have_worth = bool(self._has_worth.all())
        self._tree = RegionQuadtree(sides.tolist())
        self._points = _PlannedPoints(self._plans, self.flows, sides, self._has_worth)
        self._divide(max_programs, max_seconds, clock)

    def _plan_fragment(self, part: Network, count: int, **limits: Any) -> Solver:  # noqa: ARG002 - Solver-W uses the count
        return Solver(part, self.epsilon, **limits)

    def _divide(self, max_programs: int | None, max_seconds: float | None, clock: Callable[[], float]) -> None:
        """Divide the region with the highest priority until the error is small enough."""
        queue: list[tuple[float, int]] = []
        undividable: list[int] = []

        def enqueue(region: int) -> float:
            priority = self._priority(region)
            if priority > 0.0:
                heapq.heappush(queue, (-priority, region))
            return priority

        total = enqueue(0)
        start_s = clock()
        while queue and not self._is_enough(-queue[0][0], total):
            if max_programs is not None and len(self._points.scores) >= max_programs:
                break
            if max_seconds is not None and clock() - start_s >= max_seconds:
                break
            negative_priority, region = heapq.heappop(queue)
            if not self._tree.can_divide(region):
                undividable.append(region)
                continue
            total += negative_priority
            parts = self._tree.divide(region)
            self._points.add([corner for part in parts for corner in self._tree.corners(part)])
            for part in parts:
                total += enqueue(part)
        self.error = self._remaining_error([*undividable, *(region for _, region in queue)])
        """The error that remains: of the worst region, or for Solver-W the expected error."""

    def _caveats(self) -> tuple[str, ...]:
        if self.error <= self.epsilon:
            return ()
        return (f"{self.name} stopped at an error of {self.error:.2%}, above its epsilon of {self.epsilon:.2%}",)

    def _is_enough(self, worst: float, total: float) -> bool:  # noqa: ARG002 - Solver-W uses the total
        return worst <= self.epsilon

    def _remaining_error(self, regions: list[int]) -> float:
        return max((self._plan_error(region) for region in regions), default=0.0)

    def _priority(self, region: int) -> float:
        return self._region_error(region)

    def _region_error(self, region: int) -> float:
        """Return the relative error of a region: 0 if its top-most point is feasible, because then all its points are."""
        bottom, top = self._tree.corners(region)
        points = self._points
        q = points.number(top)
        if not points.overloaded[q] or points.scores[q] <= 0.0:
            return 0.0
        return max(0.0, 1.0 - points.scores[points.number(bottom)] / points.scores[q])

    def _plan_error(self, region: int) -> float:
        """Return the greatest error of a plan in a region. Above epsilon, scaling rates down to the capacity may bound it too."""
        error = self._region_error(region)
        if error <= self.epsilon:
            return error
        full = self.flows.propagate(
            self._points.greatest_rates(self._tree.corners(region)[1], self._limits), np.ones(len(self.flows.locations))
        )
        return min(error, 1.0 - 1.0 / max(1.0, self.flows.utilization(full)))

    def _keep(self, rates: Vector) -> Vector:
        """Scale the rates down to the bottom-most point of their region and use its plan.

        In a region that is not divided far enough, that may drop everything. There, two more plans compete: that of the top-most
        point, and the rates scaled down until no node is overloaded.
        """
        region = self._tree.find(rates[self._has_worth].tolist())
        bottom, top = self._tree.corners(region)
        keep = self._points.scale(rates, bottom)
        if self._region_error(region) <= self.epsilon:
            return keep
        flows, full = self.flows, np.ones(len(self.flows.locations))
        plans = [keep, self._points.scale(rates, top), feasible_keep(flows, rates, flows.propagate(rates, full))]
        return max(plans, key=lambda plan: float(flows.value @ flows.propagate(rates, plan)))

    def lookup(self, rates: list[float]) -> int:
        """Return the region of some rates, a number for all fragments: the search that selects a plan at run time."""
        if self.fragments:
            number = 0
            for fragment in self.fragments:
                number = number << 32 | fragment.planner.lookup([rates[index] for index in fragment.inputs.tolist()])
            return number
        return self._tree.find(
            rates if self._all_have_worth else [rate for rate, has_worth in zip(rates, self._has_worth, strict=True) if has_worth]
        )

    def expected_error(self, workload: Workload) -> float:
        """Return the expected error under a workload: the sum over all regions of probability times error."""
        expected = 0.0
        for fragment in self.fragments:  # an upper bound: the error of the whole is a mean of the errors of the fragments
            limits = [stream.max_rate for stream in self.network.inputs.values()]
            expected += fragment.planner.expected_error(Marginal(workload, fragment.inputs.tolist(), limits))
        if self.fragments:
            return expected
        for region in self._tree.leaves():
            if error := self._region_error(region):
                expected += error * self._mass(workload, region)
        return expected

    def _mass(self, workload: Workload, region: int) -> float:
        """Return the probability of a region, with all rates beyond the edge of the space and any rates of worthless inputs."""
        bottom, _ = self._tree.corners(region)
        upper = np.where(self._has_worth, self._points.greatest_rates(self._tree.corners(region)[1], self._limits), self._limits)
        return workload.mass(self._points.rates(bottom).tolist(), upper.tolist())

    @property
    def programs(self) -> int:
        """The number of planned points: one linear program each, unless a known basis fits."""
        return sum(fragment.planner.programs for fragment in self.fragments) if self.fragments else len(self._points.scores)

    @property
    def programs_solved(self) -> int:
        """The number of linear programs that were actually solved."""
        if self.fragments:
            return sum(fragment.planner.programs_solved for fragment in self.fragments)
        return self._plans.programs_solved

    @property
    def regions(self) -> int:
        """The number of regions that are not divided."""
        return sum(fragment.planner.regions for fragment in self.fragments) if self.fragments else len(self._tree.leaves())


def _check_network(method: str, network: Network, *, dimensions: int) -> None:
    for name, stream in network.inputs.items():
        if not np.isfinite(stream.max_rate):
            raise PenstockError(f"input {name!r} has no max_rate: {method} needs one to bound the space of rates")
    if dimensions > _MAX_INPUTS:
        raise PenstockError(f"{method} would divide a region of {dimensions} inputs into 2^{dimensions} parts: use exact")


def useful_rates(network: Network) -> Vector:
    """Return, by input, a rate beyond which more tuples add nothing, because no path to an output can process them."""
    cheapest = cheapest_path_costs(network)
    total = sum(node.capacity for node in network.nodes.values())
    return np.array([total / cheapest[name] if cheapest[name] > 0 else np.inf for name in network.inputs])
