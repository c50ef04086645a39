"""``penstock network``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import NETWORK, fails, runner


def test_network_shows_what_follows() -> None:
    found = runner.invoke(app, ["network", NETWORK])
    assert found.exit_code == 0
    for part in ("i1", "a tree", "drop locations (2): i1, i2", "fragments"):
        assert part in found.stdout
    values = json.loads(runner.invoke(app, ["network", NETWORK, "--json"]).stdout)
    assert values["inputs"]["i1"]["node_loads"] == {"A": 1.0, "B": 3.0}
    assert values["inputs"]["i2"]["max_feasible_rate"] == 0.5
    assert values["locations"] == ["i1", "i2"]
    assert values["tree"] is True


UNITS = """
nodes: {A: }
inputs: {i: {max_rate: 10}, j: {max_rate: 10}, k: }
operators:
  n: {node: A, kind: aggregate, from: k, cost: 1, group: ["window(t, '5 seconds')"], agg: [count(*)]}
  w: {node: A, kind: join, from: [i, j], cost: 1, selectivity: 0.1, windows: [1s, 2s], on: left.id = right.id, how: left_outer}
outputs: {q: {from: n}, r: {from: w}}
"""


def test_network_and_plan_show_what_is_dropped_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "network.yaml"
    path.write_text(UNITS)
    said = " ".join(runner.invoke(app, ["network", str(path)]).stdout.split())
    for part in (
        "drop locations (3): i (whole keys by id), j (whole keys by id), k (whole windows of t, 5 s)",
        "with one keep, to drop the same: i, j",
        "join w: its windows are in seconds, so keys are dropped with one keep for both sides; only exact plans it",
        "note: join 'w' is an outer one",
        "k drops whole windows of t, 5 s",
    ):
        assert part in said
    values = json.loads(runner.invoke(app, ["network", str(path), "--json"]).stdout)
    assert values["units"] == {"A": {"i": "whole keys by id", "j": "whole keys by id", "k": "whole windows of t, 5 s"}}
    assert values["one_keep"] == [["i", "j"]]
    assert values["inputs"]["i"]["quality"] == pytest.approx(0.1 * 2 * 10), "at the greatest rates"
    plan = json.loads(runner.invoke(app, ["plan", str(path), "--rates", "i=1,j=3,k=0", "--json"]).stdout)
    assert plan["keep"] == pytest.approx({"i": 0.25, "j": 0.25, "k": 1.0})
    assert plan["throughput"]["r"] == pytest.approx(0.25 * 0.1 * 1 * 3 * 3)
    assert "join 'w' has windows in seconds" in fails(capsys, "plan", str(path), "--rates", "i=1,j=3,k=0", "--method", "fit")
    path.write_text(UNITS.replace("how: left_outer", "drop: rows"))
    assert "line 6: operator 'w': its windows are in seconds" in fails(capsys, "network", str(path))


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "can't be read" in fails(capsys, "network", str(tmp_path / "none.yaml"))


def test_clusters_are_shown_with_whether_they_form_a_tree(tmp_path: Path) -> None:
    example = Path(NETWORK).parent / "clusters.yaml"
    shown = runner.invoke(app, ["network", str(example)]).stdout
    assert "nodes: not a tree, because node 'w3' has 2 parents" in shown
    assert "clusters: a tree" in shown
    path = tmp_path / "network.yaml"
    path.write_text(example.read_text().replace("[w1, w2, w3]", "[w1, w3]"))
    assert "clusters: not a tree, because" in runner.invoke(app, ["network", str(path)]).stdout
    values = json.loads(runner.invoke(app, ["network", str(example), "--json"]).stdout)
    assert values["clusters"] == {"west": ["w1", "w2", "w3"], "east": ["e1", "e2"]}
    assert values["clusters_not_a_tree"] is None
