"""A network as linear functions of the rates that pass its drop locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, Location
from penstock.network.model import Network, arc_name

__all__ = ["Flows", "SparseMatrix", "Vector", "feasible_keep"]

Vector = NDArray[np.float64]


class SparseMatrix:
    """A sparse matrix that multiplies vectors. NumPy has none, and SciPy would be a large dependency for this alone."""

    def __init__(self, rows: Sequence[Mapping[int, float]]) -> None:
        self.height = len(rows)
        self.rows = np.array([number for number, row in enumerate(rows) for _ in row], dtype=np.int64)
        self.columns = np.array([column for row in rows for column in row], dtype=np.int64)
        self.values = np.array([value for row in rows for value in row.values()], dtype=np.float64)

    def __matmul__(self, vector: Vector) -> Vector:
        if not self.rows.size:
            return np.zeros(self.height)  # bincount of an empty array returns integers
        return np.asarray(np.bincount(self.rows, self.values * vector[self.columns], minlength=self.height), dtype=np.float64)


class Flows:
    """Every rate in the network as a function of ``y``, the tuples per second that pass each drop location.

    Nothing is dropped between two locations, so the rate into an operator is a weighted sum over the locations directly upstream.
    Loads, throughputs and the rates that arrive at locations are therefore linear in y. This also holds where streams merge and
    split again, which the path prefixes of Staying FIT (section 3.2) do not cover.

    With ``entries``, arcs between nodes are locations too. Plans for the whole network do not need them, but nodes that shed
    independently do.
    """

    def __init__(self, network: Network, *, entries: bool = False) -> None:
        unknown = [name for name in network.bilinear if network.operators[name].side_rates is None]
        if unknown:
            raise PenstockError(
                f"join {unknown[0]!r} has windows in seconds: how much it puts out per tuple depends on the rates of both sides, "
                "which only exact plans for; use exact, or give its windows in tuples"
            )
        self.network = network
        derived = Coefficients(network)
        _ = derived.load, derived.quality  # raises if they overflow
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
        self.capacity = np.array([node.capacity for node in network.nodes.values()])
        self.weights = np.array([output.weight for output in network.outputs.values()])
        self._compile()
        self.value: Vector = np.zeros(len(locations))
        np.add.at(self.value, self.through.columns, self.through.values * self.weights[self.through.rows])
        """By location: the score per tuple that passes it, from the outputs reached before the next location."""
        self.levels = self._group_by_depth()
        """The locations downstream of others, grouped by depth, with the matrix of the rates that arrive there."""
        node_rows: list[dict[int, float]] = [{} for _ in self.nodes]
        node_index = {name: number for number, name in enumerate(self.nodes)}
        for column, name in enumerate(self.inputs):
            for node, load in derived.node_loads[name].items():
                node_rows[node_index[node]][column] = load
        self.full_loads = SparseMatrix(node_rows)
        """Loads by node as a function of the input rates, if nothing is dropped."""

    def _compile(self) -> None:
        """Walk the network once and record which rates depend on which locations."""
        network = self.network
        node_index = {name: number for number, name in enumerate(self.nodes)}
        loads: list[dict[int, float]] = [{} for _ in self.nodes]
        sources: list[dict[int, float]] = [{} for _ in self.locations]
        out: dict[str, dict[int, float]] = {name: {self.location_index[name]: 1.0} for name in self.inputs}
        arcs: dict[str, dict[int, float]] = {}
        link_index = {name: number for number, name in enumerate(network.bandwidths)}
        links: list[dict[int, float]] = [{} for _ in link_index]

        def flow_on(source: str, target: str) -> dict[int, float]:
            name = arc_name(source, target)
            number = self.location_index.get(name)
            if number is None:
                flow = out[source]
            else:
                sources[number] = out[source]
                flow = {number: 1.0}
            if name in link_index:
                links[link_index[name]] = flow
            return flow

        for name in network.order:
            operator = network.operators[name]
            load = loads[node_index[operator.node]]
            result: dict[int, float] = {}
            for source in operator.sources:
                gain = operator.gain(source)
                for number, flow in flow_on(source, name).items():
                    if operator.cost:
                        load[number] = load.get(number, 0.0) + flow * operator.cost
                    result[number] = result.get(number, 0.0) + flow * gain
            out[name] = result
        for name, output in network.outputs.items():
            arcs[name] = flow_on(output.source, name)
        self.loads = SparseMatrix(loads)
        """Loads by node, in CPU seconds per second."""
        self.sources = SparseMatrix(sources)
        """Rates that arrive at each location; zero where an input enters, because its own rate arrives there."""
        self.through = SparseMatrix(list(arcs.values()))
        """Throughput by output."""
        self.links = SparseMatrix(links)
        """Rates on the arcs with a bandwidth."""

    def _group_by_depth(self) -> list[tuple[NDArray[np.int64], SparseMatrix]]:
        """Group the locations by the number of locations upstream, so that each group depends only on earlier groups."""
        depth = np.zeros(len(self.locations), dtype=np.int64)
        rows: list[dict[int, float]] = [{} for _ in self.locations]
        for row, column, value in zip(self.sources.rows, self.sources.columns, self.sources.values, strict=True):
            rows[int(row)][int(column)] = float(value)
        rank = {name: number for number, name in enumerate((*self.inputs, *self.network.order))}
        for number in sorted(range(len(rows)), key=lambda number: rank[self.locations[number].source]):
            if rows[number]:
                depth[number] = 1 + max(depth[column] for column in rows[number])
        return [
            (members, SparseMatrix([rows[number] for number in members.tolist()]))
            for level in range(1, int(depth.max(initial=0)) + 1)
            for members in (np.flatnonzero(depth == level),)
        ]

    def propagate(self, rates: Vector, keep: Vector) -> Vector:
        """Return y, the rate that passes each location, for input rates and the keep at each location."""
        y = np.zeros(len(self.locations))
        y[: rates.size] = rates * keep[: rates.size]
        for members, arriving in self.levels:
            y[members] = keep[members] * (arriving @ y)
        return y

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
        if bool(np.any(self.full_loads @ rates > self.capacity * (1.0 + 1e-12))):
            return True
        if not self.network.bandwidths:
            return False
        full = self.propagate(rates, np.ones(len(self.locations)))
        return bool(np.any(self.links @ full > self.bandwidths * (1.0 + 1e-12)))

    def are_overloaded(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return ``is_overloaded`` for each row of rates."""
        if self.network.bandwidths:
            return np.array([self.is_overloaded(row) for row in rates], dtype=bool)
        matrix = np.zeros((len(self.inputs), len(self.nodes)))
        matrix[self.full_loads.columns, self.full_loads.rows] = self.full_loads.values
        overloaded: NDArray[np.bool_] = np.any(rates @ matrix > self.capacity * (1.0 + 1e-12), axis=1)
        return overloaded

    @property
    def bandwidths(self) -> Vector:
        """The bandwidths of the links, in tuples per second."""
        return np.array(list(self.network.bandwidths.values()), dtype=np.float64)


def feasible_keep(flows: Flows, rates: Vector, y: Vector) -> Vector:
    """Return the keeps that let y pass, scaled down if rounding made them infeasible.

    This is the division after equation 8 of Staying FIT, where the last variable should read x6, not x5.
    """
    keep = flows.keep(rates, np.maximum(y, 0.0))
    most = flows.utilization(flows.propagate(rates, keep))
    if most > 1.0:
        keep[: rates.size] /= most
    return keep
