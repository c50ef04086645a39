"""What a user installs: the package and nothing that only reproduces papers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import benchmarks

ROOT = Path(benchmarks.__file__).parents[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build a wheel from this repository, offline: hatchling builds in this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_no_experiment(files: list[str]) -> None:
    assert not [path for path in files if {"benchmarks", "experiments", "tests", "examples"} & set(Path(path).parts)]
    folders = {Path(path).parts[0] for path in files}
    assert [folder for folder in folders if not folder.endswith(".dist-info")] == ["penstock"]


def test_the_wheel_holds_the_demo_and_its_types(files: list[str]) -> None:
    assert {"penstock/demo/run.py", "penstock/py.typed", "penstock/cli/__init__.py"} <= set(files)


def test_the_wheel_holds_alerts_and_board(files: list[str]) -> None:
    assert {"penstock/metrics/alerts.yml", "penstock/metrics/grafana.json"} <= set(files)


def test_the_wheel_holds_the_dashboards_page_and_the_licence_of_its_charts(files: list[str]) -> None:
    assert {f"penstock/dashboard/static/{name}" for name in ("app.js", "style.css", "uplot.js", "uplot-LICENSE.txt")} <= set(
        files
    )


def test_the_wheel_holds_every_module(files: list[str]) -> None:
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in (source / "penstock").rglob("*.py")}
    assert modules == {path for path in files if path.endswith(".py")}
