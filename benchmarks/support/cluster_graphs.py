"""D-FIT between clusters: random graphs of nodes that form a tree of clusters, measured facts, plans against exact ones."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.support.dfit_trees import overload, random_node_tree
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Row
from penstock.coordination import DFitPlanner
from penstock.coordination.measurements import remove_rate_bounds
from penstock.network import Network
from penstock.network.coefficients import Coefficients
from penstock.network.facts import Facts
from penstock.network.model import Node
from penstock.planning import Exact

__all__ = ["check_clusters", "measure_facts", "split_nodes"]

_EPSILON = 0.1
_CELLS = ((3, 10, 2), (3, 10, 4), (11, 25, 2), (11, 25, 4))
"""The least and the greatest number of clusters, and the number of streams."""
_GRAPHS = 10
_ROUNDS = 4
_PLANS = 5
_ROUNDING = 1e-6


def split_nodes(rng: np.random.Generator, tree: Network) -> Network:
    """Make a cluster of every second node of a tree, or so: its operators go to up to three nodes, which may feed each other."""
    nodes: dict[str, Node] = {}
    clusters: dict[str, tuple[str, ...]] = {}
    operators = dict(tree.operators)
    for name, node in tree.nodes.items():
        count = min(len(tree.by_node[name]), int(rng.integers(1, 4)))
        if count < 2:
            nodes[name] = node
            continue
        members = tuple(f"{name}.{number}" for number in range(count))
        clusters[name] = members
        nodes |= {member: Node(member, node.capacity * float(rng.uniform(0.3, 1.0))) for member in members}
        for number, operator in enumerate(tree.by_node[name]):
            member = members[number] if number < count else str(rng.choice(members))
            operators[operator] = replace(operators[operator], node=member)
    return Network(nodes, tree.inputs, operators, tree.outputs, clusters=clusters)


def measure_facts(rng: np.random.Generator, network: Network, most: float = 10.0) -> Facts:
    """Return facts, each up to ``most`` times as high or low as declared. A capacity is at most the declared one."""
    declared = Facts.from_declaration(network)

    def change(numbers: NDArray[np.float64], highest: float = 1.0) -> NDArray[np.float64]:
        changed: NDArray[np.float64] = numbers * most ** rng.uniform(-1.0, highest, numbers.size)
        return changed

    return Facts(change(declared.costs), change(declared.selectivities), change(declared.capacities, 0.0))


def apply_facts(network: Network, facts: Facts) -> Network:
    """Return the network with these facts."""
    operators = {
        name: replace(operator, cost=cost, selectivity=selectivity)
        for (name, operator), cost, selectivity in zip(
            network.operators.items(), facts.costs.tolist(), facts.selectivities.tolist(), strict=True
        )
    }
    nodes = {
        name: replace(node, capacity=capacity)
        for (name, node), capacity in zip(network.nodes.items(), facts.capacities.tolist(), strict=True)
    }
    return Network(nodes, network.inputs, operators, network.outputs)


def check_clusters(*, quick: bool, say: Say) -> tuple[list[Row], list[Bar], list[Claim]]:
    """Plan with D-FIT between clusters, and return one row per number of clusters and of streams."""
    rows: list[Row] = []
    for low, high, streams in _CELLS:
        count = 1 if quick else _GRAPHS
        say(f"D-FIT: {count} graphs of {low} to {high} clusters, {streams} streams")
        rows.append(_measure_graphs(np.random.default_rng([low, streams]), count, (low, high), streams))

    def greatest(column: str) -> float:
        return max(float(row[column] or 0) for row in rows)

    plans = sum(float(row["plans"] or 0) for row in rows)
    bars = [
        Bar.at_most(f"clusters, {plans:,.0f} plans: greatest error, in epsilons", greatest("error / epsilon"), 1.0 + _ROUNDING),
        Bar.at_most("clusters: greatest load of a node, of its capacity", greatest("greatest load"), 1.0 + _ROUNDING),
        Bar.at_most("clusters: plans of zero", sum(float(row["zero"] or 0) for row in rows), 0.0),
    ]
    return rows, bars, []


def _draw_tree(rng: np.random.Generator, size: tuple[int, int], streams: int) -> Network:
    return random_node_tree(rng, int(rng.integers(size[0], size[1] + 1)), streams=streams, unions=0.6)


def _measure_graphs(rng: np.random.Generator, count: int, size: tuple[int, int], streams: int) -> Row:
    errors, loads, zeros, graphs = [], [], 0, 0
    started = time.perf_counter()
    for _ in range(count):
        network = split_nodes(rng, _draw_tree(rng, size, streams))
        graphs += Coefficients(network).not_a_tree is not None
        planner = DFitPlanner(network, _EPSILON)
        for _ in range(_ROUNDS):
            facts = measure_facts(rng, network)
            planner.update(facts)
            measured = apply_facts(network, facts)
            exact = Exact(remove_rate_bounds(measured))
            for number in range(_PLANS):
                inputs = list(network.inputs)
                loaded = inputs if number == 0 else rng.choice(inputs, size=int(rng.integers(1, len(inputs) + 1)), replace=False)
                rates = overload(rng, measured, [str(name) for name in loaded], near=number % 2 == 1)
                plan = planner.plan(rates)
                errors.append(1.0 - plan.score / exact.plan(rates).score)
                loads.append(max(load / plan.capacities[node] for node, load in plan.loads.items()))
                zeros += plan.score <= 0.0
    return {
        "part": "D-FIT between clusters",
        "nodes": f"{size[0]} to {size[1]} clusters",
        "streams": float(streams),
        "epsilon": _EPSILON,
        "plans": float(len(errors)),
        "error / epsilon": max(errors) / _EPSILON,
        "above epsilon": float(sum(error > _EPSILON * (1.0 + _ROUNDING) for error in errors)),
        "mean error / epsilon": float(np.mean(errors)) / _EPSILON,
        "greatest load": max(loads),
        "zero": float(zeros),
        "graphs that are no tree": float(graphs),
        "s": time.perf_counter() - started,
    }
