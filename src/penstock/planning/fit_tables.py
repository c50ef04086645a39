"""The tables of C-FIT: on a grid within epsilon, or as fine as a number of entries allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import PenstockError
from penstock.network.coefficients import cheapest_path_costs
from penstock.network.drops import Ties
from penstock.network.model import Network
from penstock.planning.bounds import RateBounds
from penstock.planning.column_effects import ColumnEffects, column_effects
from penstock.planning.directions import DirectionGrid, count_directions, estimate_error, estimate_parts, finest_parts
from penstock.planning.exact import Exact
from penstock.planning.fit_node import FitNode, geometric_spread
from penstock.planning.fit_size import TableTooLargeError
from penstock.planning.floors import remove_floors
from penstock.planning.flows import Flows, Vector
from penstock.planning.lookup import ClippingLookup, TableLookup
from penstock.planning.spread import Spread
from penstock.planning.table import Table

__all__ = ["TableSet", "build_tables"]

_MOST_DIRECTIONS = 400_000
_MOST_GRID_COLUMNS = 3
_MOST_GRID_ROWS = 20_000
_COARSEST, _FINEST, _RUNGS = 0.9, 0.002, 16


@dataclass(frozen=True, slots=True, eq=False)
class TableSet:
    """The tables of all nodes, and how to look plans up in those of the roots."""

    bounds: RateBounds
    tables: dict[str, Table]
    effects: dict[str, ColumnEffects]
    """By root: what a tuple per second in each column does."""
    lookups: dict[str, TableLookup]
    """By root."""
    error: float
    """The greatest relative error of the score."""


def build_tables(flows: Flows, epsilon: float | None, spread: Spread | None, max_entries: int | None) -> TableSet:
    """Build the tables of a network, within epsilon if ``max_entries`` allows it.

    Parameters
    ----------
    flows
        The flows of the network.
    epsilon
        The relative error that is allowed; ``None`` for as little as ``max_entries`` allows.
    spread
        How to choose sample rates. If ``None``, the grid is geometric, and where that takes too many entries and the network
        drops only where inputs enter, the entries are directions.
    max_entries
        The maximum number of entries per table.

    Raises
    ------
    PenstockError
        If the network is not supported, or ``max_entries`` is ``None`` and the tables would be too large.
    """
    relaxed = replace(remove_floors(flows.network), bandwidths={})
    bounds = RateBounds(relaxed)
    builder = _Builder(flows, bounds)
    if not bounds.order or not any(operator.cost for operator in relaxed.operators.values()):
        return builder.combine({}, TableLookup, 0.0) if not flows.network.bandwidths else builder.build_one_entry()
    if spread is not None:
        return builder.build_grid(spread, _step_of(bounds, epsilon), max_entries)
    least = epsilon if epsilon is not None else _FINEST
    if max_entries is not None:
        build = builder.build_directions if builder.has_only_entries else builder.build_finest
        return build(least, max_entries)
    if builder.has_only_entries and (flows.network.bandwidths or builder.is_grid_large(least)):
        builder.check_directions(least)
        return builder.build_directions(least, _MOST_DIRECTIONS)
    return builder.build_geometric(least, None)


def _step_of(bounds: RateBounds, epsilon: float | None) -> float:
    return geometric_spread(bounds, epsilon if epsilon is not None else _COARSEST).step


class _Builder:
    """Builds the tables of one network."""

    def __init__(self, flows: Flows, bounds: RateBounds) -> None:
        self._flows, self._bounds = flows, bounds
        self._exact = Exact(bounds.network, ties=Ties())
        self.has_only_entries = len(flows.locations) == len(flows.inputs)
        """Whether the network drops only where inputs enter, because nothing splits."""

    # -- on a grid -----------------------------------------------------------------------------------------------------

    def build_geometric(self, epsilon: float, max_entries: int | None) -> TableSet:
        """Build the tables within epsilon, by geometric samples; with ``max_entries``, raise if a table is larger."""
        spread = geometric_spread(self._bounds, epsilon)
        tables = self._build(spread, spread.step, None, max_entries)
        if max_entries is not None and any(len(table) > max_entries for table in tables.values()):
            raise TableTooLargeError(f"an epsilon of {epsilon:g} takes more than {max_entries:,} entries")
        return self.combine(tables, TableLookup, 1.0 if self._flows.network.bandwidths else epsilon)

    def build_finest(self, epsilon: float, max_entries: int) -> TableSet:
        """Build the finest geometric tables that ``max_entries`` allows, but not finer than epsilon."""
        best = None
        for coarse in np.geomspace(max(_COARSEST, epsilon), epsilon, _RUNGS):
            try:
                best = self.build_geometric(float(coarse), max_entries)
            except TableTooLargeError:
                break
            except PenstockError:  # so coarse that no sample is feasible on some node
                continue
        return best if best is not None else self._build_thin(max_entries)

    def _build_thin(self, max_entries: int) -> TableSet:
        """Build the coarsest tables and keep some of their entries. What they are worth is bounded by scaling rates down."""
        spread = geometric_spread(self._bounds, _COARSEST)
        try:
            return self.combine(self._build(spread, spread.step, max_entries, max_entries), TableLookup, 1.0)
        except PenstockError:  # too many combinations of them, or none is feasible on a node above
            return self.build_one_entry()

    def build_grid(self, spread: Spread, step: float, max_entries: int | None) -> TableSet:
        """Build the tables with samples of a given spread."""
        tables = self._build(spread, step, max_entries, None)
        error = 1.0
        if max_entries is None and self._bounds.roundings == 1 and not self._flows.network.bandwidths:
            loss = sum(self._node(node, spread, step).rounding_loss for node in self._bounds.order)
            error = loss / self._bounds.least_score if self._bounds.least_score > 0 else 1.0
        return self.combine(tables, TableLookup, error)

    def build_one_entry(self) -> TableSet:
        """Build a table of one entry, for all inputs: the greatest rates, scaled down until they are feasible."""
        columns = self._flows.inputs
        effects = column_effects(self._flows, columns)
        rates = _greatest_rates(self._bounds.network)
        rates = np.where(np.isfinite(rates), rates, 1.0)
        rates /= max(1.0, float(np.max(effects.shares @ rates, initial=0.0)))
        root = next(iter(self._flows.nodes))
        table = Table(root, columns, rates[None, :], np.array([effects.worth @ rates]), generated=1)
        return self.combine({root: table}, TableLookup, 1.0)

    def _build(self, spread: Spread, step: float, max_entries: int | None, budget: int | None) -> dict[str, Table]:
        tables: dict[str, Table] = {}
        for node in reversed(self._bounds.order):
            fit_node = self._node(node, spread, step, max_entries=max_entries, budget=budget)
            tables[node] = fit_node.table([tables[child] for child in self._bounds.children[node]])
        return tables

    def _node(
        self, node: str, spread: Spread, step: float, *, max_entries: int | None = None, budget: int | None = None
    ) -> FitNode:
        return FitNode(self._bounds, node, spread, step=step, max_entries=max_entries, budget=budget)

    def is_grid_large(self, epsilon: float) -> bool:
        """Return whether a geometric grid would have many columns, or many combinations of rates on some node."""
        if max((len(columns) for columns in self._columns_by_root().values()), default=0) > _MOST_GRID_COLUMNS:
            return True
        spread = geometric_spread(self._bounds, epsilon)
        return any(self._node(node, spread, spread.step).predict_rows() > _MOST_GRID_ROWS for node in self._bounds.order)

    # -- by directions -------------------------------------------------------------------------------------------------

    def build_directions(self, epsilon: float, most_entries: int) -> TableSet:
        """Build the tables of the roots by directions, within epsilon if ``most_entries`` allows it."""
        tables, errors = {}, [0.0]
        for root, columns in self._columns_by_root().items():
            grid = DirectionGrid.within(column_effects(self._flows, columns), epsilon, most_entries)
            tables[root] = Table(root, columns, grid.points, grid.scores, generated=len(grid.scores))
            errors.append(grid.error)
        return self.combine(tables, ClippingLookup, max(errors))

    def check_directions(self, epsilon: float) -> None:
        """Raise if the directions within epsilon are too many, before they are generated."""
        for columns in self._columns_by_root().values():
            effects = column_effects(self._flows, columns)
            parts = estimate_parts(effects, epsilon)
            needed = count_directions(len(columns), parts)
            if needed > _MOST_DIRECTIONS:
                possible = math.ceil(100 * estimate_error(effects, finest_parts(len(columns), _MOST_DIRECTIONS))) / 100
                raise TableTooLargeError(
                    f"{len(columns)} inputs with an epsilon of {epsilon:g} take about {needed:,} entries, more than "
                    f"{_MOST_DIRECTIONS:,}: use an epsilon of {min(possible, 0.99):g}, max_entries, or the method exact"
                )

    def _columns_by_root(self) -> dict[str, tuple[str, ...]]:
        """Return, by root, the inputs that lead to its nodes, cost something and are worth something."""
        network = self._flows.network
        roots = {node: root for root in self._roots() for node in self._bounds.subtree(root)}
        columns: dict[str, tuple[str, ...]] = {}
        effects = column_effects(self._flows, self._flows.inputs)
        has_effect = (effects.worth > 0) & np.any(effects.shares > 0, axis=0)
        for name in np.array(self._flows.inputs)[has_effect].tolist():
            consumer = network.consumers[name][0]
            root = roots[network.operators[consumer].node] if consumer in network.operators else next(iter(roots.values()))
            columns[root] = (*columns.get(root, ()), name)
        return columns

    def _roots(self) -> list[str]:
        return [node for node in self._bounds.order if not self._bounds.parents[node]]

    # -- what they promise ---------------------------------------------------------------------------------------------

    def combine(self, tables: dict[str, Table], kind: type[TableLookup], error: float) -> TableSet:
        """Return the tables with lookups for the roots, and the error that holds for all of them."""
        roots = [node for node in tables if not self._bounds.parents[node]]
        effects = {root: column_effects(self._flows, tables[root].columns) for root in roots}
        lookups = {root: kind(tables[root], *effects[root]) for root in roots}
        bound = max((min(error, self._bound_scaling(tables[root].columns, effects[root])) for root in roots), default=0.0)
        return TableSet(self._bounds, tables, effects, lookups, bound)

    def _bound_scaling(self, columns: Sequence[str], effects: ColumnEffects) -> float:
        """Return the greatest error if rates are only ever scaled down by one factor until they are feasible.

        Some node is then just full, so the score is at least the least score with which an input fills a node. And scaling by
        1 / u costs at most that share of the score.
        """
        is_useful = (effects.shares > 0) & (effects.worth > 0)
        if not is_useful.any():
            return 0.0
        least = float(np.min(np.divide(effects.worth, effects.shares, out=np.full_like(effects.shares, np.inf), where=is_useful)))
        origins = {name if name in self._flows.inputs else name.partition("->")[0] for name in columns}
        greatest = np.where([name in origins for name in self._flows.inputs], _greatest_rates(self._bounds.network), 0.0)
        bounds = [1.0]
        if np.isfinite(greatest).all():
            bounds.append(1.0 - least / max(least, self._exact.score(greatest)))
        by_name = dict(zip(self._flows.inputs, (stream.max_rate for stream in self._flows.network.inputs.values()), strict=True))
        most = np.array([by_name[name if name in by_name else name.partition("->")[0]] for name in columns])
        if np.isfinite(most).all():
            bounds.append(1.0 - 1.0 / max(1.0, float(np.max(effects.shares @ most))))
        return min(bounds)


def _greatest_rates(network: Network) -> Vector:
    """Return, by input, the greatest rate, or the rate beyond which more tuples add nothing, whichever is less."""
    cheapest = cheapest_path_costs(network)
    total = sum(node.capacity for node in network.nodes.values())
    useful = [total / cheapest[name] if cheapest[name] > 0 else np.inf for name in network.inputs]
    return np.minimum(useful, [stream.max_rate for stream in network.inputs.values()])
