"""Query networks for tests: networks from the papers, and random ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.support.motivating_example import figure1
from penstock.network import Network, NetworkBuilder
from penstock.testing.planners import build_split

__all__ = ["figure1", "figure7", "oracle_score", "overloading_rates", "random_network", "random_single_node", "random_tree"]


def figure7() -> Network:
    """Figure 7 of Staying FIT: a split into branches of cost 2 and 5."""
    return build_split()


def random_network(rng: np.random.Generator, *, nodes: int = 3, inputs: int = 3, operators: int = 7) -> Network:
    """A random graph of operators on random nodes: chains, splits, unions, joins, merge-then-split, weights.

    All numbers are small multiples of 1/8, so that fractions represent them exactly.
    """
    builder = NetworkBuilder()
    for node in range(nodes):
        builder.node(f"N{node}", float(rng.integers(1, 17)) / 8)
    sources = [f"i{number}" for number in range(inputs)]
    for name in sources:
        builder.input(name, max_rate=4.0)
    consumer_count: dict[str, int] = dict.fromkeys(sources, 0)
    for number in range(operators):
        name, node = f"o{number}", f"N{rng.integers(nodes)}"
        cost, selectivity = float(rng.integers(0, 9)) / 8, float(rng.integers(1, 13)) / 8
        unused = [source for source in sources if not consumer_count[source] and source.startswith("i")]
        pool = unused if unused and number >= operators - len(unused) else sources
        kind = rng.choice(["map", "map", "map", "union", "join"])
        if kind == "map" or len(sources) < 2:
            chosen_sources = [pool[rng.integers(len(pool))]]
            builder.operator(name, node, *chosen_sources, cost=cost, selectivity=selectivity)
        else:
            first = pool[rng.integers(len(pool))]
            others = [source for source in sources if source != first]
            chosen_sources = [first, others[rng.integers(len(others))]]
            windows = (float(rng.integers(1, 5)), float(rng.integers(1, 5))) if kind == "join" else None
            builder.operator(name, node, *chosen_sources, cost=cost, selectivity=selectivity / 2, kind=kind, windows=windows)
        for source in chosen_sources:
            consumer_count[source] += 1
        sources.append(name)
        consumer_count[name] = 0
    ends = [source for source in sources if not consumer_count[source]]
    extra = [source for source in sources if consumer_count[source] and source.startswith("o") and rng.random() < 0.15]
    for number, source in enumerate(ends + extra):
        builder.output(f"q{number}", source, float(rng.integers(1, 9)) / 4)
    return builder.build()


def random_single_node(rng: np.random.Generator) -> Network:
    return random_network(rng, nodes=1, inputs=int(rng.integers(1, 4)), operators=int(rng.integers(3, 9)))


def random_tree(rng: np.random.Generator, *, streams: int = 2) -> Network:
    """A random tree of nodes, with splits, unions and outputs on any of them, and few enough streams for FIT."""
    builder = NetworkBuilder()
    counter = iter(range(1000))
    splits_left = [3 - streams]

    def grow(node: str, entering: list[str], depth: int) -> None:
        builder.node(node, float(rng.integers(4, 17)) / 8)
        ends = [add_operator(source, node) for source in entering]
        if len(ends) > 1 and rng.random() < 0.3:
            merged = f"o{next(counter)}"
            builder.operator(merged, node, ends[0], ends[1], cost=float(rng.integers(0, 3)) / 8, kind="union")
            ends = [merged, *ends[2:]]
        if rng.random() < 0.5 and splits_left[0] > 0:
            splits_left[0] -= 1
            position = int(rng.integers(len(ends)))
            ends += [add_operator(ends[position], node), add_operator(ends.pop(position), node)]
        children: list[list[str]] = [[] for _ in range(0 if depth == 0 else int(rng.integers(1, 3)))]
        for end in ends:
            if children and rng.random() < 0.75:
                children[rng.integers(len(children))].append(end)
            else:
                builder.output(f"q{next(counter)}", end, float(rng.integers(1, 9)) / 4)
        for number, child_streams in enumerate(children):
            if child_streams:
                grow(f"{node}{number}", child_streams, depth - 1)

    def add_operator(source: str, node: str) -> str:
        name = f"o{next(counter)}"
        cost, selectivity = float(rng.integers(1, 9)) / 8, float(rng.integers(2, 13)) / 8
        builder.operator(name, node, source, cost=cost, selectivity=selectivity)
        return name

    inputs = [f"i{number}" for number in range(streams)]
    for name in inputs:
        builder.input(name, max_rate=8.0)
    grow("N", inputs, depth=int(rng.integers(0, 3)))
    return builder.build()


def overloading_rates(rng: np.random.Generator, network: Network, *, near: bool = False) -> dict[str, float]:
    """Random rates that overload some node: anywhere up to the max_rate, or just above the boundary."""
    from penstock.planning.flows import Flows

    flows = Flows(network)
    direction = rng.random(len(network.inputs)) ** 2 + 1e-3
    if rng.random() < 0.2:
        direction[rng.integers(direction.size)] = 0.0
    used = float(np.max(flows.full_loads @ direction / flows.capacity))
    if used <= 0:
        return {name: stream.max_rate for name, stream in network.inputs.items()}
    factor = 1.0 + (rng.random() * 0.05 if near else rng.random() * 4.0)
    limits = np.array([stream.max_rate for stream in network.inputs.values()])
    return dict(zip(network.inputs, np.minimum(direction / used * factor, limits).tolist(), strict=True))


def oracle_score(network: Network, rates: dict[str, float]) -> float:
    """Return the best score, from a simplex in exact fractions over the flow on every arc, where any arc may drop.

    It shares nothing with the planner: it has one variable per arc, not per drop location, and other arithmetic.
    """
    arcs = [(source, name) for name in network.order for source in network.operators[name].sources]
    arcs += [(output.source, name) for name, output in network.outputs.items()]
    arc_index = {arc: number for number, arc in enumerate(arcs)}
    rows: list[list[Fraction]] = []
    limits: list[Fraction] = []

    def add_row() -> list[Fraction]:
        rows.append([Fraction(0)] * len(arcs))
        return rows[-1]

    for source, target in arcs:  # an arc carries at most what its source emits
        line = add_row()
        line[arc_index[source, target]] += 1
        if source in network.inputs:
            limits.append(Fraction(rates[source]))
        else:
            limits.append(Fraction(0))
            operator = network.operators[source]
            for origin in operator.sources:
                line[arc_index[origin, source]] -= Fraction(operator.gain(origin))
    for node in network.nodes.values():
        line = add_row()
        limits.append(Fraction(node.capacity))
        for operator in network.operators.values():
            if operator.node == node.name:
                for source in operator.sources:
                    line[arc_index[source, operator.name]] += Fraction(operator.cost)
    weights = [Fraction(0)] * len(arcs)
    for name, output in network.outputs.items():
        weights[arc_index[output.source, name]] += Fraction(output.weight)
    return float(_maximize(weights, rows, limits))


def _maximize(weights: list[Fraction], rows: list[list[Fraction]], limits: list[Fraction]) -> Fraction:
    """Return the maximum of ``weights @ x`` subject to ``rows @ x <= limits``, by the simplex with Bland's rule.

    No limit may be negative.
    """
    count = len(weights)
    basis = list(range(count, count + len(rows)))
    table = [
        [*line, *(Fraction(int(number == index)) for number in range(len(rows))), limit]
        for index, (line, limit) in enumerate(zip(rows, limits, strict=True))
    ]
    goal = [*(-value for value in weights), *([Fraction(0)] * len(rows)), Fraction(0)]
    while True:
        entering = next((number for number, value in enumerate(goal[:-1]) if value < 0), None)
        if entering is None:
            return goal[-1]
        ratios = [(line[-1] / line[entering], basis[index], index) for index, line in enumerate(table) if line[entering] > 0]
        _, _, leaving = min(ratios)
        pivot = table[leaving][entering]
        table[leaving] = [value / pivot for value in table[leaving]]
        for index, line in enumerate(table):
            if index != leaving and line[entering]:
                factor = line[entering]
                table[index] = [value - factor * base for value, base in zip(line, table[leaving], strict=True)]
        factor = goal[entering]
        goal = [value - factor * base for value, base in zip(goal, table[leaving], strict=True)]
        basis[leaving] = entering
