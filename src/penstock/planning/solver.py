"""Solver and Solver-W: plans for the whole space of rates in advance, in a region quadtree."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import cheapest_path_costs
from penstock.network.model import Network
from penstock.planning.exact import Exact
from penstock.planning.flows import Flows, Vector
from penstock.planning.parametric import Parametric
from penstock.planning.plan import Planner, check_epsilon
from penstock.planning.quadtree import SIDE, RegionQuadtree
from penstock.planning.workload import Workload

__all__ = ["Solver", "SolverW", "useful_rates"]

_MOST_INPUTS = 12

Scorer = Callable[[Vector], tuple[float, Vector]]
"""From rates to the best score and the keep at each location."""


class _OneByOne:
    """Plans by a function that is called for each point."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._keeps: list[Vector] = []

    def solve(self, rates: NDArray[np.float64]) -> tuple[Vector, NDArray[np.int64]]:
        first = len(self._keeps)
        found = [self._scorer(row) for row in rates]
        self._keeps += [keep for _, keep in found]
        return np.array([score for score, _ in found]), np.arange(first, len(self._keeps))

    def keep(self, rates: Vector, number: int) -> Vector:  # noqa: ARG002 - as Parametric has it
        return self._keeps[number].copy()

    @property
    def solved(self) -> int:
        return len(self._keeps)


class Solver(Planner):
    """Paper 000, section 5.1: divide the space of rates until one plan does for all rates of a region.

    The best score never falls when a rate rises, so between the bottom-most point p and the top-most point q of a region every
    score lies between theirs. If ``(score(q) - score(p)) / score(q)`` is at most epsilon, all points of the region may use the
    plan of p: their rates are first scaled down to p. Regions wait in a queue, the one with the greatest error on top, so
    division may stop at any time: at ``epsilon``, after ``max_programs`` linear programs or ``max_seconds``; ``error`` says how
    far it came. A plan is then found in the quadtree in microseconds.

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
    """

    name: ClassVar[str] = "solver"
    _in_advance = True

    def __init__(
        self,
        network: Network,
        epsilon: float = 0.05,
        *,
        max_programs: int | None = None,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        scorer: Scorer | None = None,
    ) -> None:
        super().__init__(network, Flows(network))
        self.epsilon = check_epsilon(epsilon)
        if network.has_floors:
            raise PenstockError(f"{self.name} scales rates down to those it has planned for, which keeps no floors: use exact")
        for what, limit in (("max_programs", max_programs), ("max_seconds", max_seconds)):
            if limit is not None and not limit > 0:
                raise PenstockError(f"{what} must be positive, got {limit}")
        for name, stream in network.inputs.items():
            if not np.isfinite(stream.max_rate):
                raise PenstockError(
                    f"input {name!r} has no max_rate: {self.name} plans for a space that has an end, so give it one"
                )
        self._limits = np.array([stream.max_rate for stream in network.inputs.values()])
        if self._worthy.sum() > _MOST_INPUTS:
            raise PenstockError(
                f"{self.name} divides a region of {self._worthy.sum()} inputs into 2^{self._worthy.sum()} parts: use exact"
            )
        # Beyond what can be of use more of an input changes nothing: such rates are those at the edge, which is overloaded.
        self._sides = np.minimum(self._limits, 2.0 * useful_rates(network))[self._worthy]
        self._plans = Parametric(Exact(network, self.flows)) if scorer is None else _OneByOne(scorer)
        self._all_worthy = bool(self._worthy.all())
        self._tree = RegionQuadtree(self._sides.tolist())
        self._points: dict[tuple[int, ...], int] = {}
        self._scores: list[float] = []
        self._numbers: list[int] = []
        self._overloaded: list[bool] = []
        self._divide(max_programs, max_seconds, clock)

    def _divide(self, max_programs: int | None, max_seconds: float | None, clock: Callable[[], float]) -> None:
        """Divide the region with the greatest error until the errors are small enough."""
        queue: list[tuple[float, int]] = []
        worst_left = 0.0  # of what can't be divided any more
        total = self._queue_up(0, queue)
        begin = clock()
        while queue and not self._is_enough(-queue[0][0], total):
            if max_programs is not None and len(self._scores) >= max_programs:
                break
            if max_seconds is not None and clock() - begin >= max_seconds:
                break
            weight, region = heapq.heappop(queue)
            if not self._tree.can_divide(region):
                worst_left = max(worst_left, -weight)
                continue
            total += weight
            parts = self._tree.divide(region)
            self._meet([corner for part in parts for corner in self._tree.corners(part)])
            for part in parts:
                total += self._queue_up(part, queue)
        self.error = self._left(max([worst_left, *(-weight for weight, _ in queue)]), total)
        """The error that is left: of the worst region, or for Solver-W the expected one."""

    def _caveats(self) -> tuple[str, ...]:
        if self.error <= self.epsilon:
            return ()
        return (f"{self.name} stopped at an error of {self.error:.2%}, above its epsilon of {self.epsilon:.2%}",)

    def _queue_up(self, region: int, queue: list[tuple[float, int]]) -> float:
        weight = self._weight(region)
        if weight > 0.0:
            heapq.heappush(queue, (-weight, region))
        return weight

    def _is_enough(self, worst: float, total: float) -> bool:  # noqa: ARG002 - Solver-W looks at the total
        return worst <= self.epsilon

    def _left(self, worst: float, total: float) -> float:  # noqa: ARG002 - Solver-W looks at the total
        return worst

    def _weight(self, region: int) -> float:
        return self._region_error(region)

    def _region_error(self, region: int) -> float:
        """The percent error of a region: 0 if its top-most point is feasible, because then all of it is."""
        bottom, top = self._tree.corners(region)
        q = self._point(top)
        if not self._overloaded[q] or self._scores[q] <= 0.0:
            return 0.0
        return max(0.0, 1.0 - self._scores[self._point(bottom)] / self._scores[q])

    def _meet(self, corners: list[tuple[int, ...]]) -> None:
        """Plan for corners that were not met before, all at once."""
        new = [corner for corner in dict.fromkeys(corners) if corner not in self._points]
        if not new:
            return
        rates = np.zeros((len(new), self._worthy.size))
        rates[:, self._worthy] = np.array(new) * (self._sides / SIDE)
        scores, numbers = self._plans.solve(rates)
        self._points.update(zip(new, range(len(self._scores), len(self._scores) + len(new)), strict=True))
        self._scores += scores.tolist()
        self._numbers += numbers.tolist()
        self._overloaded += self.flows.overloads(rates).tolist()

    def _point(self, corner: tuple[int, ...]) -> int:
        """The number of a corner."""
        if corner not in self._points:
            self._meet([corner])
        return self._points[corner]

    def _rates(self, corner: tuple[int, ...]) -> Vector:
        found = np.zeros(self._worthy.size)
        found[self._worthy] = np.array(corner) * (self._sides / SIDE)
        return found

    def _keep(self, rates: Vector) -> Vector:
        """Scale the rates down to the bottom-most point of their region and use its plan."""
        bottom, _ = self._tree.corners(self._tree.find(rates[self._worthy].tolist()))
        point = self._rates(bottom)
        keep = self._plans.keep(point, self._numbers[self._point(bottom)])
        keep[: rates.size] *= np.divide(np.minimum(point, rates), rates, out=np.ones_like(rates), where=rates > 0)
        return keep

    def lookup(self, rates: list[float]) -> int:
        """The region of some rates: what happens at run time before a plan is put into effect."""
        return self._tree.find(
            rates if self._all_worthy else [rate for rate, worthy in zip(rates, self._worthy, strict=True) if worthy]
        )

    def expected_error(self, workload: Workload) -> float:
        """What the regions' errors come to under a workload."""
        found = 0.0
        for region in self._tree.leaves():
            if error := self._region_error(region):
                found += error * self._mass(workload, region)
        return found

    def _mass(self, workload: Workload, region: int) -> float:
        """How likely a region is: at the edge with all beyond it, and whatever the inputs are that are worth nothing."""
        bottom, top = self._tree.corners(region)
        upper = np.where(self._worthy, self._rates(top), self._limits)
        at_edge = np.zeros(self._worthy.size, dtype=bool)
        at_edge[self._worthy] = np.array(top) >= SIDE
        return workload.mass(self._rates(bottom).tolist(), np.where(at_edge, self._limits, upper).tolist())

    @property
    def programs(self) -> int:
        """For how many points there is a plan: a linear program each, if none is saved."""
        return len(self._scores)

    @property
    def solved(self) -> int:
        """How many linear programs were really solved."""
        return self._plans.solved

    @property
    def regions(self) -> int:
        """How many regions there are, divided ones not counted."""
        return len(self._tree.leaves())


def useful_rates(network: Network) -> Vector:
    """By input: a rate beyond which more of it brings nothing, because no way to an output could take it."""
    cheapest = cheapest_path_costs(network)
    total = sum(node.capacity for node in network.nodes.values())
    return np.array([total / cheapest[name] if cheapest[name] > 0 else np.inf for name in network.inputs])


class SolverW(Solver):
    """Paper 000, section 5.2: the same, where rates have probabilities.

    A region of probability p and error e adds ``p * e`` to the expected error; the region that adds most is divided next, until
    the sum is at most epsilon. Rates that hardly ever occur may then be far from optimal.
    """

    name: ClassVar[str] = "solver-w"

    def __init__(
        self,
        network: Network,
        epsilon: float = 0.05,
        *,
        workload: Workload,
        max_programs: int | None = None,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        scorer: Scorer | None = None,
    ) -> None:
        self._workload = workload
        super().__init__(network, epsilon, max_programs=max_programs, max_seconds=max_seconds, clock=clock, scorer=scorer)

    def _is_enough(self, worst: float, total: float) -> bool:  # noqa: ARG002 - Solver looks at the worst
        return total <= self.epsilon

    def _left(self, worst: float, total: float) -> float:  # noqa: ARG002 - Solver looks at the worst
        return max(0.0, total)

    def _weight(self, region: int) -> float:
        error = self._region_error(region)
        if error <= 0.0:
            return 0.0
        return error * self._mass(self._workload, region)
