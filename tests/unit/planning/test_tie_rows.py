"""Plans with one keep for several locations: joins with windows in seconds, and windows that several inputs feed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.network import Coefficients, Network, NetworkBuilder, parse_network
from penstock.network.coefficients import linearize
from penstock.network.drops import Ties
from penstock.planning import PLANNERS, Exact, planner_named


def best_of_two(loads: Sequence[tuple[float, float]], capacities: Sequence[float], values: tuple[float, float]) -> float:
    """Maximise a score in two keeps by looking at every corner: the oracle."""
    limits = [((a, b), c) for (a, b), c in zip(loads, capacities, strict=True)]
    limits += [((1.0, 0.0), 1.0), ((0.0, 1.0), 1.0), ((-1.0, 0.0), 0.0), ((0.0, -1.0), 0.0)]
    best = 0.0
    for (one, first), (two, second) in itertools.combinations(limits, 2):
        matrix = np.array([one, two])
        if abs(np.linalg.det(matrix)) < 1e-12:
            continue
        corner = np.linalg.solve(matrix, [first, second])
        if all(np.dot(row, corner) <= limit + 1e-9 for row, limit in limits):
            best = max(best, float(np.dot(values, corner)))
    return best


@dataclass(frozen=True)
class Case:
    """A timed join of x and y over two nodes, with z beside it: all numbers random."""

    cost: dict[str, float]
    select: dict[str, float]
    windows: tuple[float, float]
    share: float
    weights: tuple[float, float]
    rates: dict[str, float]

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Case:
        cost = {name: float(rng.uniform(0.01, 1.0)) for name in ("a", "b", "j", "d", "z1")}
        select = {name: float(rng.uniform(0.1, 1.5)) for name in ("a", "b", "d")}
        rates = {name: float(rng.uniform(0.2, 5.0)) for name in "xyz"}
        windows = (float(rng.uniform(0.1, 3.0)), float(rng.uniform(0.1, 3.0)))
        return cls(cost, select, windows, float(rng.uniform(0.05, 0.5)), (float(rng.uniform(0.1, 3.0)), 1.0), rates)

    def network(self) -> Network:
        cost, select = self.cost, self.select
        return (
            NetworkBuilder().node("A").node("B").input("x").input("y").input("z")
            .operator("a", "A", "x", cost=cost["a"], selectivity=select["a"])
            .operator("b", "B", "y", cost=cost["b"], selectivity=select["b"])
            .join("j", "B", "a", "b", cost=cost["j"], selectivity=self.share, windows=self.windows, timed=True)
            .operator("d", "A", "j", cost=cost["d"], selectivity=select["d"])
            .operator("z1", "A", "z", cost=cost["z1"])
            .output("q", "d", self.weights[0]).output("r", "z1", self.weights[1]).build()
        )  # fmt: skip

    def pairs(self, keep: float) -> float:
        """What the join puts out per second if whole keys are kept: all pairs of those keys."""
        left, right = self.rates["x"] * self.select["a"], self.rates["y"] * self.select["b"]
        return keep * self.share * left * right * sum(self.windows)

    def loads(self) -> list[tuple[float, float]]:
        cost, rates, select = self.cost, self.rates, self.select
        on_a = rates["x"] * cost["a"] + self.pairs(1.0) * cost["d"]
        on_b = rates["y"] * cost["b"] + cost["j"] * (rates["x"] * select["a"] + rates["y"] * select["b"])
        return [(on_a, rates["z"] * cost["z1"]), (on_b, 0.0)]

    def best(self) -> float:
        value = self.pairs(1.0) * self.select["d"] * self.weights[0]
        return best_of_two(self.loads(), (1.0, 1.0), (value, self.rates["z"] * self.weights[1]))


def test_a_timed_join_is_planned_as_well_as_can_be() -> None:
    rng = np.random.default_rng(5)
    overloaded = 0
    for _ in range(150):
        case = Case.draw(rng)
        plan = Exact(case.network()).plan(case.rates)
        overloaded += plan.overloaded
        assert plan.keep["x"] == plan.keep["y"], "the same keys on both sides, to the last digit"
        assert plan.feasible
        assert plan.score == pytest.approx(case.best(), rel=1e-7)
        loads = case.loads()
        for load, (by_join, by_z) in zip(plan.loads.values(), loads, strict=True):
            assert load == pytest.approx(by_join * plan.keep["x"] + by_z * plan.keep["z"])
        assert plan.throughput["q"] == pytest.approx(case.pairs(plan.keep["x"]) * case.select["d"])
    assert overloaded > 100


def test_the_output_of_a_timed_join_is_linear_in_the_keep_and_bilinear_in_the_rates() -> None:
    case = Case.draw(np.random.default_rng(1))
    linear = linearize(case.network(), case.rates)
    gain = Coefficients(linear).selectivity
    left, right = case.rates["x"] * case.select["a"], case.rates["y"] * case.select["b"]
    for keep in (1.0, 0.5, 0.1):
        out = keep * (left * gain("a", "j", "q") + right * gain("b", "j", "q"))
        assert out == pytest.approx(case.pairs(keep) * case.select["d"])
    twice = linearize(case.network(), {name: 2.0 * rate for name, rate in case.rates.items()})
    assert Coefficients(twice).selectivity("a", "j", "q") == pytest.approx(2.0 * gain("a", "j", "q"))
    assert linearize(linear, {"x": 1.0, "y": 1.0, "z": 1.0}) is linear, "once known, the rates stay"


def test_a_side_without_rows_has_no_say() -> None:
    case = Case.draw(np.random.default_rng(2))
    plan = Exact(case.network()).plan({"x": 500.0, "y": 0.0, "z": 1.0})
    assert plan.feasible
    assert plan.keep["y"] == plan.keep["x"] < 1.0
    assert Exact(case.network()).plan({"x": 0.0, "y": 0.0, "z": 0.0}).score == 0.0


def test_a_max_rate_does_not_cut_one_side_of_a_join_alone() -> None:
    network = (
        NetworkBuilder().node("A").input("x", max_rate=1.0).input("y", max_rate=9.0)
        .join("j", "A", "x", "y", cost=0.01, selectivity=0.1, windows=(1.0, 1.0), timed=True).output("q", "j").build()
    )  # fmt: skip
    plan = Exact(network).plan({"x": 2.0, "y": 2.0})
    assert plan.keep == {"x": 1.0, "y": 1.0}


UNION = """
nodes: {A: , B: }
inputs: {i: , j: , k: }
operators:
  a: {node: A, from: i, cost: 3, select: [t]}
  b: {node: A, from: j, cost: 1, select: [t]}
  u: {node: A, kind: union, from: [a, b], cost: 0}
  n: {node: B, kind: aggregate, from: u, cost: 1, selectivity: 0.5, group: ["window(t, '1 second')"], agg: [count(*)]}
  c: {node: A, from: k, cost: 2, select: [t]}
outputs: {q: {from: n, weight: 2}, r: {from: c}}
"""


def test_inputs_of_one_window_get_one_keep() -> None:
    network, rng = parse_network(UNION), np.random.default_rng(3)
    exact, free = Exact(network), Exact(network, ties=Ties())
    for _ in range(100):
        rates = {name: float(rng.uniform(0.0, 1.5)) for name in network.inputs}
        plan = exact.plan(rates)
        i, j, k = rates.values()
        best = best_of_two([(3 * i + j, 2 * k), (i + j, 0.0)], (1.0, 1.0), (i + j, k))
        assert plan.keep["i"] == plan.keep["j"]
        assert plan.feasible
        assert plan.score == pytest.approx(best, rel=1e-7)
        assert plan.score <= free.plan(rates).score * (1 + 1e-9)
    assert free.plan({"i": 1.0, "j": 1.0, "k": 0.0}).keep["i"] == pytest.approx(0.0), "the ties do bind"


def test_a_rate_above_its_maximum_leaves_the_keep_common() -> None:
    exact = Exact(parse_network(UNION.replace("i: ,", "i: {max_rate: 0.1},")))
    plan = exact.plan({"i": 0.6, "j": 0.2, "k": 0.0})  # 3 * 0.6 + 0.2 = 2 seconds of work per second
    assert plan.keep["i"] == plan.keep["j"] == pytest.approx(0.5)
    assert exact.plan({"i": 0.2, "j": 0.1, "k": 0.0}).keep["i"] == 1.0, "nothing is overloaded"


SPLIT = """
nodes: {A: }
inputs: {i: }
operators:
  s: {node: A, from: i, cost: 1, select: [t]}
  o: {node: A, from: %s, cost: 4, select: [t]}
  x: {node: A, from: s, cost: 1, select: [t]}
  y: {node: A, from: s, cost: 2, select: [t]}
  u: {node: A, kind: union, from: [x, y], cost: 0}
  n: {node: A, kind: aggregate, from: u, cost: 1, group: ["window(t, '1 second')"], agg: [count(*)]}
outputs: {q: {from: n}, r: {from: o, weight: %g}}
"""


def test_branches_of_a_split_that_merge_again_get_one_keep() -> None:
    network = parse_network(SPLIT % ("s", 9))
    plan = Exact(network).plan({"i": 0.15})
    assert plan.overloaded
    assert plan.keep["i"] == pytest.approx(1.0)
    assert plan.keep["s->x"] == plan.keep["s->y"] == pytest.approx((1 - 0.15 * 5) / (0.15 * 5))
    assert Exact(network, ties=Ties()).plan({"i": 0.15}).keep["s->y"] < plan.keep["s->y"]


def test_a_gate_that_must_stay_open_drops_nothing() -> None:
    """Behind the split of x only o may be dropped alone: what it is worth says whether it is."""
    for weight, keep in ((9.0, 1.0), (0.1, 0.5)):
        network = parse_network(SPLIT % ("x", weight))
        plan = Exact(network).plan({"i": 1 / 10 if weight > 1 else 1 / 8})
        assert plan.overloaded == (weight < 1)
        assert plan.feasible
        assert plan.keep["x->u"] == 1.0
        assert plan.keep["s->x"] == plan.keep["s->y"] == pytest.approx(1.0)
        assert plan.keep["x->o"] == pytest.approx(keep)
    network = parse_network(SPLIT % ("x", 9.0))
    plan = Exact(network).plan({"i": 0.5})
    assert plan.keep["x->u"] == 1.0, "o alone would be worth most"
    assert Exact(network, ties=Ties()).plan({"i": 0.5}).keep["x->u"] < 1.0
    assert plan.loads["A"] == pytest.approx(1.0)


def test_planners_that_know_no_common_keep_refuse_timed_joins_by_name() -> None:
    network = Case.draw(np.random.default_rng(4)).network()
    measured = linearize(network, {"x": 1.0, "y": 1.0, "z": 1.0})
    for name in PLANNERS:
        if name in ("exact", "solver-w"):  # the latter is a solver, and needs a workload too
            continue
        for each in (network, measured):
            with pytest.raises(PenstockError, match=r"join 'j' has windows in seconds.*use exact") as found:
                planner_named(name, each, **({"error": 0.3} if name == "early-fit" else {}))
            assert "\n" not in str(found.value)


def test_planners_that_know_no_common_keep_say_what_becomes_of_theirs() -> None:
    plan = planner_named("greedy", parse_network(UNION)).plan({"i": 1.0, "j": 1.0, "k": 1.0})
    assert "i, j must have one keep to drop the same: they get the least of theirs" in plan.notes
    assert not Exact(parse_network(UNION)).plan({"i": 1.0, "j": 1.0, "k": 1.0}).notes
