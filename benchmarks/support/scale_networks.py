"""Large networks for planning at any size, and their YAML."""

from __future__ import annotations

import numpy as np

from benchmarks.support.fit_networks import chains
from penstock.network import Network, NetworkBuilder

__all__ = ["many_queries", "spread_queries", "two_disjoint_networks", "union_then_split", "write_yaml"]


def many_queries(queries: int, *, nodes: int, branches: int = 11, seed: int = 0) -> Network:
    """Build queries that split: an input, a shared operator and branches, with query number n on node n modulo ``nodes``."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder()
    for node in range(nodes):
        builder.node(f"N{node}")
    per_node = -(-queries // nodes)
    for number in range(queries):
        home = f"N{number % nodes}"
        builder.input(f"i{number}", max_rate=1e6)
        builder.operator(f"s{number}", home, f"i{number}", cost=1e-4 * float(rng.uniform(0.5, 1.5)) / per_node)
        for branch in range(branches):
            name = f"b{number}_{branch}"
            cost = 1e-3 * float(rng.uniform(0.5, 1.5)) / per_node
            builder.operator(name, home, f"s{number}", cost=cost, selectivity=float(rng.uniform(0.2, 1.0)))
            builder.output(f"q{number}_{branch}", name)
        builder.operator(f"t{number}", home, f"b{number}_0", cost=1e-4 / per_node)
        builder.output(f"r{number}", f"t{number}")
    return builder.build()


def spread_queries(queries: int, *, nodes: int, branches: int = 12, seed: int = 0) -> Network:
    """Build queries that split, with every operator on a random node: all nodes depend on each other."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder()
    for node in range(nodes):
        builder.node(f"N{node}")
    for number in range(queries):
        builder.input(f"i{number}", max_rate=1e4)
        members = [(f"s{number}", f"i{number}"), *((f"b{number}_{branch}", f"s{number}") for branch in range(branches))]
        for name, source in members:
            cost, selectivity = 1e-3 * float(rng.uniform(0.5, 1.5)), float(rng.uniform(0.5, 1.0))
            builder.operator(name, f"N{rng.integers(nodes)}", source, cost=cost, selectivity=selectivity)
        for branch in range(branches):
            builder.output(f"q{number}_{branch}", f"b{number}_{branch}", weight=float(rng.uniform(0.5, 1.5)))
    return builder.build()


def union_then_split(inputs: int, branches: int, *, seed: int = 0) -> Network:
    """Build a union of many inputs that splits again, on one node."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder().node("A")
    for number in range(inputs):
        builder.input(f"i{number}").operator(f"a{number}", "A", f"i{number}", cost=float(rng.uniform(0.5, 1.5)) / inputs)
    builder.union("u", "A", *(f"a{number}" for number in range(inputs)), cost=0.01)
    for number in range(branches):
        builder.operator(f"b{number}", "A", "u", cost=float(rng.uniform(0.5, 1.5)) / branches)
        builder.output(f"q{number}", f"b{number}", weight=float(rng.uniform(0.5, 1.5)))
    return builder.build()


def two_disjoint_networks() -> Network:
    """Build two networks of figure 9 side by side, which share neither a node nor a stream."""
    builder = NetworkBuilder()
    for side in "xy":
        network = chains((64.0, 32.0))
        for node in network.nodes.values():
            builder.node(side + node.name, node.capacity)
        for stream in network.inputs.values():
            builder.input(side + stream.name, stream.max_rate)
        for operator in network.operators.values():
            sources = (side + source for source in operator.sources)
            builder.operator(
                side + operator.name, side + operator.node, *sources, cost=operator.cost, selectivity=operator.selectivity
            )
        for output in network.outputs.values():
            builder.output(side + output.name, side + output.source, output.weight)
    return builder.build()


def write_yaml(network: Network) -> str:
    """Return a network of maps as the YAML that a user would write."""
    lines = ["nodes:", *(f"  {node.name}: {{capacity: {node.capacity:g}}}" for node in network.nodes.values())]
    lines += ["inputs:", *(f"  {stream.name}: {{max_rate: {stream.max_rate:g}}}" for stream in network.inputs.values())]
    lines.append("operators:")
    for operator in network.operators.values():
        lines.append(
            f"  {operator.name}: {{node: {operator.node}, from: {operator.sources[0]}, cost: {operator.cost!r}, "
            f"selectivity: {operator.selectivity!r}}}"
        )
    lines += [
        "outputs:",
        *(f"  {output.name}: {{from: {output.source}, weight: {output.weight!r}}}" for output in network.outputs.values()),
    ]
    return "\n".join(lines) + "\n"
