"""Exact: the optimal plan, from a linear program that is warm-started from call to call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import highspy
import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import linearize
from penstock.network.drops import Ties, derive_drops
from penstock.network.facts import Facts
from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector, feasible_keep
from penstock.planning.plan import Plan, Planner, check_rates
from penstock.planning.program import Program, build_program
from penstock.planning.soft_floors import find_floor_share
from penstock.planning.tie_rows import TieRows

__all__ = ["Exact"]

_SOFT = 1e-9
"""How far below the greatest share floors are lowered, relatively: at the share itself, rounding may leave nothing feasible."""
_MOST_NAMED = 5
_LOWER = 0.8
"""The factor by which floors are lowered further where keeps that must be equal leave nothing feasible."""


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

    Fragments of the network are planned apart. ``update`` takes new costs, selectivities and capacities: the program changes in
    place, and the next plan starts from the last basis.

    Where it fails: maximum throughput is not fair; an expensive query may get nothing unless it has a floor. Floors that overload
    a node by themselves cannot be had: then all floors of the fragment are lowered by one factor, as little as possible, and a
    note says so. Before a join with windows in seconds the program is built anew for other rates.

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
        floors = np.array([output.floor for output in network.outputs.values()])
        self._floored = np.flatnonzero(floors > 0)
        self._output_floors = floors[self._floored]
        self._input_floors = np.array([stream.floor for stream in network.inputs.values()])
        self._inputs = np.arange(len(self.flows.inputs), dtype=np.int32)
        self._scaled_for = self.flows.facts
        if not self._plan_apart(lambda fragment, _: Exact(fragment, ties=self._ties)):
            _ = self._model  # raises if HiGHS rejects it

    def plan(self, rates: Mapping[str, float]) -> Plan:
        """Return the plan for these rates; see ``Planner.plan``."""
        if self.network is self._declared:
            return super().plan(rates)
        check_rates(self._declared, rates)
        return Exact(linearize(self._declared, rates), ties=self._ties).plan(rates)

    @cached_property
    def program(self) -> Program:
        """The linear program of the whole network."""
        return build_program(self.flows, self._floored)

    @cached_property
    def _model(self) -> highspy.Highs:
        return self.program.to_highs()

    @cached_property
    def _tie_rows(self) -> TieRows:
        return TieRows(self._model, self.program, self.flows, self._ties)

    def update(self, facts: Facts) -> None:
        """Plan with other costs, selectivities and capacities from now on.

        Raises
        ------
        PenstockError
            If a join has windows in seconds: what it puts out depends on the rates, so build a new planner.
        """
        if self.network is not self._declared:
            return super().update(facts)
        before = self.flows.facts
        self.flows.update(facts)
        try:
            if self.fragments:
                for fragment in self.fragments:
                    fragment.planner.update(fragment.select(facts))
                _forget_program(self)
            else:
                rescale = not _are_near(facts, self._scaled_for)
                program = build_program(self.flows, self._floored, self.program, rescale=rescale)
                model = program.to_highs(None if self._tie_rows else self._model)
                _forget_program(self)
                self.program, self._model = program, model
                self._scaled_for = facts if rescale else self._scaled_for
        except PenstockError:
            self.flows.update(before)
            raise

    def score(self, rates: Vector) -> float:
        """Return the optimal score at these rates, without the checks of ``plan``."""
        self._solve(rates)
        return float(self._model.getInfo().objective_function_value) * self.program.scale

    def solution(self, rates: Vector) -> tuple[float, Vector]:
        """Return the optimal score and the keep at each location."""
        score = self.score(rates)
        return score, self._recover_keep(rates)

    def _keep(self, rates: Vector) -> Vector:
        return self._keep_with_notes(rates)[0]

    def _keep_with_notes(self, rates: Vector) -> tuple[Vector, tuple[str, ...]]:
        share = self._solve(rates)
        keep = self._recover_keep(rates)
        if share >= 1.0:
            return keep, ()
        names = [repr(stream.name) for stream in self.network.inputs.values() if stream.floor > 0]
        names += [repr(output.name) for output in self.network.outputs.values() if output.floor > 0]
        shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        return keep, (
            f"floors overload a node by themselves at these rates: those of {shown} are lowered to {share:.1%} of what they ask",
        )

    def _solve(self, rates: Vector) -> float:
        """Solve the program and return the share of the floors that can be had: 1 unless they overload a node."""
        self._tie_rows.update(rates)
        most = rates / self.program.unit[: rates.size]
        if self._run(most, self._output_minimum(rates)) == highspy.HighsModelStatus.kOptimal:
            return 1.0
        share = 1.0
        if self.network.has_floors:
            wanted = self._output_minimum(rates)
            share = find_floor_share(self.program, most, self._input_floors * most, wanted)
            share = 1.0 if share > 1.0 - _SOFT else share * (1.0 - _SOFT)
        self._model.clearSolver()  # the warm basis may be numerically bad: try again from scratch
        status = self._run(most, self._output_minimum(rates), share)
        while status != highspy.HighsModelStatus.kOptimal and self._tie_rows and self.network.has_floors and share > _SOFT:
            share *= _LOWER  # equal keeps leave less than the floors alone do
            status = self._run(most, self._output_minimum(rates), share)
        if status != highspy.HighsModelStatus.kOptimal:
            raise PenstockError(f"HiGHS could not solve the linear program: {self._model.modelStatusToString(status)}")
        return share

    def _output_minimum(self, rates: Vector) -> Vector:
        """Return the throughput that the floors ask of each output that has one."""
        if not self._floored.size:
            return np.zeros(0)
        full = self.flows.through @ self.flows.propagate(rates, np.ones(len(self.flows.locations)))
        minimum: Vector = full[self._floored] * self._output_floors * (1.0 - 1e-12)
        return minimum

    def _run(self, most: Vector, minimum: Vector, share: float = 1.0) -> highspy.HighsModelStatus:
        """Solve with these upper bounds of the inputs and a share of the floors, and return how it ended."""
        self._model.changeColsBounds(most.size, self._inputs, share * self._input_floors * most, most)
        for row, least in enumerate(minimum.tolist(), start=self.program.height - minimum.size):
            self._model.changeRowBounds(row, share * least, highspy.kHighsInf)
        self._model.run()
        return self._model.getModelStatus()

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
        return self._tie_rows.equalize(feasible_keep(self.flows, rates, self.flow()), rates)


def _forget_program(exact: Exact) -> None:
    """Build the program anew when it is asked for."""
    for name in ("program", "_model", "_tie_rows"):
        exact.__dict__.pop(name, None)


def _are_near(facts: Facts, others: Facts) -> bool:
    """Return whether no number differs by more than a factor of 4, so that the units of one program serve the other too."""
    pairs = ((facts.costs, others.costs), (facts.selectivities, others.selectivities), (facts.capacities, others.capacities))
    return all(bool(np.all((one <= 4.0 * other) & (other <= 4.0 * one))) for one, other in pairs)
