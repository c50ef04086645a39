"""One node's step of FIT: from its children's tables of feasible inputs to its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients
from penstock.network.model import Operator, arc_name
from penstock.planning.bounds import RateBounds, Share
from penstock.planning.dominance import undominated
from penstock.planning.flows import Flows, Vector
from penstock.planning.greedy import DropOrder
from penstock.planning.plan import check_epsilon
from penstock.planning.spread import Geometric, Spread
from penstock.planning.table import Table

__all__ = ["FitNode", "geometric_spread"]

_TOLERANCE = 1e-9
_MOST_ROWS = 30_000_000
_MOST_ENTRIES = 400_000
_CUT_SHARE = 0.2
_WAYS_OUT = "take a greater epsilon, max_entries, or the method exact"


def geometric_spread(survey: RateBounds, epsilon: float) -> Geometric:
    """Divide epsilon between the samples' spread, once for each rounding, and what is cut off near 0."""
    cut = _CUT_SHARE * check_epsilon(epsilon)
    step = 1.0 - (1.0 - epsilon + cut) ** (1.0 / survey.roundings)
    return Geometric(step, least=cut * survey.least_score / survey.dimensions or 1e-12, total=epsilon)


class FitNode:
    """One node's step: from its children's tables to its own (paper 000, sections 6.2 and 6.3).

    A leaf has no children; it samples its inputs and sheds what is too much behind its splits, along its drop order. Other nodes
    combine the entries of their children, map them to their own inputs, and leave out what would overload them:

    - behind a split the greatest of the branches' rates is needed, and the others are a complementary local plan;
    - before a union or a join, all shares of its sources that make up the rate are needed, in steps of the spread;
    - an output of the node itself is one more branch, sampled like the inputs of a leaf.

    The same steps make C-FIT, in one process, and D-FIT, where tables travel as messages. ``triangle`` below 1 leaves out less of
    what is feasible anyway, for nodes that must do with a table while those above them change.
    """

    def __init__(
        self,
        survey: RateBounds,
        node: str,
        spread: Spread,
        *,
        step: float,
        max_entries: int | None = None,
        triangle: float = 1.0,
    ) -> None:
        self.node = node
        self._share: Share = survey.shares[node]
        self._survey = survey
        self._spread = spread
        self._pieces = max(1, math.ceil(1.0 / step - 1e-9))
        self._max_entries = max_entries
        self._triangle_share = triangle
        local = self._share.local
        self._local = Flows(local)
        self._roots = tuple(local.inputs)
        """Where the local network begins: inputs that lead to no child, and branches off the trunk."""
        self._sampled = tuple(name for name in self._roots if name not in self._share.trunk)
        self._order = DropOrder(self._local, fixed=self._sampled)
        self._quality = Coefficients(local).quality
        limits = [survey.limit(self._share, name) for name in self._roots]
        worth = [self._quality[name] for name in self._roots]
        self._samples = dict(zip(self._roots, spread.samples(limits, worth, survey.dimensions), strict=True))
        dropped = self._order.saved  # what is left of a root's load when all is dropped that may be
        self._full_loads = np.zeros(len(self._roots))
        np.add.at(self._full_loads, self._local.full_loads.columns, self._local.full_loads.values)
        self._least_load = np.maximum(self._full_loads - sum(dropped, np.zeros(len(self._roots))), 0.0)

    def table(self, children: Sequence[Table] = ()) -> Table:
        """Make the node's table."""
        triangle = self._triangle()
        rows = self._rows(children, triangle)
        if not rows.count and triangle is not None:  # a network that no rates within its bounds overload
            rows = self._rows(children, None)
        return self._finished(rows, children)

    def _rows(self, children: Sequence[Table], triangle: dict[str, float] | None) -> _Rows:
        rows = self._combined(children)
        self._map_trunk(rows)
        self._sample_inputs(rows, triangle)
        return rows

    def _combined(self, children: Sequence[Table]) -> _Rows:
        """Every entry of each child with every entry of the others."""
        expected = set(self._survey.children[self.node])
        if {child.node for child in children} != expected or len(children) != len(expected):
            raise PenstockError(
                f"node {self.node!r} needs the tables of {sorted(expected)}, got {sorted(c.node for c in children)}"
            )
        sizes = [len(child) for child in children]
        _check_size(math.prod(sizes), self.node)
        grids = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), dtype=np.int64)
        rows = _Rows(grids.shape[1])
        rows["score"] = np.zeros(rows.count)
        for child, picks in zip(children, grids, strict=True):
            rows[f"pick {child.node}"] = picks
            rows["score"] = rows["score"] + child.scores[picks]
            for column, name in enumerate(child.columns):
                kind = "need" if name in self._share.part.outputs else "column"
                if kind == "column" and name.partition("->")[0] not in self._survey.network.inputs:
                    raise PenstockError(
                        f"the table of node {child.node!r} has a column {name!r} that node {self.node!r} does not feed"
                    )
                rows[f"{kind} {name}"] = child.points[picks, column]
        return rows

    def _map_trunk(self, rows: _Rows) -> None:
        """From what the children take to what the node's inputs must bring, operator by operator."""
        share, part = self._share, self._share.part
        rows["load"] = np.zeros(rows.count)
        for name in (*reversed(part.order), *part.inputs):
            if name not in share.trunk:
                continue
            arcs = [arc_name(name, target) for target in part.consumers[name] if share.is_trunk_arc(target)]
            flow = np.maximum.reduce([rows[f"need {arc}"] for arc in arcs])
            rows[f"flow {name}"] = flow
            if name in self._roots:
                self._branch_off(rows, name)
            operator = part.operators.get(name)
            if operator is None:
                rows[f"column {name}"] = rows[f"flow {name}"]
            else:
                self._through(rows, operator)

    def _branch_off(self, rows: _Rows, name: str) -> None:
        """A branch to an output of the node's own: besides what the children need, any sample above it."""
        samples, key = self._samples[name], f"flow {name}"
        needed = rows[key]
        first = np.searchsorted(samples, needed * (1.0 + _TOLERANCE), side="right")
        counts = 1 + samples.size - first
        _check_size(int(counts.sum()), self.node)
        index = np.repeat(np.arange(rows.count), counts)
        place = np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts)
        rows.select(index)
        above = np.minimum(first[index] + place - 1, samples.size - 1)
        rows[key] = np.where(place == 0, rows[key], samples[above])

    def _through(self, rows: _Rows, operator: Operator) -> None:
        """From what must leave an operator to what must enter it, and the load of that."""
        sources = [source for source in operator.sources if operator.gain(source) > 0]
        left = rows[f"flow {operator.name}"]
        if not sources:
            rows.select(np.flatnonzero(left <= 0))
        for number, source in enumerate(sources):
            arc = f"need {arc_name(source, operator.name)}"
            left = np.maximum(rows[f"flow {operator.name}"] - rows.get(f"made {operator.name}"), 0.0)
            if number == len(sources) - 1:
                share = left
            else:  # in pieces of what is left, from none to all of it
                _check_size(rows.count * (self._pieces + 1), self.node)
                pieces = np.tile(np.arange(self._pieces + 1) / self._pieces, rows.count)
                index = np.repeat(np.arange(rows.count), self._pieces + 1)
                alone = (pieces == 0) | (left[index] > 0)
                rows.select(index[alone])
                share = left[index[alone]] * pieces[alone]
            rows[arc] = share / operator.gain(source)
            rows[f"made {operator.name}"] = rows.get(f"made {operator.name}") + share
        for source in operator.sources:
            key = f"need {arc_name(source, operator.name)}"
            rows[key] = rows.get(key)
            rows["load"] = rows["load"] + operator.cost * rows[key]
        self._drop_overloaded(rows, rows["load"])

    def _drop_overloaded(self, rows: _Rows, load: Vector) -> None:
        able = load <= self._capacity * (1.0 + _TOLERANCE)
        if not able.all():
            rows.select(np.flatnonzero(able))

    @property
    def _capacity(self) -> float:
        return self._share.part.nodes[self.node].capacity

    def _sample_inputs(self, rows: _Rows, triangle: dict[str, float] | None) -> None:
        """Every combination of samples of the inputs that lead to no child, as far as the node can take it."""
        rows["floor"] = rows["load"]
        rows["near"] = np.zeros(rows.count)
        for number, name in enumerate(self._sampled):
            least = float(self._least_load[self._roots.index(name)])
            samples = self._samples[name]
            spare = self._capacity * (1.0 + _TOLERANCE) - rows["floor"]
            last = np.searchsorted(samples * least, spare, side="right") if least > 0 else np.full(rows.count, samples.size)
            first = np.zeros(rows.count, dtype=np.int64)
            if triangle is not None and number == len(self._sampled) - 1:
                # Below the triangle everything is feasible: nobody is scaled down to there.
                wanted = (1.0 - self._spread.margin(len(self._sampled)) - 1e-6 - rows["near"]) * triangle[name]
                first = np.searchsorted(samples, wanted, side="left")
            counts = np.maximum(last - first, 0)
            _check_size(int(counts.sum()), self.node)
            index = np.repeat(np.arange(rows.count), counts)
            place = np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts)
            values = samples[first[index] + place]
            rows.select(index)
            rows[f"column {name}"] = values
            rows["floor"] = rows["floor"] + least * values
            if triangle is not None:
                rows["near"] = rows["near"] + values / triangle[name]

    def _triangle(self) -> dict[str, float] | None:
        """For a leaf whose inputs come one by one from those of the network: the rates that are feasible alone, all the way.

        In other networks a leaf's small rates may go with large ones elsewhere, so nothing is left out before the root.
        """
        survey, found = self._survey, {}
        if self._share.trunk or (len(survey.order) > 1 and any(len(survey.children[node]) > 1 for node in survey.order)):
            return None
        if any(survey.shares[node].local.inputs for node in survey.order if node != self.node):
            return None
        for name in self._sampled:
            limit = _alone(survey, name)
            if limit is None or not np.isfinite(limit):
                return None
            found[name] = limit * self._triangle_share
        return found if len(found) == len(survey.network.inputs) else None

    def _finished(self, rows: _Rows, children: Sequence[Table]) -> Table:
        """Shed what is too much behind the node's own splits; keep what is feasible then, and what somebody would choose."""
        share = self._share
        if self._roots:
            rates = np.column_stack([rows[f"column {name}" if name in self._sampled else f"flow {name}"] for name in self._roots])
        else:
            rates = np.zeros((rows.count, 0))
        full = rates @ self._full_loads
        keep, lost, left = self._order.shed(rates, rows["load"] + full - self._capacity)
        worth = np.array([self._quality[name] for name in self._roots])
        scores = rows["score"] + rates @ worth - lost
        able = np.flatnonzero(left <= _TOLERANCE * self._capacity)
        columns = tuple(key.removeprefix("column ") for key in rows.keys_of("column "))
        if able.size == 0:  # nothing is feasible but nothing
            raise PenstockError(f"node {self.node!r}: no sample is feasible")
        keeps = self._keeps(rows, keep)
        table = Table(
            self.node,
            columns,
            np.column_stack([rows[f"column {name}"] for name in columns])[able],
            scores[able],
            {name: values[able] for name, values in keeps.items() if np.any(values[able] < 1.0)},
            {child.node: rows[f"pick {child.node}"][able] for child in children},
            generated=able.size,
        )
        if not self._survey.parents[share.node]:
            table = self._without_triangle(table)
        return self._reduced(table)

    def _keeps(self, rows: _Rows, local: NDArray[np.float64]) -> dict[str, Vector]:
        """The complementary local plan: what stays on each arc behind a split."""
        share, part, found = self._share, self._share.part, {}
        for name in (*part.inputs, *part.order):
            if name not in share.trunk or len(part.consumers[name]) < 2:
                continue
            flow = rows[f"flow {name}"]
            for target in part.consumers[name]:
                if share.is_trunk_arc(target):
                    arc = arc_name(name, target)
                    found[arc] = np.divide(rows[f"need {arc}"], flow, out=np.ones(rows.count), where=flow > 0)
        for number, location in enumerate(self._local.locations):
            if location.target is not None:
                found[location.name] = found.get(location.name, 1.0) * local[:, number]
            elif location.name in share.trunk:  # all that branches off here
                for target in share.local.consumers[location.name]:
                    arc = arc_name(location.name, target)
                    found[arc] = found.get(arc, 1.0) * local[:, number]
        return {name: np.clip(values, 0.0, 1.0) for name, values in found.items()}

    def _without_triangle(self, table: Table) -> Table:
        """At the root: leave out what lies below all that is feasible anyway, and nothing near the boundary."""
        survey = self._survey
        origins = [name if name in survey.network.inputs else name.partition("->")[0] for name in table.columns]
        limits = np.array([survey.full_limits[name] for name in origins])
        whole = len(survey.order) == len(survey.below(self.node)) and all(survey.quality[name] > 0 for name in origins)
        # Where streams merge, a rate far below may serve as well; and of an input's copies none is the input.
        if not whole or survey.roundings > 1 or list(table.columns) != origins:
            return table
        near = (table.points / limits).sum(axis=1) >= 1.0 - self._spread.margin(len(limits)) - 1e-6
        return table.chosen(np.flatnonzero(near)) if near.any() else table

    def _reduced(self, table: Table) -> Table:
        """Leave out what nobody would choose; with ``max_entries``, also one of two that are alike."""
        best = np.lexsort((-table.scores, *table.points.T))
        points = table.points[best]
        new = np.ones(best.size, dtype=bool)
        new[1:] = np.any(points[1:] != points[:-1], axis=1)
        table = table.chosen(best[new])
        if self._max_entries is not None:
            table = _alike_merged(table, 4 * self._max_entries)
        if len(table) > _MOST_ENTRIES:
            raise PenstockError(f"node {self.node!r}: its table has {len(table):,} entries: {_WAYS_OUT}")
        table = table.chosen(undominated(table.points, table.scores))
        return _alike_merged(table, self._max_entries) if self._max_entries is not None else table


class _Rows:
    """Columns of equal length under construction."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._columns: dict[str, NDArray[Any]] = {}

    def __setitem__(self, key: str, values: NDArray[Any]) -> None:
        self._columns[key] = values

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._columns[key]

    def get(self, key: str) -> NDArray[Any]:
        """A column, or zeros."""
        return self._columns.get(key, np.zeros(self.count))

    def keys_of(self, prefix: str) -> list[str]:
        return [key for key in self._columns if key.startswith(prefix)]

    def select(self, index: NDArray[np.int64]) -> None:
        """Take these rows, some of them more than once."""
        self.count = index.size
        self._columns = {key: values[index] for key, values in self._columns.items()}


def _check_size(rows: int, node: str) -> None:
    if rows > _MOST_ROWS:
        raise PenstockError(f"node {node!r}: {rows:,} combinations of rates are too many: {_WAYS_OUT}")


def _alone(survey: RateBounds, name: str) -> float | None:
    """The greatest rate at a leaf's input that all nodes can take alone, if it is one input's own way, without split or merge."""
    network, gain = survey.network, 1.0
    here = name.partition("->")[0] if name not in network.inputs else name
    while here in network.operators:
        operator = network.operators[here]
        if len(operator.sources) != 1 or len(network.consumers[here]) != 1:
            return None
        gain *= operator.gain(operator.sources[0])
        here = operator.sources[0]
    return survey.full_limits[here] * gain if len(network.consumers[here]) == 1 and survey.quality[here] > 0 else None


def _alike_merged(table: Table, most: int) -> Table:
    """Of entries with similar rates keep the one with the greatest score, then the least rates, until few enough are left."""
    ratio = 1.01
    while len(table) > most:
        least = np.where(table.points > 0, table.points, np.inf).min(axis=0, initial=np.inf)
        scaled = np.divide(table.points, least, out=np.zeros_like(table.points), where=np.isfinite(least))
        cells = np.where(scaled > 0, np.floor(np.log(np.maximum(scaled, 1e-300)) / math.log(ratio)), -1)
        order = np.lexsort((table.points.sum(axis=1), -table.scores, *cells.T))
        new = np.ones(order.size, dtype=bool)
        new[1:] = np.any(cells[order][1:] != cells[order][:-1], axis=1)
        table = table.chosen(np.sort(order[new]))
        ratio **= 1.3
    return table
