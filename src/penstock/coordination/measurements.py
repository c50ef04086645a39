"""What a node measures of itself and tells others: costs, selectivities, its capacity, and the rates at its entries."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import linearize, part_of
from penstock.network.facts import Facts
from penstock.network.model import Network, Operator, arc_name

__all__ = [
    "FactsOfNode",
    "Measurements",
    "OperatorMeasurements",
    "OperatorTable",
    "apply_measurements",
    "compute_flows",
    "entries_of",
    "remove_rate_bounds",
]


@dataclass(frozen=True, slots=True)
class OperatorMeasurements:
    """One operator as measured, each number with its standard deviation."""

    cost: float
    """CPU seconds per row."""
    cost_error: float
    selectivity: float
    """Rows out per row in."""
    selectivity_error: float


class OperatorTable(Mapping[str, OperatorMeasurements]):
    """Operators as measured, by name, kept as one array: thousands of them take little longer than a few.

    Examples
    --------
    >>> OperatorTable(("a",), np.array([[0.01, 0.001, 0.5, 0.1]]))["a"].selectivity
    0.5
    """

    __slots__ = ("_index", "names", "values_by_operator")

    def __init__(self, names: tuple[str, ...], values_by_operator: NDArray[np.float64]) -> None:
        self.names = names
        self.values_by_operator = values_by_operator
        """By operator: cost, its error, selectivity, its error. Nobody changes it."""
        self._index: dict[str, int] | None = None

    def __getitem__(self, name: str) -> OperatorMeasurements:
        if self._index is None:
            self._index = {name: number for number, name in enumerate(self.names)}
        return OperatorMeasurements(*self.values_by_operator[self._index[name]].tolist())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def items(self) -> ItemsView[str, OperatorMeasurements]:
        """Return the operators with their names."""
        rows = self.values_by_operator.tolist()
        return {name: OperatorMeasurements(*row) for name, row in zip(self.names, rows, strict=True)}.items()

    def replace(self, changes: OperatorTable) -> OperatorTable:
        """Return the table with what has changed."""
        merged = dict(zip(self.names, self.values_by_operator.tolist(), strict=True))
        merged |= zip(changes.names, changes.values_by_operator.tolist(), strict=True)
        return OperatorTable(tuple(merged), np.array(list(merged.values()), dtype=np.float64).reshape(-1, 4))

    @classmethod
    def of(cls, operators: Mapping[str, OperatorMeasurements]) -> OperatorTable:
        """Return any mapping as a table."""
        if isinstance(operators, OperatorTable):
            return operators
        rows = [[o.cost, o.cost_error, o.selectivity, o.selectivity_error] for o in operators.values()]
        return cls(tuple(operators), np.array(rows, dtype=np.float64).reshape(-1, 4))


@dataclass(frozen=True, slots=True)
class Measurements:
    """One node as measured."""

    node: str
    capacity: float
    """CPU seconds per second that are left for operators, after what the engine needs for itself."""
    operators: Mapping[str, OperatorMeasurements] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    """Rows per second that arrive, by entry."""

    @classmethod
    def from_declaration(cls, network: Network, node: str) -> Measurements:
        """Return what the network declares of a node, as if it had been measured."""
        operators = {
            name: OperatorMeasurements(operator.cost, 0.0, operator.selectivity, 0.0)
            for name, operator in network.operators.items()
            if operator.node == node and not operator.timed  # what such a join puts out per row is known only once it runs
        }
        return cls(node, network.nodes[node].capacity, operators)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Measurements:
        """Read the body of a message.

        Raises
        ------
        PenstockError
            If a field is missing, or a number is negative or not finite.

        Examples
        --------
        >>> Measurements.from_body({"node": "A", "capacity": "much", "operators": {}, "rates": {}})
        Traceback (most recent call last):
        penstock.errors.PenstockError: these are not the measurements of a node: could not convert string to float: 'much'

        """
        try:
            operators = _read_report(body) if "names" in body else _read_operators(body["operators"])
            rates = {str(name): float(rate) for name, rate in body["rates"].items()}
            measurements = cls(str(body["node"]), float(body["capacity"]), operators, rates)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PenstockError(f"these are not the measurements of a node: {error}") from error
        costs = operators.values_by_operator[:, (0, 2)]
        are_sound = bool(np.all(np.isfinite(costs)) and np.all(costs >= 0))
        numbers = [measurements.capacity, *rates.values()]
        if not (are_sound and all(math.isfinite(number) and number >= 0 for number in numbers) and measurements.capacity > 0):
            raise PenstockError(f"the measurements of node {measurements.node!r} have a number that is negative or not finite")
        return measurements

    def to_body(self) -> dict[str, Any]:
        """Return the body of a message: plain JSON values."""
        return {
            "node": self.node,
            "capacity": self.capacity,
            "operators": dict(zip(self.operators, OperatorTable.of(self.operators).values_by_operator.tolist(), strict=True)),
            "rates": dict(self.rates),
        }


def _read_report(body: Mapping[str, Any]) -> OperatorTable:
    """Return the operators of a report: names, costs and selectivities in lists of their own, which take least time to write."""
    names = tuple(map(str, body["names"]))
    values = np.zeros((len(names), 4))
    for column, key in ((0, "costs"), (2, "selectivities")):
        numbers = np.array(body[key], dtype=np.float64)
        if numbers.shape != (len(names),):
            raise ValueError(f"{len(names)} operators need as many {key}, got {numbers.size}")
        values[:, column] = numbers
    return OperatorTable(names, values)


def _read_operators(operators: Mapping[str, Any]) -> OperatorTable:
    """Return cost, its error, selectivity and its error by operator; the errors may be missing."""
    rows = [[float(value) for value in values] for values in operators.values()]
    values = np.zeros((len(rows), 4))
    for columns in ((0, 1, 2, 3), (0, 2)):
        if all(len(row) == len(columns) for row in rows):
            values[:, columns] = np.array(rows, dtype=np.float64).reshape(-1, len(columns))
            return OperatorTable(tuple(map(str, operators)), values)
    raise ValueError("an operator has a cost and a selectivity, each with or without its error")


class FactsOfNode:
    """Where the operators of one node are in a network, to put what the node has measured into the facts of the network.

    ``index`` has the position of each operator of the network, if it is known already.
    """

    def __init__(self, network: Network, node: str, index: Mapping[str, int] | None = None) -> None:
        if index is None:
            index = {name: number for number, name in enumerate(network.operators)}
        self._positions = {name: index[name] for name in network.by_node[node]}
        self._node = list(network.nodes).index(node)
        self._declared_capacity = network.nodes[node].capacity
        self._known: tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]] | None = None

    def enter(self, measurements: Measurements, facts: Facts) -> Facts:
        """Return the facts with what the node has measured; a node speaks for its own operators only."""
        table = OperatorTable.of(measurements.operators)
        if self._known is None or (self._known[0] is not table.names and self._known[0] != table.names):
            own = [(row, self._positions[name]) for row, name in enumerate(table.names) if name in self._positions]
            rows, positions = np.array(own, dtype=np.int64).reshape(-1, 2).T
            self._known = table.names, rows, positions
        _, rows, positions = self._known
        costs, selectivities, capacities = facts.costs.copy(), facts.selectivities.copy(), facts.capacities.copy()
        costs[positions] = table.values_by_operator[rows, 0]
        selectivities[positions] = table.values_by_operator[rows, 2]
        capacities[self._node] = min(self._declared_capacity, measurements.capacity)
        return Facts(costs, selectivities, capacities)


def apply_measurements(network: Network, measurements: Mapping[str, Measurements]) -> Network:
    """Return the network with measured values in place of declared ones; a node speaks for its own operators only."""
    nodes = {
        name: replace(node, capacity=min(node.capacity, measurements[name].capacity)) if name in measurements else node
        for name, node in network.nodes.items()
    }
    operators = dict(network.operators)
    for reported in measurements.values():
        for name, operator in reported.operators.items():
            if name in operators and operators[name].node == reported.node:
                operators[name] = _apply_operator(operators[name], operator)
    return Network(nodes, network.inputs, operators, network.outputs, network.bandwidths, network.work)


def _apply_operator(operator: Operator, measured: OperatorMeasurements) -> Operator:
    """Return an operator as measured. A join with windows in seconds is measured in rows out per row in, from either side."""
    if not operator.timed or operator.windows is None:
        return replace(operator, cost=measured.cost, selectivity=measured.selectivity)
    left, right = operator.windows
    return replace(operator, cost=measured.cost, selectivity=measured.selectivity, side_rates=(1.0 / left, 1.0 / right))


def remove_rate_bounds(network: Network) -> Network:
    """Return the network without maximum rates, for planners that need none."""
    inputs = {name: replace(stream, max_rate=math.inf) for name, stream in network.inputs.items()}
    return Network(network.nodes, inputs, network.operators, network.outputs, network.bandwidths, network.work)


def entries_of(network: Network, node: str) -> tuple[str, ...]:
    """Return where rows enter a node: its inputs, or its copies of them, and arcs from other nodes."""
    return tuple(part_of(network, node).inputs)


def compute_flows(network: Network, rates: Mapping[str, float], keep: Mapping[str, float]) -> dict[str, float]:
    """Return the rows per second that pass each input and each arc, by name, at these rates and keeps.

    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", selectivity=0.5).output("q", "a").build()
    >>> compute_flows(network, {"i": 10.0}, {"i": 0.8})
    {'i': 8.0, 'i->a': 8.0, 'a->q': 4.0}
    """
    network = linearize(network, rates)
    leaving = {name: rates[name] * keep.get(name, 1.0) for name in network.inputs}
    flows = dict(leaving)
    for name in network.order:
        operator = network.operators[name]
        leaving[name] = 0.0
        for source in operator.sources:
            arc = arc_name(source, name)
            flows[arc] = leaving[source] * keep.get(arc, 1.0)
            leaving[name] += flows[arc] * operator.gain(source)
    for name, output in network.outputs.items():
        arc = arc_name(output.source, name)
        flows[arc] = leaving[output.source] * keep.get(arc, 1.0)
    return flows
