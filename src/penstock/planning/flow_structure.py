"""Which rates of a network depend on which drop locations, apart from all numbers: computed once per network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.network.model import Network, arc_name
from penstock.planning.sparse_matrix import SparseMatrix, sum_groups

__all__ = ["FlowStructure", "Pattern", "compile_structure"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Where a sparse matrix has entries, and which coefficient each of them is."""

    height: int
    rows: Indices
    columns: Indices
    coefficients: Indices

    def fill(self, coefficients: Vector) -> SparseMatrix:
        """Return the matrix."""
        return SparseMatrix(self.height, self.rows, self.columns, coefficients[self.coefficients])


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Coefficients that depend only on those of earlier steps: ``coefficient[out] = sum of gain * coefficient[into]``."""

    out: Indices
    into: Indices
    operators: Indices
    factors: Vector
    is_sum: bool
    """Whether several terms go to one coefficient."""


@dataclass(frozen=True, slots=True, eq=False)
class FlowStructure:
    """A network as a list of coefficients: tuples that leave an operator per tuple that passes a location upstream of it.

    ``evaluate`` computes all of them from the selectivities, a few array operations per step, so new measurements need no walk
    over the network.
    """

    size: int
    steps: tuple[_Step, ...]
    sources: Pattern
    through: Pattern
    links: Pattern
    depth: Indices
    """By location: the number of locations upstream, along the longest path."""
    load_rows: Indices
    load_columns: Indices
    load_groups: Indices
    """The entry of the matrix of loads that each load term belongs to."""
    load_coefficients: Indices
    load_operators: Indices

    def evaluate(self, selectivities: Vector) -> Vector:
        """Return the coefficients. The first is the constant 1."""
        coefficients = np.zeros(self.size)
        coefficients[0] = 1.0
        for step in self.steps:
            terms = selectivities[step.operators] * step.factors * coefficients[step.into]
            if step.is_sum:
                first = int(step.out.min())
                sums = np.bincount(step.out - first, terms)
                coefficients[first : first + sums.size] += sums
            else:
                coefficients[step.out] = terms
        return coefficients

    def loads(self, height: int, coefficients: Vector, costs: Vector) -> SparseMatrix:
        """Return the matrix of loads by node."""
        terms = costs[self.load_operators] * coefficients[self.load_coefficients]
        return SparseMatrix(height, self.load_rows, self.load_columns, sum_groups(self.load_groups, terms, self.load_rows.size))


def compile_structure(network: Network, location_index: Mapping[str, int]) -> FlowStructure:
    """Walk the network once and record which rates depend on which locations."""
    return _Compiler(network, location_index).compile()


class _Compiler:
    """The lists under construction."""

    def __init__(self, network: Network, location_index: Mapping[str, int]) -> None:
        self._network, self._index = network, location_index
        self._size = 1  # coefficient 0 is the constant 1
        self._terms: list[tuple[int, int, int, int, float]] = []  # step, out, into, operator, factor
        self._loads: list[tuple[int, int, int, int]] = []  # node, location, coefficient, operator
        self._sources: list[tuple[int, int, int]] = []
        self._links: list[tuple[int, int, int]] = []
        self._link_index = {name: number for number, name in enumerate(network.bandwidths)}
        self._depth = [0] * len(location_index)
        # By stream: the coefficient of each location that it depends on, and the step that computes them.
        self._streams: dict[str, tuple[dict[int, int], int]] = {name: ({location_index[name]: 0}, 0) for name in network.inputs}

    def compile(self) -> FlowStructure:
        network = self._network
        node_index = {name: number for number, name in enumerate(network.nodes)}
        operator_index = {name: number for number, name in enumerate(network.operators)}
        for name in network.order:
            self._add_operator(name, operator_index[name], node_index[network.operators[name].node])
        through = [
            (row, location, coefficient)
            for row, (name, output) in enumerate(network.outputs.items())
            for location, coefficient in self._flow_on(output.source, name)[0].items()
        ]
        count = len(self._index)
        loads = _columns(self._loads, 4)
        keys, groups = np.unique(loads[0] * count + loads[1], return_inverse=True)
        return FlowStructure(
            self._size,
            self._group_terms(),
            Pattern(count, *_columns(self._sources, 3)),
            Pattern(len(network.outputs), *_columns(through, 3)),
            Pattern(len(self._link_index), *_columns(self._links, 3)),
            np.array(self._depth, dtype=np.int64),
            keys // count,
            keys % count,
            groups,
            loads[2],
            loads[3],
        )

    def _add_operator(self, name: str, number: int, node: int) -> None:
        operator = self._network.operators[name]
        result: dict[int, int] = {}
        flows = [self._flow_on(source, name) for source in operator.sources]
        step = 1 + max(step for _, step in flows)
        for source, (flow, _) in zip(operator.sources, flows, strict=True):
            factor = operator.gain_factor(source)
            for location, coefficient in flow.items():
                self._loads.append((node, location, coefficient, number))
                out = result.get(location)
                if out is None:
                    out = result[location] = self._size
                    self._size += 1
                self._terms.append((step, out, coefficient, number, factor))
        self._streams[name] = result, step

    def _flow_on(self, source: str, target: str) -> tuple[dict[int, int], int]:
        """Return what the flow on an arc depends on: on the arc itself if it is a location, else on what its source does."""
        name = arc_name(source, target)
        number = self._index.get(name)
        stream = self._streams[source]
        if number is not None:
            self._sources += [(number, location, coefficient) for location, coefficient in stream[0].items()]
            self._depth[number] = 1 + max((self._depth[location] for location in stream[0]), default=0)
            stream = {number: 0}, 0
        if name in self._link_index:
            row = self._link_index[name]
            self._links += [(row, location, coefficient) for location, coefficient in stream[0].items()]
        return stream

    def _group_terms(self) -> tuple[_Step, ...]:
        if not self._terms:
            return ()
        step, out, into, operators, factors = (np.array(column) for column in zip(*self._terms, strict=True))
        order = np.argsort(step, kind="stable")
        bounds = np.flatnonzero(np.diff(step[order])) + 1
        return tuple(
            _Step(out[part], into[part], operators[part], factors[part].astype(np.float64), np.unique(out[part]).size < part.size)
            for part in np.split(order, bounds)
        )


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> list[Indices]:
    if not rows:
        return [np.zeros(0, dtype=np.int64) for _ in range(width)]
    return list(np.array(rows, dtype=np.int64).T.copy())
