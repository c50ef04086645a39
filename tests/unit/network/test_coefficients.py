"""What follows from a network: loads, selectivities, drop locations, fragments."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.network import Coefficients, Network, NetworkBuilder, parse_network
from penstock.network.coefficients import part_of
from penstock.planning import (
    Exact,
)
from tests.networks import figure1, figure7


def test_derived_quantities_of_figure_1() -> None:
    coefficients = Coefficients(figure1())
    assert coefficients.load == {"i1": 4.0, "i2": 3.0, "a1": 4.0, "a2": 3.0, "b1": 3.0, "b2": 1.0}
    assert coefficients.node_loads == {"i1": {"A": 1.0, "B": 3.0}, "i2": {"A": 2.0, "B": 1.0}}
    assert [location.name for location in coefficients.locations] == ["i1", "i2"]
    assert coefficients.selectivity("a1", "b1", "q1") == 1.0
    assert coefficients.selectivity("a1", "b1", "q2") == 0.0
    assert coefficients.parents == {"A": (), "B": ("A",)}
    assert coefficients.not_a_tree is None
    assert coefficients.fragments == (("A", "B"),)


def test_split_arcs_are_drop_locations_on_the_node_of_the_split() -> None:
    coefficients = Coefficients(figure7())
    assert [(location.name, location.node) for location in coefficients.locations] == [
        ("i", "A"),
        ("s->top", "A"),
        ("s->bottom", "A"),
    ]


def test_selectivity_over_a_diamond() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .input("i")
        .operator("s", "A", "i", selectivity=0.5)
        .operator("l", "A", "s", selectivity=0.2)
        .operator("r", "A", "s", selectivity=3.0)
        .union("u", "A", "l", "r")
        .output("q", "u")
        .build()
    )
    coefficients = Coefficients(network)
    assert coefficients.selectivity("i", "s", "q") == pytest.approx(0.5 * 3.2)
    assert coefficients.selectivity("s", "l", "q") == pytest.approx(0.2)
    assert coefficients.quality["i"] == pytest.approx(1.6)
    with pytest.raises(PenstockError, match="no arc 'i->u'"):
        coefficients.selectivity("i", "u", "q")
    with pytest.raises(PenstockError, match="no output 'p'"):
        coefficients.selectivity("i", "s", "p")


def test_a_node_with_two_parents_is_not_a_tree() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .input("i")
        .input("j")
        .operator("a", "A", "i")
        .operator("b", "B", "j")
        .union("c", "C", "a", "b")
        .output("q", "c")
        .build()
    )
    assert Coefficients(network).not_a_tree == "node 'C' has 2 parents: A, B"


def test_nodes_without_common_streams_are_fragments() -> None:
    network = (
        NetworkBuilder()
        .node("A")
        .node("B")
        .node("C")
        .input("i")
        .input("j")
        .operator("a", "A", "i")
        .operator("b", "B", "a")
        .operator("c", "C", "j")
        .output("q", "b")
        .output("p", "c")
        .build()
    )
    assert Coefficients(network).fragments == (("A", "B"), ("C",))


def test_the_part_that_runs_on_a_node_is_a_network() -> None:
    part = part_of(figure1(), "B")
    assert list(part.inputs) == ["a1->b1", "a2->b2"]
    assert list(part.outputs) == ["q1", "q2"]
    assert list(part_of(figure1(), "A").outputs) == ["a1->b1", "a2->b2"]


def large_network(operators: int) -> str:
    lines = ["nodes: {" + ", ".join(f"N{n}: {{capacity: 1.0}}" for n in range(100)) + "}", "inputs:"]
    lines += [f"  i{n}: {{max_rate: 100}}" for n in range(operators // 100)]
    lines.append("operators:")
    for chain in range(operators // 100):
        for step in range(100):
            source = f"i{chain}" if step == 0 else f"o{chain}_{step - 1}"
            lines.append(f"  o{chain}_{step}: {{node: N{step}, from: {source}, cost: 0.001, selectivity: 0.9}}")
    lines.append("outputs:")
    lines += [f"  q{n}: {{from: o{n}_99}}" for n in range(operators // 100)]
    return "\n".join(lines)


def test_a_network_of_ten_thousand_operators() -> None:
    network: Network = parse_network(large_network(10_000))
    coefficients = Coefficients(network)
    assert len(coefficients.load) == 10_100
    assert coefficients.load["i0"] == pytest.approx(0.001 * (1 - 0.9**100) / 0.1)
    assert len(coefficients.locations) == 100
    assert coefficients.not_a_tree is None
    assert len(coefficients.fragments) == 1


def test_selectivities_that_overflow_are_rejected() -> None:
    builder = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0, selectivity=1e200)
    network = builder.operator("b", "A", "a", cost=1.0, selectivity=1e200).output("q", "b").build()
    with pytest.raises(PenstockError, match="the product of costs and selectivities overflows"):
        Exact(network)
