"""The query networks of paper 000's performance study, and larger ones for ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.network import Network, NetworkBuilder
from penstock.planning.flows import Flows

__all__ = ["FIGURE9", "chains", "fan_out", "figure9", "overloaded_rates", "random_chains", "random_tree"]

FIGURE9 = ((48.0, 48.0), (64.0, 32.0), (72.0, 24.0), (80.0, 16.0), (88.0, 8.0))
"""Costs in ms of the two chains on each of two servers, from (a) to (e): the figure itself is lost, 9(b) is (64, 32) in the text,
the sum on a server is always the same, and the imbalance grows."""

MAX_RATE = 100.0


def chains(costs_ms: Sequence[float], *, max_rate: float = MAX_RATE, selectivity: float = 1.0, moved_ms: float = 0.0) -> Network:
    """Chain queries of two operators each, the first on server A and the second on B, of the same cost.

    ``selectivity`` is that of the first chain's operator on B; ``moved_ms`` of its cost move from A to B.
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
    """One of the five networks of figure 9."""
    return chains(FIGURE9[number])


def fan_out(branches: int) -> Network:
    """Figure 13: one input, one shared operator, many query branches on a single server, each of its own cost and worth."""
    rng = np.random.default_rng(branches)
    builder = NetworkBuilder().node("A").input("i", max_rate=MAX_RATE).operator("shared", "A", "i", cost=0.01)
    for number in range(branches):
        cost = 0.06 * (0.5 + rng.random()) / branches
        builder.operator(f"b{number}", "A", "shared", cost=cost, selectivity=0.2 + 0.8 * rng.random())
        builder.output(f"q{number}", f"b{number}")
    return builder.build()


def random_tree(nodes: int, inputs: int, *, seed: int = 0) -> Network:
    """A tree of nodes, three children each: every input enters at the root and takes a way down to a leaf, some split on it."""
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
    """Chains over nodes drawn at random."""
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
    """Rates that load the fullest node from just above its capacity to ``most`` times of it."""
    flows, rng = Flows(network), np.random.default_rng(seed)
    found = np.empty((count, len(flows.inputs)))
    limits = np.array([stream.max_rate for stream in network.inputs.values()])
    for row in range(count):
        direction = rng.random(len(flows.inputs)) + 1e-3
        used = float(np.max(flows.full_loads @ direction / flows.capacity))
        found[row] = np.minimum(direction / used * (1.0 + (most - 1.0) * rng.random()), limits)
    return found
