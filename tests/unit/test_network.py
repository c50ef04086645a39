"""Query networks: derived quantities, and one-line errors that name the part at fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.network import Coefficients, Network, NetworkBuilder, load_network, parse_network
from penstock.network.coefficients import part_of
from tests.networks import figure1, figure7

FIGURE1 = """\
nodes:     {A: {capacity: 1.0}, B: {capacity: 1.0}}
inputs:    {i1: {max_rate: 1.0}, i2: {max_rate: 1.0}}
operators:
  a1: {node: A, from: i1, cost: 1, selectivity: 1.0}
  a2: {node: A, from: i2, cost: 2, selectivity: 1.0}
  b1: {node: B, from: a1, cost: 3, selectivity: 1.0}
  b2: {node: B, from: a2, cost: 1, selectivity: 1.0}
outputs:   {q1: {from: b1, weight: 1}, q2: {from: b2, weight: 1}}
"""


def test_yaml_and_builder_give_the_same_network() -> None:
    assert parse_network(FIGURE1) == figure1()


def test_joins_unions_links_and_floors_in_yaml() -> None:
    network = parse_network("""
nodes: {A: {}, B: }
inputs: {x: {max_rate: 10, floor: 0.1}, y: {}}
operators:
  j: {kind: join, node: A, from: [x, y], cost: 1, selectivity: 0.01, windows: [100, 50]}
  t: {kind: join, node: A, from: [x, y], cost: 1, selectivity: 0.01, windows: [10s, 500ms]}
  u: {kind: union, node: B, from: [j, t], cost: 0}
outputs: {q: {from: u, weight: 2, floor: 0.25}}
links: {j->u: {bandwidth: 7}}
""")
    join = network.operators["j"]
    assert (join.gain("x"), join.gain("y")) == (0.5, 1.0)
    assert network.operators["t"].windows == (10.0, 0.5)
    assert network.bilinear == ("t",)
    assert network.bandwidths == {"j->u": 7.0}
    assert (network.inputs["x"].floor, network.outputs["q"].floor, network.outputs["q"].weight) == (0.1, 0.25, 2.0)


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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("from: a1", "from: a9"), "line 6: operator 'b1': reads from 'a9', which is neither an input nor an operator"),
        (("from: i1", "from: b1"), r"line [46]: operator '\w\d': is part of a cycle: \w\d -> \w\d -> \w\d"),
        (
            ("node: B, from: a2", "node: Z, from: a2"),
            "line 7: operator 'b2': runs on node 'Z', which does not exist; nodes: A, B",
        ),
        (("cost: 3", "cost: -3"), "line 6: operator 'b1': cost must be finite and not negative, got -3.0"),
        (("cost: 3", "cost: .nan"), "line 6: operator 'b1': cost must be finite and not negative, got nan"),
        (("cost: 3", "cost: dear"), "line 6: operator 'b1': cost must be a number, got 'dear'"),
        (("cost: 3, ", ""), "line 6: operator 'b1' has no 'cost'"),
        (("cost: 3", "price: 3"), "line 6: operator 'b1': has no field 'price'; known fields: node, from, cost"),
        (("node: B, from: a1", "from: a1"), "line 6: operator 'b1' has no 'node'"),
        (("capacity: 1.0}, B", "capacity: 0}, B"), "line 1: node 'A': capacity must be positive and finite, got 0.0"),
        (("max_rate: 1.0}, i2", "max_rate: -1}, i2"), "line 2: input 'i1': max_rate must be positive, got -1.0"),
        (("from: b1, weight: 1", "from: z"), "line 8: output 'q1': reads from 'z', which is neither an input nor an operator"),
        (("weight: 1}, q2", "weight: -1}, q2"), "line 8: output 'q1': weight must be finite and not negative"),
        (("  a2:", "  a1:"), "line 5: operator 'a1' is already defined in line 4"),
        (("  a2:", "  i1:"), "line 5: operator 'i1': its name is taken by an input"),
        (("from: a1", "from: [a1, a2]"), "line 6: operator 'b1': has 2 sources: its kind must be union or join, got map"),
        (("{node: B, from: a1,", "{kind: sort, node: B, from: a1,"), "line 6: operator 'b1': kind must be one of map, filter"),
        (
            ("{node: B, from: a1,", "{kind: join, node: B, from: [a1, a2],"),
            "line 6: operator 'b1': a join needs two positive windows",
        ),
        (("{node: B, from: a1,", "{windows: [1, 2], node: B, from: a1,"), "line 6: operator 'b1': only a join has windows"),
        (
            ("{node: B, from: a1,", "{kind: union, node: B, from: a1,"),
            "line 6: operator 'b1': a union needs at least two sources, got one",
        ),
        (("outputs:", "exits:"), "line 8: unknown section 'exits'; known sections: nodes, inputs, operators, outputs, links"),
        (("nodes:     {A", "nodes:     [A"), "line 1: not YAML"),
    ],
)
def test_errors_name_the_part_and_the_line(change: tuple[str, str], message: str) -> None:
    assert change[0] in FIGURE1
    with pytest.raises(PenstockError, match=message) as caught:
        parse_network(FIGURE1.replace(*change, 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a network"),
        ("just words", "not a network"),
        ("- a\n- b\n", "not a network"),
        ("nodes: {A: {}}\ninputs: {}\n", "the network has no inputs"),
        ("inputs: {i: {}}\nnodes: {A: {}}\n", "the network has no operators"),
        ("nodes: {A: 3}", "line 1: node 'A' needs fields, such as {capacity: 1.0}"),
        ("nodes: 3", "line 1: nodes must map names to values"),
    ],
)
def test_text_that_is_not_a_network(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        parse_network(text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"none\.yaml: the network can't be read: No such file"):
        load_network(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PenstockError, match="it is not UTF-8 text"):
        load_network(tmp_path / "binary.yaml")
    (tmp_path / "bad.yaml").write_text("nodes: {A: {capacity: x}}")
    with pytest.raises(PenstockError, match=r"bad\.yaml: line 1: node 'A': capacity must be a number"):
        load_network(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda b: b.node("A").node("A"), "node 'A': this name is already in use"),
        (lambda b: b.input("a->b"), "must not contain '->'"),
        (lambda b: b.input(""), "its name must be text"),
        (lambda b: b.operator("o", "A", cost=1.0), "has no source"),
        (lambda b: b.operator("o", "A", "i", "i", kind="union"), "reads from the same source twice"),
        (lambda b: b.input("i", floor=1.5), r"floor must lie in \[0, 1\]"),
    ],
)
def test_the_builder_rejects_bad_parts(build: object, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        build(NetworkBuilder())  # type: ignore[operator]


def test_unused_inputs_and_unknown_links_are_rejected() -> None:
    builder = NetworkBuilder().node("A").input("i").input("j").operator("a", "A", "i").output("q", "a")
    with pytest.raises(PenstockError, match="input 'j': feeds no operator"):
        builder.build()
    linked = NetworkBuilder().node("A").input("i").operator("a", "A", "i").output("q", "a").link("a", "z", 5.0)
    with pytest.raises(PenstockError, match="link 'a->z': there is no arc of that name"):
        linked.build()


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
