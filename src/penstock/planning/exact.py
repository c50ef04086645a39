"""Exact: the optimal plan, from a linear program that is warm-started from call to call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import linearize
from penstock.network.drops import Ties, derive_drops
from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector, feasible_keep
from penstock.planning.plan import Plan, Planner, check_rates
from penstock.planning.program import build_program
from penstock.planning.tie_rows import TieRows

__all__ = ["Exact"]


class Exact(Planner):
    """Returns the optimal plan, from a linear program over the rates that pass the drop locations.

    It solves Staying FIT (Tatbul, Çetintemel, Zdonik), equations 1 to 11, with ``y = rate * keep`` as variables: maximise the
    weighted throughput such that no node exceeds its capacity and no location passes more than arrives there. The input rates
    are then only upper bounds of y. The last basis stays dual feasible whatever the rates are, so a new plan takes a few
    pivots.

    It supports chains, splits, unions, joins with windows in tuples, streams that merge and split again, and any graph of nodes.
    In addition to the paper it supports links with a ``bandwidth`` (future work in section 10) and a ``floor``, the minimum
    share of an input or an output. Locations that must drop the same windows or keys get one keep. So joins with windows in
    seconds can be planned: their output is linear in one keep of both sides, with a factor that depends on the rates.

    Where it fails: maximum throughput is not fair; an expensive query may get nothing unless it has a floor. Floors that overload
    a node by themselves raise an error. Before a join with windows in seconds the program is built anew for other rates.

    Parameters
    ----------
    network
        The network to plan for.
    flows
        The flows of the network, if they are already known.
    ties
        Which locations share one keep, and where nothing is dropped; by default, as follows from the operators.

    Examples
    --------
    Plan 4 in table 1 of the paper, for the network of figure 1:

    >>> from penstock.network import NetworkBuilder
    >>> figure1 = (
    ...     NetworkBuilder().node("A").node("B").input("i1").input("i2")
    ...     .operator("a1", "A", "i1", cost=1.0).operator("a2", "A", "i2", cost=2.0)
    ...     .operator("b1", "B", "a1", cost=3.0).operator("b2", "B", "a2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> plan = Exact(figure1).plan({"i1": 1.0, "i2": 1.0})
    >>> {name: round(keep, 6) for name, keep in plan.keep.items()}, round(plan.score, 6)
    ({'i1': 0.2, 'i2': 0.4}, 0.6)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    name: ClassVar[str] = "exact"
    _ties_keeps: ClassVar[bool] = True

    def __init__(self, network: Network, flows: Flows | None = None, *, ties: Ties | None = None) -> None:
        self._ties = derive_drops(network).ties if ties is None else ties
        self._declared = network
        reference = {name: stream.max_rate if math.isfinite(stream.max_rate) else 1.0 for name, stream in network.inputs.items()}
        network = linearize(network, reference)
        super().__init__(network, flows)
        flows = self.flows
        floors = np.array([output.floor for output in network.outputs.values()])
        floored = np.flatnonzero(floors > 0)
        self.program = build_program(flows, floored)
        self._floors = dict(zip(floored.tolist(), floors[floored].tolist(), strict=True))
        self._input_floors = np.array([stream.floor for stream in network.inputs.values()])
        self._inputs = np.arange(len(flows.inputs), dtype=np.int32)
        self._model = self.program.to_highs()
        self._tie_rows = TieRows(self._model, self.program, flows, self._ties)

    def plan(self, rates: Mapping[str, float]) -> Plan:
        """Return the plan for these rates; see ``Planner.plan``."""
        if self.network is self._declared:
            return super().plan(rates)
        check_rates(self._declared, rates)
        return Exact(linearize(self._declared, rates), ties=self._ties).plan(rates)

    def _evaluate(self, rates: Vector, keep: Vector, *, overloaded: bool, notes: tuple[str, ...]) -> Plan:
        return super()._evaluate(rates, self._tie_rows.equalize(keep, rates), overloaded=overloaded, notes=notes)

    def score(self, rates: Vector) -> float:
        """Return the optimal score at these rates, without the checks of ``plan``."""
        self._solve(rates)
        return float(self._model.getInfo().objective_function_value) * self.program.scale

    def solution(self, rates: Vector) -> tuple[float, Vector]:
        """Return the optimal score and the keep at each location."""
        score = self.score(rates)
        return score, self._recover_keep(rates)

    def _keep(self, rates: Vector) -> Vector:
        self._solve(rates)
        return self._recover_keep(rates)

    def _solve(self, rates: Vector) -> None:
        upper = rates / self.program.unit[: rates.size]
        self._model.changeColsBounds(upper.size, self._inputs, self._input_floors * upper, upper)
        self._tie_rows.update(rates)
        if self._floors:
            full = self.flows.through @ self.flows.propagate(rates, np.ones(len(self.flows.locations)))
            for row, (output, floor) in enumerate(self._floors.items(), start=self.program.height - len(self._floors)):
                self._model.changeRowBounds(row, float(full[output]) * floor * (1.0 - 1e-12), highspy.kHighsInf)
        for _ in range(2):
            self._model.run()
            status = self._model.getModelStatus()
            if status == highspy.HighsModelStatus.kOptimal:
                return
            self._model.clearSolver()  # the warm basis may be numerically bad: try again from scratch
        if self.network.has_floors:
            raise PenstockError("the floors can't be kept at these rates: they overload a node by themselves; lower them")
        raise PenstockError(f"HiGHS could not solve the linear program: {self._model.modelStatusToString(status)}")

    def basis(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the basis of the last solution: basic columns, columns at their upper bound, tight rows."""
        basis, kinds = self._model.getBasis(), highspy.HighsBasisStatus
        basic = np.array([status == kinds.kBasic for status in basis.col_status])
        at_upper = np.array([status == kinds.kUpper for status in basis.col_status])
        return basic, at_upper, np.array([status != kinds.kBasic for status in basis.row_status])

    def flow(self) -> Vector:
        """Return the rate that passes each location in the last solution."""
        y: Vector = np.array(self._model.getSolution().col_value) * self.program.unit
        return y

    def _recover_keep(self, rates: Vector) -> Vector:
        return feasible_keep(self.flows, rates, self.flow())
