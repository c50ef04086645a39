"""The query networks of Staying FIT (Tatbul, Çetintemel, Zdonik, VLDB 2007), and larger random ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.network import Network, NetworkBuilder
from penstock.planning.flows import Flows

__all__ = ["FIGURE9", "chains", "fan_out", "figure9", "overloaded_rates", "random_chains", "random_tree"]

FIGURE9 = ((48.0, 48.0), (64.0, 32.0), (72.0, 24.0), (80.0, 16.0), (88.0, 8.0))
"""Costs in ms of the two chains on each of two servers, from (a) to (e). Our copy of the paper lacks the figure: its text gives
(64, 32) for 9(b) and says that a server's sum is always the same and that the imbalance grows."""

MAX_RATE = 100.0


def chains(costs_ms: Sequence[float], *, max_rate: float = MAX_RATE, selectivity: float = 1.0, moved_ms: float = 0.0) -> Network:
    """Build chain queries of two operators with equal cost, the first on server A and the second on server B.

    ``selectivity`` belongs to the first chain's operator on B. ``moved_ms`` of that chain's cost moves from A to B.
    """
    builder = NetworkBuilder().node("A").node("B")
    for number, cost in enumerate(costs_ms):
        first = number == 0
        builder.input(f"i{number}", max_rate=max_rate)
        builder.operator(f"a{number}", "A", f"i{number}", cost=(cost - (moved_ms if first else 0.0)) / 1e3)
        builder.operator(
            f"b{number}",
            "B",
            f"a{number}",
            cost=(cost + (moved_ms if first else 0.0)) / 1e3,
            selectivity=selectivity if first else 1.0,
        )
        builder.output(f"q{number}", f"b{number}")
    return builder.build()


def figure9(number: int) -> Network:
    """Build one of the five networks of figure 9."""
    return chains(FIGURE9[number])


def fan_out(branches: int) -> Network:
    """Build the network of figure 13: one input, one shared operator and many different branches on one server."""
    rng = np.random.default_rng(branches)
    builder = NetworkBuilder().node("A").input("i", max_rate=MAX_RATE).operator("shared", "A", "i", cost=0.01)
    for number in range(branches):
        cost = 0.06 * (0.5 + rng.random()) / branches
        builder.operator(f"b{number}", "A", "shared", cost=cost, selectivity=0.2 + 0.8 * rng.random())
        builder.output(f"q{number}", f"b{number}")
    return builder.build()


def random_tree(nodes: int, inputs: int, *, seed: int = 0) -> Network:
    """Build a tree of nodes with three children each. Every input runs from the root to a leaf; some split on the way."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder()
    for node in range(nodes):
        builder.node(f"N{node}", capacity=1.0)
    for number in range(inputs):
        builder.input(f"i{number}", max_rate=1000.0)
        source, node, step = f"i{number}", 0, 0
        while True:
            name = f"o{number}_{step}"
            builder.operator(
                name, f"N{node}", source, cost=float(rng.uniform(0.5, 1.5)) * 1e-3, selectivity=float(rng.uniform(0.5, 1))
            )
            if rng.random() < 0.3:
                builder.operator(f"{name}s", f"N{node}", name, cost=float(rng.uniform(0.5, 1.5)) * 1e-3)
                builder.output(f"{name}q", f"{name}s", weight=float(rng.uniform(0.5, 1.5)))
            source, step = name, step + 1
            children = [child for child in range(3 * node + 1, 3 * node + 4) if child < nodes]
            if not children:
                break
            node = int(rng.choice(children))
        builder.output(f"q{number}", source, weight=float(rng.uniform(0.5, 1.5)))
    return builder.build()


def random_chains(nodes: int, inputs: int, *, length: int = 6, seed: int = 0) -> Network:
    """Build chains over random nodes."""
    rng = np.random.default_rng(seed)
    builder = NetworkBuilder()
    for node in range(nodes):
        builder.node(f"N{node}", capacity=1.0)
    for number in range(inputs):
        builder.input(f"i{number}", max_rate=1000.0)
        source = f"i{number}"
        for step, node in enumerate(np.sort(rng.choice(nodes, size=length, replace=False)).tolist()):
            name = f"o{number}_{step}"
            builder.operator(
                name, f"N{node}", source, cost=float(rng.uniform(0.5, 1.5)) * 1e-3, selectivity=float(rng.uniform(0.5, 1))
            )
            source = name
        builder.output(f"q{number}", source, weight=float(rng.uniform(0.5, 1.5)))
    return builder.build()


def overloaded_rates(network: Network, count: int, *, seed: int = 0, most: float = 4.0) -> NDArray[np.float64]:
    """Draw rates that load the most loaded node from just above its capacity to ``most`` times its capacity."""
    flows, rng = Flows(network), np.random.default_rng(seed)
    rates = np.empty((count, len(flows.inputs)))
    limits = np.array([stream.max_rate for stream in network.inputs.values()])
    for row in range(count):
        direction = rng.random(len(flows.inputs)) + 1e-3
        utilization = float(np.max(flows.full_loads @ direction / flows.capacity))
        rates[row] = np.minimum(direction / utilization * (1.0 + (most - 1.0) * rng.random()), limits)
    return rates
