"""Penstock from one source on other Spark versions: a smoke test of each, with a Python environment of its own.

The environments are those of ``make test-matrix`` (``.venv-4.0`` and so on). Where one is missing, only PySpark is fetched, and
the rest is taken from this environment.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.testing.maven import UnavailableError, fetch_jars
from penstock.testing.spark_versions import OLDER, run_on

ROOT = Path(__file__).parents[2]
LAKEHOUSE = {
    "delta": (
        "4.2",
        [
            "io.delta:delta-spark_4.2_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
            "io.delta:delta-kernel-unitycatalog:4.4.0",
            "io.unitycatalog:unitycatalog-client:0.6.0",
            "io.unitycatalog:unitycatalog-hadoop:0.6.0",
        ],
    ),
    "iceberg": ("4.1", ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"]),
}
"""The newest releases, and the Spark that they are made for."""


def run(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a file of this directory on a version of Spark; skip where that can't be had."""
    try:
        return run_on(version, ROOT, *arguments)
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("version", "words"),
    [
        *((version, () if version == "4.0" else ("brief",)) for version in OLDER),
        *(pytest.param(version, (), marks=pytest.mark.long) for version in OLDER if version != "4.0"),
    ],
)
def test_an_older_version_sheds_exactly_and_survives_a_crash(version: str, words: tuple[str, ...], tmp_path: Path) -> None:
    smoke = str(Path(__file__).parent / "version_smoke.py")
    crashed = run(version, smoke, str(tmp_path), "crash")
    assert crashed.returncode == -9, crashed.stderr[-3000:]
    done = run(version, smoke, str(tmp_path), *words)
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("version", ["4.2", pytest.param("4.1", marks=pytest.mark.long), "4.0"])
def test_spark_connect_on_an_older_version(version: str, tmp_path: Path) -> None:
    """Before 4.0 it is refused."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    pytest.importorskip("grpc_status", reason="Spark Connect needs grpcio-status")
    done = run(version, str(Path(__file__).parent / "connect_smoke.py"), str(tmp_path))
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("kind", LAKEHOUSE)
def test_a_lakehouse_has_every_batch_once(kind: str, tmp_path: Path) -> None:
    version, coordinates = LAKEHOUSE[kind]
    try:
        jars = fetch_jars(kind, coordinates, transitive=False)
    except UnavailableError as error:
        pytest.skip(str(error))
    smoke = str(Path(__file__).parent / "lakehouse_smoke.py")
    done = run(version, smoke, kind, str(tmp_path), ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr[-3000:]
