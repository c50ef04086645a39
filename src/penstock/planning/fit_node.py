"""FIT on one node: compute its table of feasible inputs from the tables of its children."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients
from penstock.network.model import Operator, arc_name
from penstock.planning.bounds import FitBounds, NodePartition, RateBounds
from penstock.planning.drop_order import DropOrder
from penstock.planning.fit_combination import combine_tables
from penstock.planning.fit_rows import Rows, repeat_index
from penstock.planning.fit_size import check_size, count_combinations, most_rows, reduce_table
from penstock.planning.flows import Flows, Vector
from penstock.planning.plan import check_epsilon
from penstock.planning.spread import Geometric, Spread
from penstock.planning.table import Table

__all__ = ["FitNode", "geometric_spread"]

_TOLERANCE = 1e-9
_LOSS_SHARE = 0.2
"""The share of epsilon for the loss near 0."""


def geometric_spread(bounds: RateBounds, epsilon: float) -> Geometric:
    """Return a spread that divides epsilon between the step of the samples, once per rounding, and the loss near 0."""
    loss = _LOSS_SHARE * check_epsilon(epsilon)
    step = 1.0 - (1.0 - epsilon + loss) ** (1.0 / bounds.roundings)
    return Geometric(step, least=loss * bounds.least_score / bounds.dimensions or 1e-12, total=epsilon)


class FitNode:
    """Computes the table of one node from the tables of its children (Staying FIT, sections 6.2 and 6.3).

    A leaf samples its inputs and sheds any excess load after its splits, in drop order. Other nodes combine the entries of their
    children, map them to their own inputs, and leave out what would overload them:

    - after a split, the greatest rate of the branches is needed; the other branches shed the difference in a complementary local
      plan;
    - before a union or a join, every division of the rate among its sources is generated, in steps of the spread;
    - an output of the node itself is one more branch, sampled like the inputs of a leaf.

    C-FIT runs these steps in one process; D-FIT sends the tables as messages.

    Parameters
    ----------
    bounds
        The bounds of the whole network.
    node
        The node.
    spread
        Chooses the sample rates.
    step
        The relative step in which a rate is divided among the sources of a union or a join.
    max_entries
        The maximum number of entries of the table: of more, some are left out. With it, epsilon no longer holds.
    budget
        The number of entries that the table is meant to have at most. Far more combinations of rates raise an error early.
    triangle
        The share of the feasibility triangle to leave out; 0 for a node that does not know the facts of the whole network.

    Examples
    --------
    A leaf with one operator of cost 0.5, which can process 2 tuples per second:

    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("i", max_rate=10.0).operator("a", "A", "i", cost=0.5).output("q", "a").build()
    ... )
    >>> bounds = RateBounds(network)
    >>> spread = geometric_spread(bounds, epsilon=0.1)
    >>> table = FitNode(bounds, "A", spread, step=spread.step).table()
    >>> table.columns, float(table.points.max()), float(table.scores.max())
    (('i',), 2.0, 2.0)

    References
    ----------
    N. Tatbul, U. Çetintemel, S. Zdonik: Staying FIT: Efficient Load Shedding Techniques for Distributed Stream Processing.
    VLDB 2007.
    """

    def __init__(
        self,
        bounds: FitBounds,
        node: str,
        spread: Spread,
        *,
        step: float,
        max_entries: int | None = None,
        budget: int | None = None,
        triangle: float = 1.0,
    ) -> None:
        self.node = node
        self._partition: NodePartition = bounds.partitions[node]
        self._bounds = bounds
        self._spread = spread
        self._divisions = max(1, math.ceil(1.0 / step - 1e-9))
        self._max_entries = max_entries
        self._max_rows = most_rows(budget)
        self._triangle_share = triangle
        local = self._partition.local
        self._local = Flows(local)
        self._roots = tuple(local.inputs)
        """The inputs of the local network: inputs of the node that lead to no child, and points where it leaves the trunk."""
        self._sampled = tuple(name for name in self._roots if name not in self._partition.trunk)
        self._drop_order = DropOrder(self._local, fixed=self._sampled)
        self._quality = Coefficients(local).quality
        limits = self._limits = [bounds.useful_rate(self._partition, name) for name in self._roots]
        qualities = [self._quality[name] for name in self._roots]
        self._samples = dict(zip(self._roots, spread.samples(limits, qualities, bounds.dimensions), strict=True))
        self._full_loads = np.zeros(len(self._roots))
        np.add.at(self._full_loads, self._local.full_loads.columns, self._local.full_loads.values)
        self._least_loads = np.maximum(self._full_loads - sum(self._drop_order.saved, np.zeros(len(self._roots))), 0.0)
        """By root: the load per tuple if everything is dropped that may be dropped."""

    def table(self, children: Sequence[Table] = ()) -> Table:
        """Return the table of the node, given the tables of its children.

        Raises
        ------
        PenstockError
            If a child's table is missing or does not fit, or the table would be too large.
        """
        triangle = self._feasibility_triangle()
        rows = self._generate(children, triangle)
        if not rows.count and triangle is not None:  # no rates within the bounds overload the network
            rows = self._generate(children, None)
        return self._build_table(rows, children)

    def _generate(self, children: Sequence[Table], triangle: dict[str, float] | None) -> Rows:
        rows = self._combine(children)
        self._map_trunk(rows)
        self._sample_inputs(rows, triangle)
        return rows

    def _combine(self, children: Sequence[Table]) -> Rows:
        """Return the combinations of the children's entries that none of the others beats."""
        expected = set(self._bounds.children[self.node])
        if {child.node for child in children} != expected or len(children) != len(expected):
            raise PenstockError(
                f"node {self.node!r} needs the tables of {sorted(expected)}, got {sorted(c.node for c in children)}"
            )
        for child in children:
            for name in child.columns:
                if name not in self._partition.part.outputs and name.partition("->")[0] not in self._bounds.network.inputs:
                    raise PenstockError(
                        f"the table of node {child.node!r} has a column {name!r} that node {self.node!r} does not feed"
                    )
        return combine_tables(children, self._partition.part.outputs, lambda rows: check_size(rows, self._max_rows, self.node))

    def _map_trunk(self, rows: Rows) -> None:
        """Map the rates that leave for the children to the rates of the node's inputs, operator by operator."""
        partition, part = self._partition, self._partition.part
        rows["load"] = np.zeros(rows.count)
        for name in (*reversed(part.order), *part.inputs):
            if name not in partition.trunk:
                continue
            arcs = [arc_name(name, target) for target in part.consumers[name] if partition.is_trunk_arc(target)]
            flow = np.maximum.reduce([rows[f"need {arc}"] for arc in arcs])
            rows[f"flow {name}"] = flow
            if name in self._roots:
                self._sample_branch(rows, name)
            operator = part.operators.get(name)
            if operator is None:
                rows[f"column {name}"] = rows[f"flow {name}"]
            else:
                self._map_operator(rows, operator)

    def _sample_branch(self, rows: Rows, name: str) -> None:
        """At a branch to an output of this node, generate the rate that the children need and all samples above it."""
        samples, key = self._samples[name], f"flow {name}"
        first = np.searchsorted(samples, rows[key] * (1.0 + _TOLERANCE), side="right")
        counts = 1 + samples.size - first
        check_size(int(counts.sum()), self._max_rows, self.node)
        index, position = repeat_index(counts)
        rows.select(index)
        above = np.minimum(first[index] + position - 1, samples.size - 1)
        rows[key] = np.where(position == 0, rows[key], samples[above])

    def _map_operator(self, rows: Rows, operator: Operator) -> None:
        """Map the rate that must leave an operator to the rates that must enter it, and add their load."""
        out, supplied = f"flow {operator.name}", f"supplied {operator.name}"
        sources = [source for source in operator.sources if operator.gain(source) > 0 and self._bounds.is_shed(source)]
        if not sources:
            rows.select(np.flatnonzero(rows[out] <= 0))
        for number, source in enumerate(sources):
            missing = np.maximum(rows[out] - rows.get(supplied), 0.0)
            if number == len(sources) - 1:
                contribution = missing
            else:  # fractions of the missing rate, from none to all of it
                check_size(rows.count * (self._divisions + 1), self._max_rows, self.node)
                fractions = np.tile(np.arange(self._divisions + 1) / self._divisions, rows.count)
                index = np.repeat(np.arange(rows.count), self._divisions + 1)
                is_distinct = (fractions == 0) | (missing[index] > 0)
                rows.select(index[is_distinct])
                contribution = missing[index[is_distinct]] * fractions[is_distinct]
            rows[f"need {arc_name(source, operator.name)}"] = contribution / operator.gain(source)
            rows[supplied] = rows.get(supplied) + contribution
        for source in operator.sources:
            key = f"need {arc_name(source, operator.name)}"
            rows[key] = rows.get(key)
            rows["load"] = rows["load"] + operator.cost * rows[key]
        self._drop_overloaded(rows, rows["load"])

    def _drop_overloaded(self, rows: Rows, load: Vector) -> None:
        is_feasible = load <= self._capacity * (1.0 + _TOLERANCE)
        if not is_feasible.all():
            rows.select(np.flatnonzero(is_feasible))

    @property
    def _capacity(self) -> float:
        return self._partition.part.nodes[self.node].capacity

    def _sample_inputs(self, rows: Rows, triangle: dict[str, float] | None) -> None:
        """Generate all combinations of samples of the inputs that lead to no child, as far as the node has capacity."""
        rows["least load"] = rows["load"]
        rows["triangle"] = np.zeros(rows.count)  # the share of the feasibility triangle used so far
        for number, name in enumerate(self._sampled):
            least_load = float(self._least_loads[self._roots.index(name)])
            samples = self._samples[name]
            spare = self._capacity * (1.0 + _TOLERANCE) - rows["least load"]
            last = np.full(rows.count, samples.size)
            if least_load > 0:
                last = np.searchsorted(samples * least_load, spare, side="right")
            first = np.zeros(rows.count, dtype=np.int64)
            if triangle is not None and number == len(self._sampled) - 1:
                # Everything in the triangle is feasible, so no rates are scaled down to it.
                lowest = (1.0 - self._spread.margin(len(self._sampled)) - 1e-6 - rows["triangle"]) * triangle[name]
                first = np.searchsorted(samples, lowest, side="left")
            counts = np.maximum(last - first, 0)
            check_size(int(counts.sum()), self._max_rows, self.node)
            index, position = repeat_index(counts)
            values = samples[first[index] + position]
            rows.select(index)
            rows[f"column {name}"] = values
            rows["least load"] = rows["least load"] + least_load * values
            if triangle is not None:
                rows["triangle"] = rows["triangle"] + values / triangle[name]

    def predict_rows(self) -> float:
        """Return about how many combinations of samples the node would generate at once, without generating them."""
        least_loads = dict(zip(self._roots, self._least_loads.tolist(), strict=True))
        margin = self._spread.margin(len(self._sampled)) if self._feasibility_triangle() is not None else 1.0
        return count_combinations([self._samples[name] * least_loads[name] / self._capacity for name in self._sampled], margin)

    @property
    def rounding_loss(self) -> float:
        """The score that is lost at most if the rate of each sampled input and branch is rounded down to a sample."""
        return sum(
            float(np.max(np.diff(self._samples[name], append=limit), initial=0.0)) * self._quality[name]
            for name, limit in zip(self._roots, self._limits, strict=True)
        )

    def _feasibility_triangle(self) -> dict[str, float] | None:
        """Return, by input, the rate that all nodes can process if it is the only one: the corners of the feasibility triangle.

        Only for a leaf with one input per input of the network. In other networks, low rates at a leaf may go with high rates
        elsewhere, so nothing may be left out before the root; then the result is ``None``.
        """
        bounds, corners = self._bounds, {}
        if self._triangle_share <= 0.0:
            return None
        has_siblings = len(bounds.order) > 1 and any(len(bounds.children[node]) > 1 for node in bounds.order)
        if self._partition.trunk or has_siblings:
            return None
        if any(bounds.partitions[node].local.inputs for node in bounds.order if node != self.node):
            return None
        for name in self._sampled:
            limit = _limit_alone(bounds, name)
            if limit is None or not np.isfinite(limit):
                return None
            corners[name] = limit * self._triangle_share
        return corners if len(corners) == len(bounds.network.inputs) else None

    def _build_table(self, rows: Rows, children: Sequence[Table]) -> Table:
        """Shed excess load after the node's splits, keep what is then feasible, and reduce the table."""
        if self._roots:
            rates = np.column_stack([rows[f"column {name}" if name in self._sampled else f"flow {name}"] for name in self._roots])
        else:
            rates = np.zeros((rows.count, 0))
        full_load = rates @ self._full_loads
        keep, lost, excess = self._drop_order.shed(rates, rows["load"] + full_load - self._capacity)
        qualities = np.array([self._quality[name] for name in self._roots])
        scores = rows["score"] + rates @ qualities - lost
        feasible = np.flatnonzero(excess <= _TOLERANCE * self._capacity)
        columns = tuple(key.removeprefix("column ") for key in rows.keys_of("column "))
        if feasible.size == 0:
            raise PenstockError(f"node {self.node!r}: no sample is feasible")
        keeps = self._local_plans(rows, keep)
        table = Table(
            self.node,
            columns,
            np.column_stack([rows[f"column {name}"] for name in columns])[feasible],
            scores[feasible],
            {name: values[feasible] for name, values in keeps.items() if np.any(values[feasible] < 1.0)},
            {child.node: rows[f"row {child.node}"][feasible] for child in children},
            generated=feasible.size,
        )
        if self._triangle_share > 0.0 and not self._bounds.parents[self.node]:
            table = self._remove_triangle(table)
        return reduce_table(table, self._max_entries)

    def _local_plans(self, rows: Rows, local_keep: NDArray[np.float64]) -> dict[str, Vector]:
        """Return the complementary local plan of each row: the keep on each arc after a split."""
        partition, part = self._partition, self._partition.part
        keeps: dict[str, Vector] = {}
        for name in (*part.inputs, *part.order):
            if name not in partition.trunk or len(part.consumers[name]) < 2:
                continue
            flow = rows[f"flow {name}"]
            for target in part.consumers[name]:
                if partition.is_trunk_arc(target):
                    arc = arc_name(name, target)
                    keeps[arc] = np.divide(rows[f"need {arc}"], flow, out=np.ones(rows.count), where=flow > 0)
        for number, location in enumerate(self._local.locations):
            if location.target is not None:
                keeps[location.name] = keeps.get(location.name, 1.0) * local_keep[:, number]
            elif location.name in partition.trunk:  # the keep applies to every branch that leaves the trunk here
                for target in partition.local.consumers[location.name]:
                    arc = arc_name(location.name, target)
                    keeps[arc] = keeps.get(arc, 1.0) * local_keep[:, number]
        return {name: np.clip(values, 0.0, 1.0) for name, values in keeps.items()}

    def _remove_triangle(self, table: Table) -> Table:
        """At the root, leave out entries in the feasibility triangle, except those near the boundary."""
        bounds = self._bounds
        origins = [name if name in bounds.network.inputs else name.partition("->")[0] for name in table.columns]
        limits = np.array([bounds.full_limits[name] for name in origins])
        is_whole = len(bounds.order) == len(bounds.subtree(self.node)) and all(bounds.quality[name] > 0 for name in origins)
        # Where streams merge, an entry with far lower rates may be as good. And if an input has copies, no column is its rate.
        if not is_whole or bounds.roundings > 1 or list(table.columns) != origins:
            return table
        is_near = (table.points / limits).sum(axis=1) >= 1.0 - self._spread.margin(len(limits)) - 1e-6
        return table.select(np.flatnonzero(is_near)) if is_near.any() else table


def _limit_alone(bounds: FitBounds, name: str) -> float | None:
    """Return the greatest rate at a leaf's input that all nodes can process if all other rates are 0.

    ``None`` unless a single path leads there from an input of the network, without split or merge.
    """
    network, gain = bounds.network, 1.0
    current = name.partition("->")[0] if name not in network.inputs else name
    while current in network.operators:
        operator = network.operators[current]
        if len(operator.sources) != 1 or len(network.consumers[current]) != 1:
            return None
        gain *= operator.gain(operator.sources[0])
        current = operator.sources[0]
    if len(network.consumers[current]) != 1 or bounds.quality[current] <= 0:
        return None
    return bounds.full_limits[current] * gain
