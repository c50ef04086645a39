"""A network as linear functions of the rates that pass its drop locations."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, Location
from penstock.network.facts import Facts
from penstock.network.model import Network, arc_name
from penstock.planning.flow_structure import compile_structure
from penstock.planning.sparse_matrix import SparseMatrix, sum_groups

__all__ = ["Flows", "SparseMatrix", "Vector", "feasible_keep"]

Vector = NDArray[np.float64]
Level = tuple[NDArray[np.int64], SparseMatrix]


class Flows:
    """Every rate in the network as a function of ``y``, the tuples per second that pass each drop location.

    Nothing is dropped between two locations, so the rate into an operator is a weighted sum over the locations directly upstream.
    Loads, throughputs and the rates that arrive at locations are therefore linear in y. This also holds where streams merge and
    split again, which the path prefixes of Staying FIT (section 3.2) do not cover.

    With ``entries``, arcs between nodes are locations too. Plans for the whole network do not need them, but nodes that shed
    independently do.

    ``update`` takes new costs, selectivities and capacities. ``network`` keeps the declared ones.
    """

    loads: SparseMatrix
    """Loads by node, in CPU seconds per second."""
    sources: SparseMatrix
    """Rates that arrive at each location; zero where an input enters, because its own rate arrives there."""
    through: SparseMatrix
    """Throughput by output."""
    links: SparseMatrix
    """Rates on the arcs with a bandwidth."""
    value: Vector
    """By location: the score per tuple that passes it, from the outputs reached before the next location."""
    levels: list[Level]
    """The locations downstream of others, grouped by depth, with the matrix of the rates that arrive there."""
    capacity: Vector
    """By node."""

    def __init__(self, network: Network, *, entries: bool = False) -> None:
        unknown = [name for name in network.bilinear if network.operators[name].side_rates is None]
        if unknown:
            raise PenstockError(
                f"join {unknown[0]!r} has windows in seconds: how much it puts out per tuple depends on the rates of both sides, "
                "which only exact plans for; use exact, or give its windows in tuples"
            )
        self.network = network
        derived = Coefficients(network)
        locations = list(derived.locations)
        if entries:
            known = {location.name for location in locations}
            locations += [
                Location(arc_name(source, target), source, target, network.node_of(target))
                for source, target in derived.crossings
                if arc_name(source, target) not in known
            ]
        self.locations: tuple[Location, ...] = tuple(locations)
        self.location_index = {location.name: number for number, location in enumerate(locations)}
        self.nodes = tuple(network.nodes)
        self.inputs = tuple(network.inputs)
        self.outputs = tuple(network.outputs)
        self.weights = np.array([output.weight for output in network.outputs.values()])
        self.bandwidths = np.array(list(network.bandwidths.values()), dtype=np.float64)
        """The bandwidths of the links, in tuples per second."""
        self._structure = compile_structure(network, self.location_index)
        self._levels = self._group_by_depth()
        try:
            self.update(Facts.from_declaration(network))
        except PenstockError:
            _ = derived.load, derived.quality  # raises with the name of the operator
            raise

    def update(self, facts: Facts) -> None:
        """Use other costs, selectivities and capacities from now on.

        Raises
        ------
        PenstockError
            If their products overflow. Then everything stays as it was.
        """
        structure = self._structure
        with np.errstate(over="ignore", invalid="ignore"):
            coefficients = structure.evaluate(facts.selectivities)
            loads = structure.loads(len(self.nodes), coefficients, facts.costs)
            sources, through = structure.sources.fill(coefficients), structure.through.fill(coefficients)
            levels = [
                (members, SparseMatrix(members.size, rows, sources.columns[entries], sources.values[entries]))
                for members, rows, entries in self._levels
            ]
            value = sum_groups(through.columns, through.values * self.weights[through.rows], len(self.locations))
            load = sum_groups(loads.columns, loads.values, len(self.locations))
            totals = [_accumulate(levels, own) for own in (value, load)]
        if not all(np.all(np.isfinite(numbers)) for numbers in (coefficients, *totals)):
            raise PenstockError("the product of costs and selectivities overflows")
        self.facts, self.capacity = facts, facts.capacities
        self.loads, self.sources, self.through = loads, sources, through
        self.links = structure.links.fill(coefficients)
        self.value, self.levels = value, levels
        self.__dict__.pop("full_loads", None)

    def _group_by_depth(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Group the locations by the number of locations upstream, so that each group depends only on earlier groups.

        A group has its locations, and the rows and the entries of ``sources`` that belong to them.
        """
        depth, rows = self._structure.depth, self._structure.sources.rows
        position = np.zeros(depth.size, dtype=np.int64)
        groups = []
        by_depth, entries_by_depth = np.argsort(depth, kind="stable"), np.argsort(depth[rows], kind="stable")
        limits = np.arange(1, int(depth.max(initial=0)) + 2)
        location_bounds = np.searchsorted(depth[by_depth], limits)
        entry_bounds = np.searchsorted(depth[rows][entries_by_depth], limits)
        for level in range(limits.size - 1):
            members = by_depth[location_bounds[level] : location_bounds[level + 1]]
            entries = entries_by_depth[entry_bounds[level] : entry_bounds[level + 1]]
            position[members] = np.arange(members.size)
            groups.append((members, position[rows[entries]], entries))
        return groups

    @cached_property
    def full_loads(self) -> SparseMatrix:
        """Loads by node as a function of the input rates, if nothing is dropped."""
        width = len(self.inputs)
        own = np.arange(width)
        reach = SparseMatrix(len(self.locations), own, own, np.ones(width))  # tuples at a location per tuple of an input
        for members, arriving in self.levels:
            more = arriving.multiply(reach, width)
            parts = ((reach.rows, members[more.rows]), (reach.columns, more.columns), (reach.values, more.values))
            reach = SparseMatrix(len(self.locations), *(np.concatenate(pair) for pair in parts))  # type: ignore[arg-type]
        return self.loads.multiply(reach, width)

    def propagate(self, rates: Vector, keep: Vector) -> Vector:
        """Return y, the rate that passes each location, for input rates and the keep at each location."""
        y = np.zeros(len(self.locations))
        y[: rates.size] = rates * keep[: rates.size]
        for members, arriving in self.levels:
            y[members] = keep[members] * (arriving @ y)
        return y

    def accumulate(self, own: Vector) -> Vector:
        """Return, by location, what a tuple that passes it causes there and downstream, if nothing more is dropped."""
        return _accumulate(self.levels, own)

    def keep(self, rates: Vector, y: Vector) -> Vector:
        """Return the keep at each location that lets y pass; 1 where nothing arrives."""
        arriving = self.sources @ y
        arriving[: rates.size] = rates
        keep = np.ones_like(y)
        np.divide(y, arriving, out=keep, where=arriving > 0)
        return np.clip(keep, 0.0, 1.0)

    def utilization(self, y: Vector) -> float:
        """Return the share of its capacity or bandwidth that y takes of the fullest node or link."""
        most = float(np.max(self.loads @ y / self.capacity, initial=0.0))
        return max(most, float(np.max(self.links @ y / self.bandwidths))) if self.network.bandwidths else most

    def is_overloaded(self, rates: Vector) -> bool:
        """Return whether these rates exceed the capacity of a node or the bandwidth of a link if nothing is dropped."""
        return any(bool(exceeds.any()) for exceeds in self.find_overloaded(rates))

    def find_overloaded(self, rates: Vector) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which nodes and which links these rates overload if nothing is dropped."""
        full = self.propagate(rates, np.ones(len(self.locations)))
        nodes: NDArray[np.bool_] = self.loads @ full > self.capacity * (1.0 + 1e-12)
        links: NDArray[np.bool_] = self.links @ full > self.bandwidths * (1.0 + 1e-12)
        return nodes, links

    def are_overloaded(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return ``is_overloaded`` for each row of rates."""
        if self.network.bandwidths:
            return np.array([self.is_overloaded(row) for row in rates], dtype=bool)
        matrix = np.zeros((len(self.inputs), len(self.nodes)))
        matrix[self.full_loads.columns, self.full_loads.rows] = self.full_loads.values
        overloaded: NDArray[np.bool_] = np.any(rates @ matrix > self.capacity * (1.0 + 1e-12), axis=1)
        return overloaded


def feasible_keep(flows: Flows, rates: Vector, y: Vector) -> Vector:
    """Return the keeps that let y pass, scaled down if rounding made them infeasible.

    This is the division after equation 8 of Staying FIT, where the last variable should read x6, not x5.
    """
    keep = flows.keep(rates, np.maximum(y, 0.0))
    most = flows.utilization(flows.propagate(rates, keep))
    if most > 1.0:
        keep[: rates.size] /= most
    return keep


def _accumulate(levels: list[Level], own: Vector) -> Vector:
    total = own.copy()
    for members, arriving in reversed(levels):
        total += sum_groups(arriving.columns, arriving.values * total[members[arriving.rows]], total.size)
    return total
