"""The command line: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app, main
from penstock.cli.run import _describe_status
from penstock.cli.sparkline import sparkline
from penstock.coordination import COORDINATOR, Coordinator, DirectoryMailbox, Follower
from penstock.coordination.agent import Agent
from penstock.journal import BatchRecord, DecisionRecord, Journal
from penstock.network import NetworkBuilder

runner = CliRunner()


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the console script, see that it fails as it should, and return the line it said."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert not said.out
    assert said.err.startswith("penstock: ")
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_the_commands(arguments: list[str]) -> None:
    found = runner.invoke(app, arguments)
    assert found.exit_code == 0
    for command in ("demo", "simulate", "plan", "network", "watch"):
        assert command in found.stdout


@pytest.mark.parametrize("command", ["demo", "simulate", "plan", "network", "watch"])
def test_every_command_has_help(command: str) -> None:
    found = runner.invoke(app, [command, "--help"])
    assert found.exit_code == 0
    assert "--json" in found.stdout


def test_version() -> None:
    found = runner.invoke(app, ["--version"])
    assert found.exit_code == 0
    assert found.stdout.startswith("penstock ")


def test_the_command_line_loads_neither_spark_nor_matplotlib() -> None:
    code = "import sys, penstock.cli; sys.exit(bool({'pyspark', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["demo", "--delay-target", "soon"], "'soon'"),
        (["demo", "--delay-target", "-1s"], "'-1s'"),
        (["demo", "--seconds", "many"], "--seconds"),
        (["nothing"], "nothing"),
        (["watch"], "DIR"),
        (["demo", "--fast"], "--fast"),
        (["bench"], "bench"),
    ],
)
def test_bad_input_is_one_line_with_status_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in fails(capsys, *arguments)
    assert not list(tmp_path.iterdir()), "nothing may be made before the input is checked"


@pytest.mark.parametrize(("option", "value"), [("--seconds", "1"), ("--overload", "0"), ("--overload", "nan"), ("--seed", "-1")])
def test_the_demo_refuses_numbers_that_make_no_sense(
    option: str, value: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert option.lstrip("-") in fails(capsys, "demo", option, value)


def test_out_that_is_a_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "--out" in fails(capsys, "demo", "--out", str(tmp_path / "file"))


# -- watch --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint with the journal of a job that is running still: it holds the lock."""
    journal = Journal(tmp_path / "penstock", "job")
    journal.append(DecisionRecord({"rows": (0.25,)}, 0.25, batch_id=0))
    journal.append(BatchRecord(0, {"rows": (1000, 250)}, keep=0.25, start_s=10.0, end_s=11.0, mean_arrival_s=9.5, busy_s=0.9))
    journal.append(BatchRecord(1, {"rows": (2000, 500)}, keep=0.25, start_s=11.0, end_s=12.5, mean_arrival_s=10.5))
    journal.append("query1: could not decide: something")
    return tmp_path


@pytest.mark.parametrize("below", ["", "penstock"])
def test_watch_shows_a_journal_and_a_checkpoint(checkpoint: Path, below: str) -> None:
    found = runner.invoke(app, ["watch", str(checkpoint / below)])
    assert found.exit_code == 0
    for part in ("offered 3,000", "kept 750", "shed 2,250", "2,000", "1,500", "25.0%", "2.00 s", "could not decide"):
        assert part in found.stdout.replace("\n", " ")


def test_watch_json_is_the_last_batch(checkpoint: Path) -> None:
    found = runner.invoke(app, ["watch", str(checkpoint), "--json"])
    assert found.exit_code == 0
    record = json.loads(found.stdout)
    assert record["batch_id"] == 1
    assert record["gates"] == {"rows": [2000, 500]}
    assert record["delay_s"] == 2.0


def test_watch_needs_no_spark(checkpoint: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from penstock.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "watch", str(checkpoint), "--json"]
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_watch_without_a_journal_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "no journal" in fails(capsys, "watch", str(tmp_path))
    assert "no directory" in fails(capsys, "watch", str(tmp_path / "missing"))


def test_watch_json_of_an_empty_journal_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Journal(tmp_path, "job").close()
    assert "no batch yet" in fails(capsys, "watch", str(tmp_path), "--json")
    assert "no batch yet" in runner.invoke(app, ["watch", str(tmp_path)]).stdout


def test_a_sparkline_has_a_block_a_value() -> None:
    assert sparkline([]).plain == ""
    assert sparkline([0.0, 0.0]).plain == "▁▁"
    assert len(sparkline(range(100), width=10).plain) == 10


class TestSimulate:
    def test_prints_the_numbers_as_json(self) -> None:
        found = runner.invoke(app, ["simulate", "--cost", "4ms", "--duration", "30s", "--controller", "seamless", "--json"])
        assert found.exit_code == 0
        numbers = json.loads(found.stdout)
        assert set(numbers) >= {"mean_delay_s", "mean_violation_s", "max_violation_s", "loss", "offered", "kept"}
        assert 0 < numbers["kept"] < numbers["offered"]

    @pytest.mark.parametrize("engine", ["queue", "by-batch", "by-arrival"])
    def test_every_engine_on_a_trace_with_a_picture(self, tmp_path: Path, engine: str) -> None:
        trace, picture = tmp_path / "t.csv", tmp_path / "p.png"
        trace.write_text("t\n" + "\n".join(f"{n * 0.002:.3f}" for n in range(5000)))
        arguments = ["--trace", str(trace), "--cost", "0.004", "--delay-target", "2", "--period", "0.5", "--plot", str(picture)]
        found = runner.invoke(app, ["simulate", "--controller", "ctrl", "--engine", engine, *arguments])
        assert found.exit_code == 0, found.output
        assert "mean violation" in found.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--controller", "pid"], "unknown controller 'pid': there are aurora, ctrl, keep-all, micro-batch, seamless"),
            (["--controller", "ctrl", "--assume-headroom", "1.5"], "headroom must lie in (0, 1], got 1.5"),
            (["--controller", "keep-all", "--assume-headroom", "0.5"], "controller 'keep-all' has no headroom"),
            (["--engine", "queue"], "--engine queue has no micro-batches"),
            (["--cost", "zero"], "--cost must be a duration"),
            (["--plot", "/nowhere/a.png"], "there is no directory /nowhere"),
            (["--plot", "a.txt"], "must end in .png, .svg or .pdf"),
            (["--headroom", "0"], "--headroom must lie in (0, 1]"),
            (["--speed", "0"], "--speed must be positive"),
            (["--generator", "burst"], "generator must be one of"),
            (["--trace", "missing.csv"], "missing.csv"),
        ],
    )
    def test_bad_input(self, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
        assert message in fails(capsys, "simulate", "--cost", "4ms", *arguments)

    def test_a_trace_without_rows(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("t\n")
        assert "no rows" in fails(capsys, "simulate", "--cost", "4ms", "--trace", str(tmp_path / "t.csv"))


class TestPlan:
    NETWORK = str(Path(__file__).parents[2] / "examples" / "table1.yaml")

    def test_prints_the_plan_as_json(self) -> None:
        found = runner.invoke(app, ["plan", self.NETWORK, "--rates", "i1=1,i2=1", "--method", "exact", "--json"])
        assert found.exit_code == 0
        plan = json.loads(found.stdout)
        assert set(plan) >= {"method", "score", "overloaded", "keep", "loads", "throughput"}
        assert plan["keep"] == pytest.approx({"i1": 0.2, "i2": 0.4})
        assert plan["overloaded"] is True

    @pytest.mark.parametrize("method", ["exact", "greedy", "solver", "solver-w", "fit", "early-fit"])
    def test_every_method_shows_network_plan_and_bottleneck(self, method: str) -> None:
        found = runner.invoke(app, ["plan", self.NETWORK, "--rates", "i1=1,i2=1", "--method", method])
        assert found.exit_code == 0, found.output
        for part in ("i1", "a1", "keep", "bottleneck", "outputs", method):
            assert part in found.stdout

    def test_options_of_the_methods(self, tmp_path: Path) -> None:
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
            found = runner.invoke(app, ["plan", self.NETWORK, *rates, *more])
            assert found.exit_code == 0, found.output
            assert json.loads(found.stdout)["feasible"]

    def test_not_overloaded_and_above_the_greatest_rate_are_said(self) -> None:
        assert "nothing is dropped" in runner.invoke(app, ["plan", self.NETWORK, "--rates", "i1=0.1,i2=0.1"]).stdout
        assert "above its max_rate" in runner.invoke(app, ["plan", self.NETWORK, "--rates", "i1=2,i2=0.1"]).stdout

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
    def test_bad_input_is_one_line(self, arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert named in fails(capsys, "plan", self.NETWORK, *arguments)

    def test_a_workload_without_the_right_columns(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "w.csv").write_text("i1,x\n1,2\n")
        arguments = ["plan", self.NETWORK, "--rates", "i1=1,i2=1", "--method", "solver-w", "--workload", str(tmp_path / "w.csv")]
        assert "no column for input 'i2'; it has i1, x" in fails(capsys, *arguments)

    def test_a_file_that_is_no_network(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "n.yaml").write_text("nodes: {A: {capacity: -1}}")
        assert "line 1: node 'A'" in fails(capsys, "plan", str(tmp_path / "n.yaml"), "--rates", "i=1")
        assert "can't be read" in fails(capsys, "network", str(tmp_path / "none.yaml"))

    def test_network_shows_what_follows(self) -> None:
        found = runner.invoke(app, ["network", self.NETWORK])
        assert found.exit_code == 0
        for part in ("i1", "a tree", "drop locations (2): i1, i2", "fragments"):
            assert part in found.stdout
        values = json.loads(runner.invoke(app, ["network", self.NETWORK, "--json"]).stdout)
        assert values["inputs"]["i1"]["node_loads"] == {"A": 1.0, "B": 3.0}
        assert values["inputs"]["i2"]["max_feasible_rate"] == 0.5
        assert values["locations"] == ["i1", "i2"]
        assert values["tree"] is True


class TestStats:
    """The status files that agents and coordinators write are what ``stats`` and ``run`` read."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """The directory of a network with one node and its coordinator, after a batch of which most was shed."""
        pytest.importorskip("pyspark")
        network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.01).output("q", "a").build()
        now = [100.0]
        mailboxes = [DirectoryMailbox(tmp_path / "m", me, [peer], "x") for me, peer in (("A", COORDINATOR), (COORDINATOR, "A"))]
        agent = Agent(network, "A", Follower(network, "A"), mailboxes[0], 2.0, queries={"a": ["a"]}, clock=lambda: now[0])
        coordinator = Coordinator(network, mailboxes[1], clock=lambda: now[0])
        for _ in range(3):
            now[0] += 2.0
            agent.decide_batch("a", {"i": 2000})
            coordinator.step()
        mailboxes[1].send("A", "song", {})
        now[0] += 30.0
        agent.exchange_messages()
        now[0] += 30.0
        outputs = {"q": {"rows": 400, "delay_rows": 400, "delay_sum_s": 600.0, "worst_delay_s": 2.0}}
        status = {**agent.status(), "batches": {"a": 3}, "gates": {"i": [6000, 600]}, "outputs": outputs}
        for name, content in (("nodes/A", status), ("coordinator", coordinator.status())):
            (tmp_path / name).mkdir(parents=True)
            (tmp_path / name / "status.json").write_text(json.dumps(content))
        return tmp_path

    def test_shows_what_was_measured(self, directory: Path) -> None:
        result = runner.invoke(app, ["stats", str(directory)], env={"COLUMNS": "160"})
        assert result.exit_code == 0, result.output
        for part in (
            "node A: capacity",
            "plan 1",
            "10 ± 10",
            "6,000",
            "90.0%",
            "mean delay 1.50 s",
            "no message from coordinator",
        ):
            assert part in result.stdout
        for part in ("coordinator: exact", "plan 1 in force", "reporting nodes: A", "messages ignored: 1 unusable"):
            assert part in result.stdout

    def test_json_is_all_of_it(self, directory: Path) -> None:
        status = json.loads(runner.invoke(app, ["stats", str(directory), "--json"]).stdout)
        assert status["A"]["reason"] == "plan 1"
        assert status["coordinator"]["plan"] == 1

    def test_run_shows_the_same_status(self, directory: Path) -> None:
        status = json.loads((directory / "nodes" / "A" / "status.json").read_text())
        assert _describe_status(status, "A") == ("3", "6,000", "600 (10%)", "2.0 s", "plan 1")
        status = json.loads((directory / "coordinator" / "status.json").read_text())
        assert _describe_status(status, COORDINATOR)[-1] == f"exact: plan 1, {status['plans_computed']} computed"
        assert _describe_status(None, "A")[-1] == "starting"

    def test_a_directory_without_a_network_is_refused(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        pytest.importorskip("pyspark")
        assert "no node has reported there" in fails(capsys, "stats", str(tmp_path))
