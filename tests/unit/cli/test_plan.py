"""``penstock plan``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import app
from tests.unit.cli.helpers import NETWORK, fails, runner

PLAN = ("plan", NETWORK, "--rates", "i1=1,i2=1")


def test_prints_the_plan_as_json() -> None:
    found = runner.invoke(app, ["plan", NETWORK, "--rates", "i1=1,i2=1", "--method", "exact", "--json"])
    assert found.exit_code == 0
    plan = json.loads(found.stdout)
    assert set(plan) >= {"method", "score", "overloaded", "keep", "loads", "throughput"}
    assert plan["keep"] == pytest.approx({"i1": 0.2, "i2": 0.4})
    assert plan["overloaded"] is True


@pytest.mark.parametrize("method", ["exact", "greedy", "solver", "solver-w", "fit", "early-fit"])
def test_every_method_shows_network_plan_and_bottleneck(method: str) -> None:
    found = runner.invoke(app, ["plan", NETWORK, "--rates", "i1=1,i2=1", "--method", method])
    assert found.exit_code == 0, found.output
    for part in ("i1", "a1", "keep", "bottleneck", "outputs", method):
        assert part in found.stdout


def test_options_of_the_methods(tmp_path: Path) -> None:
    rates = ["--rates", "i1=1,i2=1", "--json"]
    recorded = tmp_path / "rates.csv"
    recorded.write_text("i1,i2\n0.5,0.5\n0.9,1.0\n")
    for more in (
        ["--method", "fit", "--epsilon", "0.1", "--max-entries", "20"],
        ["--method", "early-fit", "--max-entries", "200"],
        ["--method", "solver", "--max-programs", "30"],
        ["--method", "solver-w", "--means", "i1=0.3,i2=0.3"],
        ["--method", "solver-w", "--workload", str(recorded)],
    ):
        found = runner.invoke(app, ["plan", NETWORK, *rates, *more])
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["feasible"]


def test_not_overloaded_and_above_the_greatest_rate_are_said() -> None:
    assert "nothing is dropped" in runner.invoke(app, ["plan", NETWORK, "--rates", "i1=0.1,i2=0.1"]).stdout
    assert "above its max_rate" in runner.invoke(app, ["plan", NETWORK, "--rates", "i1=2,i2=0.1"]).stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rates", "i1=1"], "'i2'"),
        (["--rates", "i1=1,i2=1,i3=1"], "'i3'"),
        (["--rates", "i1"], "'i1' is not a rate"),
        (["--rates", "i1=x,i2=1"], "'i1=x' is not a rate"),
        (["--rates", "i1=1,i1=1"], "comes twice"),
        (["--rates", "i1=nan,i2=1"], "nan"),
        (["--rates", "i1=-1,i2=1"], "-1.0"),
        (["--rates", "i1=1,i2=1", "--method", "best"], "'best'; there are exact, greedy"),
        (["--rates", "i1=1,i2=1", "--method", "fit", "--epsilon", "2"], "epsilon must lie in (0, 1), got 2"),
        (["--rates", "i1=1,i2=1", "--max-entries", "5"], "--max-entries does not apply to --method exact"),
        (["--rates", "i1=1,i2=1", "--means", "i1=1,i2=1"], "--means and --workload are for --method solver-w"),
        (["--rates", "i1=1,i2=1", "--method", "solver-w", "--workload", "none.csv"], "none.csv"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert named in fails(capsys, "plan", NETWORK, *arguments)


def test_a_workload_without_the_right_columns(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("i1,x\n1,2\n")
    arguments = ["plan", NETWORK, "--rates", "i1=1,i2=1", "--method", "solver-w", "--workload", str(tmp_path / "w.csv")]
    assert "no column for input 'i2'; it has i1, x" in fails(capsys, *arguments)


def test_a_file_that_is_no_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "n.yaml").write_text("nodes: {A: {capacity: -1}}")
    assert "line 1: node 'A'" in fails(capsys, "plan", str(tmp_path / "n.yaml"), "--rates", "i=1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--method", "fit", "--epsilon", "1e-10"],
        ["--method", "early-fit", "--epsilon", "1e-12"],
        ["--method", "early-fit", "--max-entries", "1000000000000000000"],
    ],
)
def test_tables_that_would_not_fit_in_memory(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "too many" in fails(capsys, *PLAN, *arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("i1,i1,i2\n1,2,3\n", "column 'i1' comes twice"),
        ("i1,i2\n10:00:00,1\n", "must be numbers"),
        ("i1,i2\n2020-01-01,1\n", "must be numbers"),
        ("i1,i2\ntrue,1\n", "must be numbers"),
    ],
)
def test_files_that_are_not_workloads(text: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text(text)
    assert message in fails(capsys, *PLAN, "--method", "solver-w", "--workload", str(tmp_path / "w.csv"))


def test_zero_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--means" in fails(capsys, *PLAN, "--method", "solver-w", "--means", "i1=0,i2=1")


def test_a_rate_above_max_rate_is_not_reported_as_nothing_dropped() -> None:
    output = runner.invoke(app, ["plan", NETWORK, "--rates", "i1=1.2,i2=0"]).stdout
    assert "nothing is dropped" not in output


@pytest.mark.parametrize("max_entries", [1, 2, 3, 30])
def test_a_few_entries_give_a_plan_and_say_its_error(max_entries: int) -> None:
    """Fewer than 2^m - 1 entries ended in a traceback."""
    output = runner.invoke(app, ["plan", NETWORK, "--rates", "i1=1,i2=1", "--method", "fit", "--max-entries", str(max_entries)])
    assert output.exit_code == 0, output.output
    assert "error at most: " in output.stdout
    assert "score 0," not in output.stdout


CLUSTERS = str(Path(NETWORK).parent / "clusters.yaml")


def test_d_fit_plans_between_clusters() -> None:
    arguments = ["plan", CLUSTERS, "--rates", "clicks=900,views=600", "--json", "--method"]
    plans = {method: json.loads(runner.invoke(app, [*arguments, method]).stdout) for method in ("d-fit", "exact")}
    assert plans["d-fit"]["feasible"]
    assert plans["d-fit"]["method"] == "d-fit"
    assert plans["d-fit"]["score"] == pytest.approx(plans["exact"]["score"], rel=1e-4)


def test_json_says_the_error_of_tables() -> None:
    arguments = ["plan", NETWORK, "--rates", "i1=1,i2=1", "--json", "--method"]
    coarse = json.loads(runner.invoke(app, [*arguments, "fit", "--max-entries", "10"]).stdout)
    fine = json.loads(runner.invoke(app, [*arguments, "fit", "--max-entries", "1000"]).stdout)
    assert 0 < fine["error"] < coarse["error"] < 1
    assert "error" not in json.loads(runner.invoke(app, [*arguments, "exact"]).stdout)


def test_clusters_that_are_no_tree_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "network.yaml"
    path.write_text(Path(CLUSTERS).read_text().replace("[w1, w2, w3]", "[w1, w3]"))
    said = fails(capsys, "plan", str(path), "--rates", "clicks=900,views=600", "--method", "d-fit")
    assert "needs a tree of clusters, and" in said
