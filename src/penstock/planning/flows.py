"""A network as linear functions of what passes its drop locations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients, Location
from penstock.network.model import Network, arc_name

__all__ = ["Flows", "SparseMatrix", "Vector"]

Vector = NDArray[np.float64]


class SparseMatrix:
    """A matrix of few entries that multiplies vectors. Written here because NumPy has none, and SciPy for it alone is much."""

    def __init__(self, rows: Sequence[Mapping[int, float]]) -> None:
        self.height = len(rows)
        self.rows = np.array([number for number, row in enumerate(rows) for _ in row], dtype=np.int64)
        self.columns = np.array([column for row in rows for column in row], dtype=np.int64)
        self.values = np.array([value for row in rows for value in row.values()], dtype=np.float64)

    def __matmul__(self, vector: Vector) -> Vector:
        if not self.rows.size:
            return np.zeros(self.height)  # of nothing, bincount makes whole numbers
        return np.asarray(np.bincount(self.rows, self.values * vector[self.columns], minlength=self.height), dtype=np.float64)


class Flows:
    """Every rate in the network, from ``y``: how many tuples a second pass each drop location.

    Between two locations nothing is dropped, so what an operator receives is a sum over the locations just upstream. With that,
    loads, throughputs and what arrives at a location are linear in y, also where streams merge and split again, which path
    prefixes (paper 000, section 3.2) don't cover.

    ``entries`` makes arcs between nodes locations too: nobody who plans for the whole network needs them, but nodes that shed
    for themselves do.
    """

    def __init__(self, network: Network, *, entries: bool = False) -> None:
        if network.bilinear:
            raise PenstockError(
                f"join {network.bilinear[0]!r} has windows in seconds: its output is a product of two rates, which no plan here "
                "covers; give its windows in tuples, or shed both sides by key with one common keep"
            )
        self.network = network
        derived = Coefficients(network)
        _ = derived.load, derived.quality  # says so if they are no numbers
        found = list(derived.locations)
        if entries:
            known = {location.name for location in found}
            found += [
                Location(arc_name(source, target), source, target, network.node_of(target))
                for source, target in derived.crossings
                if arc_name(source, target) not in known
            ]
        self.locations: tuple[Location, ...] = tuple(found)
        self.place = {location.name: number for number, location in enumerate(found)}
        self.nodes = tuple(network.nodes)
        self.inputs = tuple(network.inputs)
        self.outputs = tuple(network.outputs)
        self.capacity = np.array([node.capacity for node in network.nodes.values()])
        self.weights = np.array([output.weight for output in network.outputs.values()])
        self._compile()
        self.value: Vector = np.zeros(len(found))
        np.add.at(self.value, self.through.columns, self.through.values * self.weights[self.through.rows])
        """What a tuple a second at each location adds to the score, up to the next locations."""
        self.levels = self._by_depth()
        """The locations behind others, nearest the inputs first, with what arrives there."""
        node_rows: list[dict[int, float]] = [{} for _ in self.nodes]
        index = {name: number for number, name in enumerate(self.nodes)}
        for column, name in enumerate(self.inputs):
            for node, load in derived.node_loads[name].items():
                node_rows[index[node]][column] = load
        self.full_loads = SparseMatrix(node_rows)
        """Loads by input rate when nothing is dropped."""

    def _compile(self) -> None:
        """Walk the network once and write down what depends on which location."""
        network = self.network
        node_index = {name: number for number, name in enumerate(self.nodes)}
        loads: list[dict[int, float]] = [{} for _ in self.nodes]
        sources: list[dict[int, float]] = [{} for _ in self.locations]
        out: dict[str, dict[int, float]] = {name: {self.place[name]: 1.0} for name in self.inputs}
        arcs: dict[str, dict[int, float]] = {}
        limited = {name: number for number, name in enumerate(network.bandwidths)}
        limits: list[dict[int, float]] = [{} for _ in limited]

        def passing(source: str, target: str) -> dict[int, float]:
            name = arc_name(source, target)
            number = self.place.get(name)
            if number is None:
                flow = out[source]
            else:
                sources[number] = out[source]
                flow = {number: 1.0}
            if name in limited:
                limits[limited[name]] = flow
            return flow

        for name in network.order:
            operator = network.operators[name]
            load = loads[node_index[operator.node]]
            result: dict[int, float] = {}
            for source in operator.sources:
                gain = operator.gain(source)
                for number, flow in passing(source, name).items():
                    if operator.cost:
                        load[number] = load.get(number, 0.0) + flow * operator.cost
                    result[number] = result.get(number, 0.0) + flow * gain
            out[name] = result
        for name, output in network.outputs.items():
            arcs[name] = passing(output.source, name)
        self.loads = SparseMatrix(loads)
        """Loads by node, CPU seconds a second."""
        self.sources = SparseMatrix(sources)
        """What arrives at each location; nothing for the entry of an input, whose source is the rate."""
        self.through = SparseMatrix(list(arcs.values()))
        """Throughput by output."""
        self.links = SparseMatrix(limits)
        """Rates on the arcs that have a bandwidth."""

    def _by_depth(self) -> list[tuple[NDArray[np.int64], SparseMatrix]]:
        """Group the locations behind others by how many lie upstream, so that each group follows from those before."""
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

    def passing(self, rates: Vector, keep: Vector) -> Vector:
        """What passes each location at these rates and keeps."""
        y = np.zeros(len(self.locations))
        y[: rates.size] = rates * keep[: rates.size]
        for members, arriving in self.levels:
            y[members] = keep[members] * (arriving @ y)
        return y

    def keep(self, rates: Vector, y: Vector) -> Vector:
        """The keep at each location that lets y pass; 1 where nothing arrives."""
        arriving = self.sources @ y
        arriving[: rates.size] = rates
        keep = np.ones_like(y)
        np.divide(y, arriving, out=keep, where=arriving > 0)
        return np.clip(keep, 0.0, 1.0)

    def overloaded(self, rates: Vector) -> bool:
        """Whether some node can't do all of this, or some link can't carry it."""
        if bool(np.any(self.full_loads @ rates > self.capacity * (1.0 + 1e-12))):
            return True
        if not self.network.bandwidths:
            return False
        full = self.passing(rates, np.ones(len(self.locations)))
        return bool(np.any(self.links @ full > self.bandwidths * (1.0 + 1e-12)))

    def overloads(self, rates: NDArray[np.float64]) -> NDArray[np.bool_]:
        """The same for each row of rates."""
        if self.network.bandwidths:
            return np.array([self.overloaded(row) for row in rates], dtype=bool)
        matrix = np.zeros((len(self.inputs), len(self.nodes)))
        matrix[self.full_loads.columns, self.full_loads.rows] = self.full_loads.values
        found: NDArray[np.bool_] = np.any(rates @ matrix > self.capacity * (1.0 + 1e-12), axis=1)
        return found

    @property
    def bandwidths(self) -> Vector:
        """The limits of the links."""
        return np.array(list(self.network.bandwidths.values()), dtype=np.float64)
