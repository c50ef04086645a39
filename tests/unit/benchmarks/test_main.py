"""``python -m benchmarks``: what it prints, where, and with which exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import benchmarks
from benchmarks import list_benchmarks
from benchmarks.__main__ import app, main
from benchmarks.support.results import Bar, Result

ROOT = Path(benchmarks.__file__).parents[1]
runner = CliRunner()


class Fake:
    """A benchmark that ends at once."""

    def __init__(self, value: float) -> None:
        self.value = value

    def run(self, *, quick: bool, say: object) -> Result:
        assert callable(say)
        say("measuring")
        return Result("fake", [{"arm": "a", "quick": str(quick)}], [Bar.at_most("a", self.value, 1.0)])


class FakeWithPlot(Fake):
    def plot(self, result: Result, path: Path) -> None:
        path.write_text(result.name)


def use(monkeypatch: pytest.MonkeyPatch, benchmark: Fake) -> None:
    monkeypatch.setattr("benchmarks.__main__.benchmark_named", lambda name: benchmark)


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command line, check that it ends with one line and status 2, and return the line."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert not printed.out
    assert printed.err.startswith("benchmarks: ")
    assert printed.err.count("\n") == 1
    return printed.err


def test_without_a_name_it_lists_the_benchmarks() -> None:
    listed = runner.invoke(app, [])
    assert listed.exit_code == 0
    assert all(f" {name} " in listed.stdout for name in list_benchmarks())
    assert json.loads(runner.invoke(app, ["--json"]).stdout) == [
        {"name": name, "what": what} for name, what in list_benchmarks().items()
    ]


def test_json_is_all_of_stdout_and_out_gets_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, Fake(0.5))
    ended = runner.invoke(app, ["gate", "--quick", "--json", "--out", str(tmp_path / "new" / "folder")])
    assert ended.exit_code == 0
    assert json.loads(ended.stdout)["rows"] == [{"arm": "a", "quick": "True"}]
    assert not ended.stderr
    assert json.loads((tmp_path / "new" / "folder" / "result.json").read_text()) == json.loads(ended.stdout)
    assert [path.name for path in (tmp_path / "new" / "folder").iterdir()] == ["result.json"]


def test_out_gets_the_plot_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FakeWithPlot(0.5))
    assert runner.invoke(app, ["gate", "--out", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "gate.png").read_text() == "fake"


def test_progress_goes_to_stderr_and_the_tables_to_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake(0.5))
    ended = runner.invoke(app, ["gate"])
    assert "gate: measuring" in ended.stderr
    assert "measuring" not in ended.stdout
    assert "bars" in ended.stdout


def test_the_exit_status_is_1_if_a_bar_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Fake(1.5))
    ended = runner.invoke(app, ["gate"])
    assert ended.exit_code == 1
    assert "NO" in ended.stdout
    with pytest.raises(SystemExit) as exited:
        main(["gate", "--json"])
    assert exited.value.code == 1


@pytest.mark.parametrize(
    ("arguments", "named"), [(["gait"], "'gait'"), (["gate", "--fast"], "--fast"), (["gate", "table"], "table")]
)
def test_bad_input_is_one_line_with_status_2(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert named in fails(capsys, *arguments)
    assert not list(tmp_path.iterdir()), "nothing may be created before the input is checked"


def test_out_that_is_a_file_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(**_: object) -> Result:
        pytest.fail("it ran")

    fake = Fake(0.5)
    monkeypatch.setattr(fake, "run", run)
    use(monkeypatch, fake)
    (tmp_path / "file").write_text("")
    assert "--out" in fails(capsys, "gate", "--out", str(tmp_path / "file"))


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "benchmarks", "fit-table1", "--quick", "--json"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert list(json.loads(ended.stdout)) == ["name", "rows", "claims", "bars"]
    ended = subprocess.run([*command[:3], "gait"], check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("benchmarks: there is no benchmark 'gait'; choose one of ")
    assert ended.stderr.count("\n") == 1
