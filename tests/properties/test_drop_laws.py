"""Laws of units in networks: whichever way its rows take, a window or key is kept or dropped as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from penstock.network import Coefficients, Network, NetworkBuilder
from penstock.network.coefficients import linearize
from penstock.network.drops import Drops, Ties, derive_drops
from penstock.network.model import arc_name
from penstock.network.queries import queries_of
from penstock.network.regions import GateId
from penstock.planning import Exact

WINDOWS = {"group": ("window(t, '1 second')",), "agg": ("count(*)",)}
KEYS = {"on": "left.key = right.key"}


def draw_network(rng: np.random.Generator) -> Network:
    """Maps and unions on random nodes, splits and merges at random, with aggregates and joins at the ends."""
    builder = NetworkBuilder()
    nodes = int(rng.integers(1, 4))
    for number in range(nodes):
        builder.node(f"N{number}")
    sources = [f"i{number}" for number in range(rng.integers(1, 4))]
    for name in sources:
        builder.input(name)
    used: set[str] = set()

    def draw_cost() -> float:
        return float(rng.integers(1, 9)) / 8

    for number in range(rng.integers(1, 8)):
        unused = [name for name in sources if name not in used]
        first = str(rng.choice(unused if unused and rng.random() < 0.6 else sources))
        others = [name for name in sources if name != first]
        chosen = [first, str(rng.choice(others))] if others and rng.random() < 0.4 else [first]
        kind = "union" if len(chosen) > 1 else "map"
        builder.operator(
            f"o{number}",
            f"N{rng.integers(nodes)}",
            *chosen,
            cost=draw_cost(),
            kind=kind,
            does={} if kind == "union" else {"select": "*"},
        )
        used.update(chosen)
        sources.append(f"o{number}")
    ends = [name for name in sources if name not in used]
    for number, source in enumerate(dict.fromkeys([*ends, str(rng.choice(sources))])):
        name, node = f"n{number}", f"N{rng.integers(nodes)}"
        others = [each for each in sources if each != source]
        if others and rng.random() < 0.3:
            sides = (source, str(rng.choice(others)))
            builder.operator(
                name, node, *sides, cost=draw_cost(), kind="join", windows=(1.0, 1.0), timed=bool(rng.integers(2)), does=KEYS
            )
        else:
            builder.operator(name, node, source, cost=draw_cost(), kind="aggregate", does=WINDOWS)
        builder.output(f"q{number}", name)
    return builder.build()


def list_gates(network: Network) -> dict[GateId, str]:
    """All gates that a deployment has, with the query that each belongs to."""
    gates = {}
    for node in {operator.node for operator in network.operators.values()}:
        plans, part = queries_of(network, node)
        for plan in plans:
            names = [entry for entry in plan.entries if entry in part.inputs]
            for name in (plan.tip, *plan.branches):
                consumers = part.consumers[name]
                names += [arc_name(name, consumer) for consumer in consumers] if len(consumers) > 1 else []
            gates |= {GateId(node, name): f"{node} {plan.name}" for name in names}
    return gates


def walk_back(network: Network, name: str, source: str) -> Iterator[list[GateId]]:
    """All ways on which rows come from the inputs to an operator through one of its sources: the gates they may pass."""
    home, there = network.node_of(source), str(network.node_of(name))
    here = [GateId(node, arc_name(source, name)) for node in dict.fromkeys((home or there, there))]
    if source in network.inputs:
        yield [GateId(there, source), *here]
        return
    for before in network.operators[source].sources:
        for way in walk_back(network, source, before):
            yield way + here


def check(network: Network, drops: Drops) -> tuple[int, int]:
    """Check every aggregate and join that no note excuses; return how many there were, and how many ways met in them."""
    gates, checked, ways_met = list_gates(network), 0, 0
    for gate, unit in drops.units.items():
        assert gate in gates
        alike = {gates[other] for other, each in drops.units.items() if each.group == unit.group and not each.is_open}
        assert unit.kind == "keys" or unit.is_open or len(alike) == 1, "one query decides about a window"
    for name, operator in network.operators.items():
        if operator.kind not in ("aggregate", "join") or any(f"before {operator.kind} {name!r}" in note for note in drops.notes):
            continue
        unit_kind = "windows" if operator.kind == "aggregate" else "keys"
        ways = [
            [gate for gate in way if gate in gates] for source in operator.sources for way in walk_back(network, name, source)
        ]
        fates = set()
        for way in ways:
            units = [drops.units[gate] for gate in way]  # every gate on the way has a unit: none drops rows
            assert all(unit.kind == unit_kind for unit in units)
            # Where rows enter a node, keys of one side may be cut alone: both sides have the same plan, not the same guard.
            planned = [
                (gate, unit) for gate, unit in zip(way, units, strict=True) if unit_kind == "windows" or is_planned(network, gate)
            ]
            fates.add(frozenset(unit.group for _, unit in planned if not unit.is_open))
        assert len(fates) == 1, "on every way the same decisions"
        checked, ways_met = checked + 1, ways_met + len(ways)
    return checked, ways_met


def is_planned(network: Network, gate: GateId) -> bool:
    """Whether plans know a gate: at an input, or behind a split on the node of the split."""
    source = gate.name.partition("->")[0]
    return source in network.inputs or network.node_of(source) == gate.node


@pytest.mark.parametrize("seed", range(4))
def test_whole_on_every_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    checked = ways = noted = groups = fixed = 0
    for _ in range(150):
        network = draw_network(rng)
        drops = derive_drops(network)
        counts = check(network, drops)
        checked, ways = checked + counts[0], ways + counts[1]
        noted += len(drops.notes)
        groups += len(drops.ties.groups)
        fixed += len(drops.ties.fixed)
        locations = {*network.inputs, *(gate.name for gate in list_gates(network))}
        assert all(name in locations for group in drops.ties.groups for name in group)
    assert checked > 100
    assert ways > 1.1 * checked
    assert min(noted, groups, fixed) > 5, "the cases that matter are among them"


@pytest.mark.parametrize("seed", range(2))
def test_plans_keep_units_whole_and_never_drop_everything(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tied = overloaded = 0
    for _ in range(60):
        network = draw_network(rng)
        ties = derive_drops(network).ties
        rates = {name: float(rng.uniform(0.05, 2.0)) for name in network.inputs}
        plan = Exact(network).plan(rates)
        assert plan.feasible
        assert plan.score > 0
        assert all(plan.keep[name] == 1.0 for name in ties.fixed)
        for group in ties.groups:
            assert len({plan.keep[name] for name in group}) == 1
        free = Exact(linearize(network, rates), ties=Ties()).plan(rates)
        assert plan.score <= free.score * (1 + 1e-7)
        # One keep at all inputs and nothing dropped behind them is always allowed: no plan is worse.
        even = min([1.0, *(1.0 / load for load in full_loads(network, rates) if load > 0)])
        everything = Exact(linearize(remove_costs(network), rates), ties=Ties()).plan(rates).score
        assert plan.score >= even * everything * (1 - 1e-7)
        tied, overloaded = tied + bool(ties.groups), overloaded + plan.overloaded
    assert tied > 10
    assert overloaded > 30


def remove_costs(network: Network) -> Network:
    operators = {name: replace(operator, cost=0.0) for name, operator in network.operators.items()}
    return Network(network.nodes, network.inputs, operators, network.outputs, work=network.work)


def full_loads(network: Network, rates: dict[str, float]) -> list[float]:
    """The load of each node if nothing is dropped."""
    by_input = Coefficients(linearize(network, rates)).node_loads
    return [sum(rates[name] * loads.get(node, 0.0) for name, loads in by_input.items()) for node in network.nodes]
