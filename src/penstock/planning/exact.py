"""Exact: the best plan there is, by a linear program that stays warm from call to call."""

from __future__ import annotations

from typing import ClassVar

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import Planner
from penstock.planning.program import program_of

__all__ = ["Exact", "keep_of"]


class Exact(Planner):
    """Paper 000, equations 1 to 11, as one linear program over what passes each drop location.

    With ``y = rate * keep`` the program is: maximise the weighted throughput, no node above its capacity, no location above what
    arrives there. The rates are then only upper bounds of y, so the basis of the last solution stays dual feasible, whatever
    the rates do, and a new plan takes a few pivots. It covers chains, splits, unions, joins with windows in tuples, streams that
    merge and split again, and any graph of nodes. Beyond the papers, links with a ``bandwidth`` (000, section 10) and ``floor``,
    the least share of an input or an output.

    >>> from penstock.network import NetworkBuilder
    >>> table1 = (                                     # figure 1 of papers 000 and 003; plan 4 of their table 1
    ...     NetworkBuilder().node("A").node("B").input("i1").input("i2")
    ...     .operator("a1", "A", "i1", cost=1.0).operator("a2", "A", "i2", cost=2.0)
    ...     .operator("b1", "B", "a1", cost=3.0).operator("b2", "B", "a2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2").build()
    ... )
    >>> plan = Exact(table1).plan({"i1": 1.0, "i2": 1.0})
    >>> {name: round(keep, 6) for name, keep in plan.keep.items()}, round(plan.score, 6)
    ({'i1': 0.2, 'i2': 0.4}, 0.6)
    """

    name: ClassVar[str] = "exact"

    def __init__(self, network: Network, flows: Flows | None = None) -> None:
        super().__init__(network, flows)
        flows = self.flows
        floors = np.array([output.floor for output in network.outputs.values()])
        floored = np.flatnonzero(floors > 0)
        self.program = program_of(flows, floored)
        self._floors = dict(zip(floored.tolist(), floors[floored].tolist(), strict=True))
        self._input_floors = np.array([stream.floor for stream in network.inputs.values()])
        self._inputs = np.arange(len(flows.inputs), dtype=np.int32)
        self._model = self.program.started()

    def score(self, rates: Vector) -> float:
        """The best score at these rates, which are taken as they are."""
        self._solve(rates)
        return float(self._model.getInfo().objective_function_value) * self.program.scale

    def solution(self, rates: Vector) -> tuple[float, Vector]:
        """The best score and the keep at each location."""
        score = self.score(rates)
        return score, self._recovered(rates)

    def _keep(self, rates: Vector) -> Vector:
        self._solve(rates)
        return self._recovered(rates)

    def _solve(self, rates: Vector) -> None:
        upper = rates / self.program.unit[: rates.size]
        self._model.changeColsBounds(upper.size, self._inputs, self._input_floors * upper, upper)
        if self._floors:
            full = self.flows.through @ self.flows.passing(rates, np.ones(len(self.flows.locations)))
            for row, (output, floor) in enumerate(self._floors.items(), start=self.program.height - len(self._floors)):
                self._model.changeRowBounds(row, float(full[output]) * floor * (1.0 - 1e-12), highspy.kHighsInf)
        for _ in range(2):
            self._model.run()
            status = self._model.getModelStatus()
            if status == highspy.HighsModelStatus.kOptimal:
                return
            self._model.clearSolver()  # should a basis have gone astray: once more from scratch
        if self.network.has_floors:
            raise PenstockError("the floors can't be kept at these rates: they alone overload a node; lower them")
        raise PenstockError(f"the linear program was not solved: {self._model.modelStatusToString(status)}")

    def basis(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Of the last solution: which columns are basic, which are at their upper bound, which rows are full."""
        found, kinds = self._model.getBasis(), highspy.HighsBasisStatus
        columns = [status == kinds.kBasic for status in found.col_status], [status == kinds.kUpper for status in found.col_status]
        return np.array(columns[0]), np.array(columns[1]), np.array([status != kinds.kBasic for status in found.row_status])

    def flow(self) -> Vector:
        """What passes each location in the last solution."""
        found: Vector = np.array(self._model.getSolution().col_value) * self.program.unit
        return found

    def _recovered(self, rates: Vector) -> Vector:
        return keep_of(self.flows, rates, self.flow())


def keep_of(flows: Flows, rates: Vector, y: Vector) -> Vector:
    """From flows to keeps (000, after equation 8, where the last variable is x6 and not x5), none too much in the last digit."""
    keep = flows.keep(rates, np.maximum(y, 0.0))
    used = flows.passing(rates, keep)
    most = float(np.max(flows.loads @ used / flows.capacity, initial=0.0))
    if flows.network.bandwidths:
        most = max(most, float(np.max(flows.links @ used / flows.bandwidths)))
    if most > 1.0:
        keep[: rates.size] /= most
    return keep
