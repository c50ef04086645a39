"""Solver-W: the Solver for rates whose distribution is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from penstock.network.model import Network
from penstock.planning.solver import MAX_PROGRAMS, Scorer, Solver
from penstock.planning.workload import Marginal, Workload

__all__ = ["SolverW"]


class SolverW(Solver):
    """Divides the space of rates like ``Solver``, but bounds the expected error under a workload.

    Staying FIT (Tatbul, Çetintemel, Zdonik), section 5.2. A region of probability p and error e contributes ``p * e`` to the
    expected error. The region that contributes most is divided next, until the sum is at most epsilon.

    Where it fails: as ``Solver`` does. In addition, plans for improbable rates may be far from optimal, and the bound is only as
    good as the workload.

    Parameters
    ----------
    network, max_programs, max_seconds, clock, scorer
        As for ``Solver``.
    epsilon
        The expected relative error of the score that is allowed, in (0, 1).
    workload
        The probability distribution of the input rates.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> from penstock.planning import Exponential
    >>> network = (
    ...     NetworkBuilder().node("A").input("i1", max_rate=100.0).input("i2", max_rate=100.0)
    ...     .operator("a1", "A", "i1", cost=0.02).operator("a2", "A", "i2", cost=0.01)
    ...     .output("q1", "a1").output("q2", "a2").build()
    ... )
    >>> workload = Exponential([10.0, 20.0], limits=[100.0, 100.0])
    >>> weighted, uniform = SolverW(network, 0.05, workload=workload), Solver(network, 0.05)
    >>> weighted.error <= 0.05, weighted.programs < uniform.programs
    (True, True)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "solver-w"
    _adds_errors: ClassVar[bool] = True

    def __init__(
        self,
        network: Network,
        epsilon: float = 0.05,
        *,
        workload: Workload,
        max_programs: int | None = MAX_PROGRAMS,
        max_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        scorer: Scorer | None = None,
    ) -> None:
        self._workload = workload
        super().__init__(network, epsilon, max_programs=max_programs, max_seconds=max_seconds, clock=clock, scorer=scorer)

    def _plan_fragment(self, part: Network, count: int, **limits: Any) -> Solver:
        """Return the planner of a fragment. The expected errors of the fragments may add up, so each gets its part of epsilon."""
        names = list(self.network.inputs)
        rates = [stream.max_rate for stream in self.network.inputs.values()]
        workload = Marginal(self._workload, [names.index(name) for name in part.inputs], rates)
        return SolverW(part, self.epsilon / count, workload=workload, **limits)

    def _is_enough(self, worst: float, total: float) -> bool:  # noqa: ARG002 - Solver uses the worst
        return total <= self.epsilon

    def _remaining_error(self, regions: list[int]) -> float:
        return sum(self._plan_error(region) * self._mass(self._workload, region) for region in regions)

    def _priority(self, region: int) -> float:
        error = self._region_error(region)
        if error <= 0.0:
            return 0.0
        return error * self._mass(self._workload, region)
