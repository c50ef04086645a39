"""The drawing of a network: places, flows, loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from penstock.coordination.fingerprint import describe_network
from penstock.network import load_network
from penstock.observe.network_view import arrange, draw_network, read_parts
from tests.networks import figure1, random_network

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_all_parts_have_a_place_of_their_own() -> None:
    for seed in range(30):
        network = random_network(np.random.default_rng(seed), operators=12)
        parts = read_parts(json.loads(json.dumps(describe_network(network))))
        places = arrange(parts)
        assert set(places) == {*network.inputs, *network.operators, *network.outputs}
        assert len(set(places.values())) == len(places)
        for name, part in parts.parts.items():
            assert all(places[source][0] < places[name][0] for source in part.sources)


def test_the_example_of_the_guide_is_drawn() -> None:
    parts = read_parts(describe_network(load_network(EXAMPLES / "ads.yaml")))
    assert list(parts.nodes) == ["edge", "centre"]
    assert parts.parts["views"].node == "edge"
    assert parts.parts["alarms"].node == "centre"


def test_flows_and_loads_follow_from_what_was_measured() -> None:
    parts = read_parts(describe_network(figure1()))
    statuses = {
        "A": {
            "measurements": {
                "capacity": 1.0,
                "rates": {"i1": 1.0, "i2": 1.0},
                "operators": {"a1": [1, 0, 1, 0], "a2": [2, 0, 1, 0]},
            },
            "at_s": 5.0,
        },
        "B": {"measurements": {"capacity": 1.0, "rates": {}, "operators": {"b1": [3, 0, 1, 0], "b2": [1, 0, 1, 0]}}, "at_s": 5.0},
    }
    drawing = draw_network(parts, statuses, None, {"i1": 0.5}, now_s=6.0)
    loads = {node["name"]: node["load"] for node in drawing["nodes"]}
    assert loads == {"A": 0.5 * 1 + 1 * 2, "B": 0.5 * 3 + 1 * 1}
    assert drawing["bottleneck"] == "A"
    keeps = {(arc["source"], arc["target"]): arc["keep"] for arc in drawing["arcs"]}
    assert keeps["i1", "a1"] == 0.5
    assert keeps["a1", "b1"] is None


def test_nodes_that_have_not_reported_are_drawn_all_the_same() -> None:
    drawing = draw_network(read_parts(describe_network(figure1())), {}, None, {}, now_s=0.0)
    assert [node["load"] for node in drawing["nodes"]] == [None, None]
    assert drawing["bottleneck"] is None
    json.dumps(drawing, allow_nan=False)
