"""The facts that a node of D-FIT builds its table with: its own, as measured, and the scope that its parent tells it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.coordination.dfit_scope import Scope
from penstock.coordination.dfit_survey import ErrorShares, Survey, derive_units
from penstock.coordination.manager import Limits
from penstock.coordination.measurements import Measurements, apply_measurements
from penstock.errors import PenstockError
from penstock.network.model import Network, arc_name
from penstock.planning.bounds import FitBounds, bound_flows, partition_part
from penstock.planning.fit_node import FitNode
from penstock.planning.fit_size import TableTooLargeError
from penstock.planning.spread import Anchored
from penstock.planning.table import Table

__all__ = ["NodeFacts"]

_TOLERANCE = 1e-9
_BITS = 40
_MOST_ENTRIES = 5_000
"""A larger table takes longer to send and to combine than exact plans take to compute."""


class NodeFacts:
    """What one node, or a cluster, knows: its part of the network with measured facts, and its scope.

    Of other nodes it knows nothing but what they tell: children their tables and bounds, the parent a scope.
    """

    def __init__(self, survey: Survey, node: str, shares: ErrorShares, max_entries: int | None = None) -> None:
        self._survey, self._node, self._shares, self._max_entries = survey, node, shares, max_entries
        self._declared = survey.part(node)
        self.leaving = frozenset(name for name in self._declared.outputs if name not in survey.network.outputs)
        """The arcs to children."""
        self.scope = survey.declared_scope(node)
        self._in_force: dict[str, Measurements] = {}  # by node: the table is built with them
        self._latest: dict[str, Measurements] = {}
        self.part = self._apply()
        """What the node runs, with the facts in force."""
        self._units = derive_units(self.part, self.scope.units)

    def _update_part(self) -> None:
        """Put the facts into force.

        The unit of an input is free. It is chosen such that those of the children stay as they are, if that is possible.
        """
        before, self.part = self._units, self._apply()
        units = derive_units(self.part, self.scope.units)
        inputs: dict[str, float] = {}
        for name in sorted(self.leaving):
            source = origin = self.part.outputs[name].source
            while origin in self.part.operators:
                origin = self.part.operators[origin].sources[0]
            if origin not in self.scope.units:
                inputs.setdefault(origin, units[origin] * before[source] / units[source])
        self._units = derive_units(self.part, {**self.scope.units, **inputs})

    def _apply(self) -> Network:
        part = apply_measurements(self._declared, self._in_force) if self._in_force else self._declared
        inputs = {name: replace(stream, max_rate=self.scope.most.get(name, np.inf)) for name, stream in part.inputs.items()}
        return Network(part.nodes, inputs, part.operators, part.outputs)

    def learn(self, measurements: Measurements) -> bool:
        """Learn what was measured here, and return whether the facts in force change by it."""
        node = measurements.node
        self._latest[node] = measurements
        before = self._in_force.get(node) or Measurements.from_declaration(self._declared, node)
        has_changed = _has_changed(before, measurements, self._shares)
        has_grown = self._raise_rates(measurements.rates)
        if has_changed:
            self._in_force[node] = measurements
        if has_changed or has_grown:
            self._update_part()
        return has_changed or has_grown

    def _raise_rates(self, rates: Mapping[str, float]) -> bool:
        """Raise the greatest rates of the node's own inputs if more arrives than was declared; return whether it did."""
        inputs = self._survey.network.inputs
        grown = {
            name: rate
            for name, rate in rates.items()
            if name.partition("->")[0] in inputs and rate > self.scope.most.get(name, np.inf)
        }
        if grown:
            self.scope = replace(self.scope, most={**self.scope.most, **Scope(1.0, grown).with_margin().most})
        return bool(grown)

    def use_scope(self, scope: Scope) -> bool:
        """Use what the parent tells of the arcs that it feeds, and return whether that changes anything."""
        inputs = self._survey.network.inputs
        own = {name: rate for name, rate in self.scope.most.items() if name.partition("->")[0] in inputs}
        arcs = {name: rate for name, rate in scope.most.items() if name.partition("->")[0] not in inputs}
        merged = Scope(scope.least_score, own | arcs, scope.units)
        has_changed = merged != self.scope
        if has_changed:
            self.scope = merged
            self._update_part()
        return has_changed

    def reset_scope(self) -> bool:
        """Use the declared scope for what the parent tells, and return whether that changes anything."""
        return self.use_scope(self._survey.declared_scope(self._node))

    def scope_of(self, arcs: Collection[str]) -> Scope:
        """Return the scope of a child that these arcs feed."""
        limits = bound_flows(self.part)
        sources = {name: self.part.outputs[name].source for name in arcs}
        return Scope(
            self.scope.least_score,
            {name: limits[source] for name, source in sources.items()},
            {name: self._units[source] for name, source in sources.items()},
        )

    def build_table(self, children: Sequence[Table]) -> Table:
        """Build the node's table from those of its children.

        Raises
        ------
        PenstockError
            If the table would be too large, or a child's does not fit.

        """
        if self._survey.is_cluster(self._node):
            raise PenstockError(f"cluster {self._node!r} plans for its nodes without a table")
        table = self.make_builder().table(children)
        if len(table) > _MOST_ENTRIES and self._max_entries is None:
            raise TableTooLargeError(f"node {self._node!r}: its table has {len(table):,} entries, more than {_MOST_ENTRIES:,}")
        points = table.points.copy()
        for column, name in enumerate(table.columns):
            if name in self._units:  # rates that are equal but for rounding become equal
                mantissas, exponents = np.frexp(points[:, column] / self._units[name])
                points[:, column] = np.ldexp(np.round(np.ldexp(mantissas, _BITS)), exponents - _BITS) * self._units[name]
        return replace(table, points=points)

    def make_builder(self) -> FitNode:
        """Return what builds the node's table."""
        shares, dimensions = self._shares, self._survey.trees[self._node].dimensions
        bounds = _NodeBounds(self._survey, self._node, self.part, self.leaving)
        units = tuple(self._units[name] for name in bounds.partitions[self._node].local.inputs)
        spread = Anchored(shares.step, shares.loss * self.scope.least_score / dimensions, shares.step + shares.loss, units)
        options = {"max_entries": self._max_entries, "budget": _MOST_ENTRIES if self._max_entries is None else None}
        return FitNode(bounds, self._node, spread, step=shares.step, triangle=0.0, **options)

    def fit_to_latest(self, limits: Limits, rates: Mapping[str, float]) -> Limits:
        """Return limits that do not overload a node by what it measured last, which may not be in force yet."""
        if all(self._in_force.get(node) is latest for node, latest in self._latest.items()):
            return limits
        entering = {name: min(rates.get(name, 0.0), limits.flows.get(name, np.inf)) for name in self._declared.inputs}
        excess = self._compute_share(entering, limits.keep)
        if excess <= 1.0 + _TOLERANCE:
            return limits
        return Limits({name: rate / excess for name, rate in entering.items()}, limits.keep, f"{limits.reason}, scaled down")

    def _compute_share(self, entering: Mapping[str, float], keep: Mapping[str, float]) -> float:
        """Return the share of its capacity that the fullest node takes. One pass, because it is part of every batch."""
        flows, loads = dict(entering), dict.fromkeys(self._declared.nodes, 0.0)
        for name in self._declared.order:
            operator = self._declared.operators[name]
            facts = self._latest.get(operator.node)
            measured = facts.operators.get(name) if facts is not None else None
            cost = operator.cost if measured is None else measured.cost
            flows[name] = 0.0
            for source in operator.sources:
                passing = flows[source] * keep.get(arc_name(source, name), 1.0)
                loads[operator.node] += cost * passing
                pairs = 1.0 if operator.windows is None else operator.windows[1 - operator.sources.index(source)]
                flows[name] += passing * pairs * (operator.selectivity if measured is None else measured.selectivity)
        shares = []
        for name, node in self._declared.nodes.items():
            facts = self._latest.get(name)
            shares.append(loads[name] / (node.capacity if facts is None else min(node.capacity, facts.capacity)))
        return max(shares)


class _NodeBounds(FitBounds):
    """What FIT must know for the table of one node that knows no other node's facts."""

    def __init__(self, survey: Survey, node: str, part: Network, leaving: frozenset[str]) -> None:
        declared = survey.bounds
        self.network = survey.network
        self.order = (node,)
        self.partitions = {node: partition_part(part, node, leaving)}
        self.parents, self.children = declared.parents, declared.children
        self.quality, self.full_limits = {}, {}
        self.dimensions, self.roundings = survey.trees[node].dimensions, declared.roundings
        self.flow_limits = bound_flows(part)


def _has_changed(before: Measurements, now: Measurements, shares: ErrorShares) -> bool:
    """Return whether something differs by more than it may, and by more than its error."""
    if abs(before.capacity - now.capacity) > shares.capacity * before.capacity:
        return True
    for name, operator in now.operators.items():
        old = before.operators.get(name)
        if old is None:
            return True
        if abs(old.cost - operator.cost) > max(shares.facts * old.cost, operator.cost_error):
            return True
        if abs(old.selectivity - operator.selectivity) > max(shares.facts * old.selectivity, operator.selectivity_error):
            return True
    return False
