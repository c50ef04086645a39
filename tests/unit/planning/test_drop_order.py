"""The order in which a node drops, against the paper's procedure taken step by step."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.network import Network, NetworkBuilder
from penstock.network.facts import Facts
from penstock.planning import Exact, Greedy
from penstock.planning.drop_order import DropOrder
from penstock.planning.flows import Flows, Vector
from tests.networks import overloading_rates, random_single_node


def take_steps(flows: Flows, fixed: tuple[str, ...]) -> list[tuple[int, Vector, Vector]]:
    """Staying FIT, section 6.2.2, literally: close the location with the smallest ratio, update all ratios, and so on."""
    count, inputs = len(flows.locations), len(flows.inputs)
    sources = np.zeros((count, count))
    np.add.at(sources, (flows.sources.rows, flows.sources.columns), flows.sources.values)
    own_load = np.bincount(flows.loads.columns, flows.loads.values, minlength=count)
    order = [number for members, _ in flows.levels for number in members.tolist()]
    is_open, steps = np.ones(count), []
    full: Vector | None = None
    candidates = {number for number, location in enumerate(flows.locations) if location.name not in fixed}
    while True:
        quality, load = flows.value.copy(), own_load.astype(float)
        for number in reversed(order):
            quality += is_open[number] * sources[number] * quality[number]
            load += is_open[number] * sources[number] * load[number]
        full = load if full is None else full
        arriving = np.vstack([np.eye(inputs), np.zeros((count - inputs, inputs))])
        for number in order:
            arriving[number] = sources[number] @ (arriving * is_open[:, None])
        useful = [number for number in candidates if load[number] > 1e-9 * full[number] and arriving[number].any()]
        if not useful:
            return steps
        best = min(useful, key=lambda number: (quality[number] / load[number], number))
        steps.append((best, load[best] * arriving[best], quality[best] * arriving[best]))
        candidates.discard(best)
        is_open[best] = 0.0


def test_the_order_is_that_of_the_paper_step_by_step() -> None:
    """Trees, unions, joins, merge-then-split; with nothing fixed and with the first input fixed."""
    sizes = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        flows = Flows(random_single_node(rng))
        fixed = flows.inputs[: seed % 2]
        steps, order = take_steps(flows, fixed), DropOrder(flows, fixed=fixed)
        # Locations with equal ratios may change places: what is saved and lost up to any ratio may not.
        np.testing.assert_allclose(sum(order.saved, np.zeros(len(flows.inputs))), sum((s for _, s, _ in steps), 0.0), atol=1e-9)
        rates = rng.random((5, len(flows.inputs)))
        for share in (0.3, 0.7, 0.95):
            excess = share * (rates @ sum((saved for _, saved, _ in steps), np.zeros(len(flows.inputs))))
            _, lost, remaining = order.shed(rates, excess)
            np.testing.assert_allclose(
                lost, [shed_in(steps, row, more) for row, more in zip(rates, excess, strict=True)], atol=1e-9
            )
            assert np.all(remaining <= 1e-9), seed
        sizes.append(len(steps))
    assert max(sizes) > 5


def shed_in(steps: list[tuple[int, Vector, Vector]], rates: Vector, excess: float) -> float:
    lost = 0.0
    for _, saved, quality in steps:
        savable = float(rates @ saved)
        dropped = min(1.0, excess / savable) if savable > 0 else 0.0
        lost += dropped * float(rates @ quality)
        excess = max(0.0, excess - dropped * savable)
    return lost


def test_new_costs_give_the_order_of_a_new_planner() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network = random_single_node(rng)
        greedy, exact = Greedy(network), Exact(network)
        for _ in range(3):
            facts = change(Facts.from_declaration(network), rng)
            greedy.update(facts)
            exact.update(facts)
            rates = overloading_rates(rng, network)
            plan = greedy.plan(rates)
            assert plan.feasible
            assert plan.score == pytest.approx(exact.plan(rates).score, rel=1e-9, abs=1e-9), seed


def change(facts: Facts, rng: np.random.Generator) -> Facts:
    def vary(values: Vector) -> Vector:
        return values * np.exp(rng.normal(0.0, 0.7, values.size))

    return Facts(vary(facts.costs), vary(facts.selectivities), vary(facts.capacities))


def wide(branches: int) -> Network:
    rng = np.random.default_rng(1)
    builder = NetworkBuilder().node("A").input("i").operator("s", "A", "i", cost=0.01)
    for number in range(branches):
        builder.operator(f"b{number}", "A", "s", cost=float(rng.uniform(0.01, 0.02)), selectivity=float(rng.uniform(0.2, 1.0)))
        builder.output(f"q{number}", f"b{number}")
    return builder.build()


def test_new_costs_walk_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch updates arrays. The planner was built anew instead, in 6 seconds at fan-out 1,024."""
    network = wide(1024)
    greedy = Greedy(network)

    def fail(*_: object) -> None:
        raise AssertionError("the network is walked again")

    monkeypatch.setattr("penstock.planning.flows.compile_structure", fail)
    monkeypatch.setattr("penstock.planning.flows.Coefficients", fail)
    facts = Facts.from_declaration(network)
    greedy.update(Facts(facts.costs[::-1].copy(), facts.selectivities, facts.capacities))
    plan = greedy.plan({"i": 2.0})
    assert plan.feasible
    assert plan.loads["A"] == pytest.approx(1.0)


def test_rounding_does_not_close_a_location_twice() -> None:
    """Where a location and what is behind it have one ratio, dropping at both would save the same load twice."""
    builder = NetworkBuilder().node("A").input("i").operator("s", "A", "i", selectivity=0.7)
    for name, cost in (("a", 0.1), ("b", 0.3)):
        builder.operator(name, "A", "s", cost=cost, selectivity=cost / 0.3).output(f"q{name}", name)
    order = DropOrder(Flows(builder.build()))
    assert float(sum(order.saved)[0]) == pytest.approx(0.7 * 0.4)
    assert [order.flows.locations[step].name for step in order.steps.tolist()] == ["i"]
