"""Networks in YAML, and one-line errors that name the part at fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from penstock.errors import PenstockError
from penstock.network import load_network, parse_network
from tests.networks import figure1

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
    ("text", "message"),
    [
        ("a: {node: A, from: i, cost: 1, cost: 5}", "line 4: operator 'a': has 'cost' twice"),
        ("a: {node: A, from: i, cost: [1]}", "cost must be a number, got a list or a mapping"),
        ("a: {node: A, from: i, cost: 1, [x]: 2}", "the name of a field must be text"),
        ("j: {kind: join, node: A, from: [i, k], cost: 1, windows: [10s, 5]}", "windows must both be in tuples, such as"),
    ],
)
def test_malformed_yaml(text: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        parse_network(f"nodes: {{A: {{}}}}\ninputs: {{i: {{}}, k: {{}}}}\noperators:\n  {text}\noutputs: {{q: {{from: a}}}}")


def test_errors_in_links_name_the_line() -> None:
    text = "nodes: {A: {}}\ninputs: {i: {}}\noperators: {a: {node: A, from: i, cost: 1}}\noutputs: {q: {from: a}}\n"
    text += "links: {xx: {bandwidth: 1}}"
    with pytest.raises(PenstockError, match="line 5: link 'xx': an arc is written"):
        parse_network(text)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "nodes: " + "[" * 100_000, "? " * 100_000])
def test_deep_nesting_is_one_line_and_no_segmentation_fault(text: str) -> None:
    with pytest.raises(PenstockError, match="line 1: lists and mappings are nested more than 50 deep"):
        parse_network(text)


@pytest.mark.parametrize("loader", [yaml.BaseLoader, getattr(yaml, "CBaseLoader", yaml.BaseLoader)])
def test_both_loaders_compose_the_same(loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.network.yaml_nodes._LOADER", loader)
    with pytest.raises(PenstockError, match="nested more than 50 deep"):
        parse_network("[" * 1000)
    network = parse_network("""
nodes: {A: &one {capacity: 2}, B: *one}
inputs: {i: {max_rate: 10}}
operators: {a: {node: B, from: [i], cost: 0.5}}
outputs: {q: {from: a}}
""")
    assert network.nodes["B"].capacity == 2.0
    for text, message in (
        ("nodes: *x", "there is no anchor 'x'|undefined alias"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
    ):
        with pytest.raises(PenstockError, match=message):
            parse_network(text)


CLUSTERED = """
nodes: {A: , B: , C: }
inputs: {i: }
operators: {a: {node: A, from: i, cost: 1}, b: {node: B, from: a, cost: 1}, c: {node: C, from: b, cost: 1}}
outputs: {q: {from: c}}
clusters: """


def test_clusters_are_read() -> None:
    assert parse_network(CLUSTERED + "{west: [A, B], east: [C]}").clusters == {"west": ("A", "B"), "east": ("C",)}
    assert parse_network(CLUSTERED + "{}").clusters == {}


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ("{west: [A, B], east: [B, C]}", "cluster 'east': node 'B' is in cluster 'west' too: a node is in one cluster at most"),
        ("{west: [A, A]}", "cluster 'west': node 'A' is twice"),
        ("{west: [A, Z]}", "cluster 'west': there is no node 'Z'; nodes: A, B, C"),
        ("{A: [B, C]}", "cluster 'A': its name is that of a node"),
        ("{west: []}", "line 6: cluster 'west' must be a list of nodes, such as \\[A, B\\]"),
        ("{west: A}", "line 6: cluster 'west' must be a list of nodes"),
        ("{west: [[A]]}", "line 6: cluster 'west' must be a list of nodes"),
        ("{west: [A], west: [B]}", "line 6: cluster 'west' is already defined in line 6"),
        ("{a->b: [A]}", "line 6: cluster 'a->b': a name must not contain '->'"),
        ("[A, B]", "line 6: clusters must map names to values"),
    ],
)
def test_clusters_that_make_no_sense_are_one_line(clusters: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as found:
        parse_network(CLUSTERED + clusters)
    assert "\n" not in str(found.value)
