"""Penstock from one source on other Spark versions: a smoke test of each, with a Python environment of its own.

The environments are those of ``make test-matrix`` (``.venv-4.0`` and so on). Where one is missing, only PySpark is fetched, and
the rest is taken from this environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.testing.maven import UnavailableError, fetch_jars

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "spark"
PY4J = {"3.5": "0.10.9.7"}
OLDER = ("4.2", "4.1", "4.0", "3.5")
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


def find_python(version: str) -> str:
    """Return a Python with that version of PySpark and everything else that the tests need.

    Raises
    ------
    UnavailableError
        If PySpark can't be fetched.
    """
    ready = ROOT / f".venv-{version}" / "bin" / "python"
    if ready.exists():
        return str(ready)
    directory = CACHE / f"{version}-py{sys.version_info.major}{sys.version_info.minor}"
    python = directory / "bin" / "python"
    if not (directory / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(directory)], check=True)
        packages = next(directory.glob("lib/python*/site-packages"))
        wanted = [f"pyspark=={version}.*", f"py4j=={PY4J.get(version, '0.10.9.9')}"]
        fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--target", str(packages)]
        try:
            fetched = subprocess.run([*fetch, *wanted], capture_output=True, text=True, check=False, timeout=400)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"PySpark {version} was not fetched within 400 s") from None
        if fetched.returncode:
            raise UnavailableError(f"PySpark {version} can't be fetched: {fetched.stderr.strip().splitlines()[-1]}")
        (directory / "ready").touch()
    # The rest of the packages, behind those of its own; the sources of this repository come first, by PYTHONPATH.
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "zz_rest.pth").write_text(sysconfig.get_paths()["purelib"])
    return str(python)


def run(version: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Run a file of this directory on a version of Spark."""
    try:
        python = find_python(version)
    except UnavailableError as error:
        pytest.skip(str(error))
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, **options}
    environment.pop("SPARK_HOME", None)
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False, timeout=240, env=environment)


@pytest.mark.parametrize("version", OLDER)
def test_an_older_version_sheds_exactly_and_survives_a_crash(version: str, tmp_path: Path) -> None:
    smoke = str(Path(__file__).parent / "version_smoke.py")
    crashed = run(version, smoke, str(tmp_path), "crash")
    assert crashed.returncode == -9, crashed.stderr[-3000:]
    done = run(version, smoke, str(tmp_path))
    assert done.stdout.strip().endswith("fine"), done.stdout + done.stderr[-3000:]


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
