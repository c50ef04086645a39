"""What a node knows of itself and tells others: costs and selectivities as measured, its capacity, the rates at its entries."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import PenstockError
from penstock.network.coefficients import part_of
from penstock.network.model import ARROW, Network, arc_name

__all__ = [
    "Measurements",
    "OperatorMeasurements",
    "compute_flows",
    "describe_changes",
    "describe_network",
    "entries_of",
    "fingerprint",
    "remove_rate_bounds",
    "apply_measurements",
]


@dataclass(frozen=True, slots=True)
class OperatorMeasurements:
    """One operator as measured, each number with its standard deviation."""

    cost: float
    cost_error: float
    selectivity: float
    selectivity_error: float


@dataclass(frozen=True, slots=True)
class Measurements:
    """One node as measured."""

    node: str
    capacity: float
    """CPU seconds a second that are left for operators: what the engine needs for itself is taken off."""
    operators: Mapping[str, OperatorMeasurements] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    """Tuples a second that want in, by entry."""

    def to_body(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "node": self.node,
            "capacity": self.capacity,
            "operators": {
                name: [value.cost, value.cost_error, value.selectivity, value.selectivity_error]
                for name, value in self.operators.items()
            },
            "rates": dict(self.rates),
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Measurements:
        """Take what a node has sent.

        >>> Measurements.from_body({"node": "A", "capacity": "much", "operators": {}, "rates": {}})
        Traceback (most recent call last):
        penstock.errors.PenstockError: not the measurements of a node: could not convert string to float: 'much'
        """
        try:
            operators = {
                str(name): OperatorMeasurements(*(float(v) for v in values)) for name, values in body["operators"].items()
            }
            rates = {str(name): float(rate) for name, rate in body["rates"].items()}
            found = cls(str(body["node"]), float(body["capacity"]), operators, rates)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PenstockError(f"not the measurements of a node: {error}") from error
        numbers = [found.capacity, *rates.values(), *(v for o in operators.values() for v in (o.cost, o.selectivity))]
        if not all(math.isfinite(number) and number >= 0 for number in numbers) or not found.capacity > 0:
            raise PenstockError(f"the measurements of node {found.node!r} have a number that is none, or negative")
        return found

    @classmethod
    def from_declaration(cls, network: Network, node: str) -> Measurements:
        """Return what the network declares of a node, as if it had been measured."""
        operators = {
            name: OperatorMeasurements(operator.cost, 0.0, operator.selectivity, 0.0)
            for name, operator in network.operators.items()
            if operator.node == node
        }
        return cls(node, network.nodes[node].capacity, operators)


def apply_measurements(network: Network, measurements: Mapping[str, Measurements]) -> Network:
    """Return the network with what was measured in place of what was declared."""
    nodes = {
        name: replace(node, capacity=min(node.capacity, measurements[name].capacity)) if name in measurements else node
        for name, node in network.nodes.items()
    }
    operators = dict(network.operators)
    for own in measurements.values():
        for name, measured in own.operators.items():
            if name in operators and operators[name].node == own.node:
                operators[name] = replace(operators[name], cost=measured.cost, selectivity=measured.selectivity)
    return Network(nodes, network.inputs, operators, network.outputs, network.bandwidths, network.work)


def remove_rate_bounds(network: Network) -> Network:
    """Return the network without bounds on what is planned for, for planners that need none."""
    inputs = {name: replace(stream, max_rate=math.inf) for name, stream in network.inputs.items()}
    return Network(network.nodes, inputs, network.operators, network.outputs, network.bandwidths, network.work)


def entries_of(network: Network, node: str) -> tuple[str, ...]:
    """Where rows come into a node: its inputs, or its copies of them, and arcs from other nodes."""
    return tuple(part_of(network, node).inputs)


def compute_flows(network: Network, rates: Mapping[str, float], keep: Mapping[str, float]) -> dict[str, float]:
    """Return what passes each input and each arc, by its name, at these rates and keeps.

    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", selectivity=0.5).output("q", "a").build()
    >>> compute_flows(network, {"i": 10.0}, {"i": 0.8})
    {'i': 8.0, 'i->a': 8.0, 'a->q': 4.0}
    """
    out = {name: rates[name] * keep.get(name, 1.0) for name in network.inputs}
    found = dict(out)

    def passing(source: str, target: str) -> float:
        name = arc_name(source, target)
        found[name] = out[source] * keep.get(name, 1.0)
        return found[name]

    for name in network.order:
        operator = network.operators[name]
        out[name] = sum(passing(source, name) * operator.gain(source) for source in operator.sources)
    for name, output in network.outputs.items():
        passing(output.source, name)
    return found


def describe_network(network: Network) -> dict[str, dict[str, Any]]:
    """Return all that makes a network run as it does, as plain values, by its parts."""
    found: dict[str, dict[str, Any]] = {}
    for name, node in network.nodes.items():
        found[f"node {name}"] = {"capacity": node.capacity}
    for name in network.inputs:
        found[f"input {name}"] = _work(network, name)
    for name, operator in network.operators.items():
        windows = list(operator.windows) if operator.windows else None
        found[f"operator {name}"] = {
            "node": operator.node,
            "from": list(operator.sources),
            "kind": operator.kind,
            "windows": windows,
            **_work(network, name),
        }
    for name in network.work:
        if ARROW in name:
            found[f"link {name}"] = _work(network, name)
    for name, output in network.outputs.items():
        found[f"output {name}"] = {"from": output.source, **_work(network, name)}
    return found


def _work(network: Network, name: str) -> dict[str, Any]:
    return {key: value if isinstance(value, str | dict) else _shown(value) for key, value in network.work.get(name, {}).items()}


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else getattr(value, "__qualname__", str(value))


def fingerprint(network: Network) -> str:
    """Return a short text that differs for networks that run differently."""
    return hashlib.sha256(json.dumps(describe_network(network), sort_keys=True).encode()).hexdigest()[:16]


def describe_changes(before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say what is different between two networks, a line each.

    >>> describe_changes({"node A": {"capacity": 1.0}}, {"node A": {"capacity": 2.0}, "node B": {"capacity": 1.0}})
    ['node A: capacity was 1.0 and is 2.0', 'node B is new']
    """
    found = [f"{part} is gone" for part in before if part not in now]
    for part, values in now.items():
        if part not in before:
            found.append(f"{part} is new")
            continue
        old = before[part]
        found += [
            f"{part}: {key} was {old.get(key)!r} and is {values.get(key)!r}"
            for key in dict.fromkeys((*old, *values))
            if old.get(key) != values.get(key)
        ]
    return found
