"""What a node measures of itself and tells others: costs, selectivities, its capacity, and the rates at its entries."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import PenstockError
from penstock.network.coefficients import linearize, part_of
from penstock.network.model import Network, Operator, arc_name

__all__ = [
    "Measurements",
    "OperatorMeasurements",
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
            operators = {
                str(name): OperatorMeasurements(*(float(value) for value in values)) for name, values in body["operators"].items()
            }
            rates = {str(name): float(rate) for name, rate in body["rates"].items()}
            measurements = cls(str(body["node"]), float(body["capacity"]), operators, rates)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PenstockError(f"these are not the measurements of a node: {error}") from error
        costs = [number for operator in operators.values() for number in (operator.cost, operator.selectivity)]
        numbers = [measurements.capacity, *rates.values(), *costs]
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or not measurements.capacity > 0:
            raise PenstockError(f"the measurements of node {measurements.node!r} have a number that is negative or not finite")
        return measurements

    def to_body(self) -> dict[str, Any]:
        """Return the body of a message: plain JSON values."""
        return {
            "node": self.node,
            "capacity": self.capacity,
            "operators": {
                name: [operator.cost, operator.cost_error, operator.selectivity, operator.selectivity_error]
                for name, operator in self.operators.items()
            },
            "rates": dict(self.rates),
        }


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
