"""Pythons with other versions of PySpark, for tests that run on each of them."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from penstock.testing.maven import UnavailableError

__all__ = ["OLDER", "find_client_python", "find_python", "run_on"]

OLDER = ("4.2", "4.1", "4.0", "3.5")
"""The versions beside the newest one."""
_PY4J = {"3.5": "0.10.9.7"}
_NEWER_PY4J = "0.10.9.9"
_FETCH_S = 600.0
_CLIENT = "pyspark-client>=4.0,<4.4"


def find_python(version: str, root: Path | None = None) -> str:
    """Return a Python with a version of PySpark, and with everything else that this one has.

    That of ``make test-matrix`` is taken if it is there. Otherwise PySpark alone is fetched, once, into the user's cache, and the
    other packages are those of this Python.

    Parameters
    ----------
    version
        The first two numbers, such as ``"4.1"``: the newest release of those is taken.
    root
        The directory of the repository, where ``make`` keeps its environments.

    Raises
    ------
    UnavailableError
        If PySpark can't be fetched, in one line.
    """
    ready = Path() if root is None else root / f".venv-{version}" / "bin" / "python"
    if root is not None and ready.exists():
        return str(ready)
    directory = _directory_of(version)
    if not (directory / "ready").exists():
        _fetch(f"PySpark {version}", [f"pyspark=={version}.*", f"py4j=={_PY4J.get(version, _NEWER_PY4J)}"], directory)
    return _add_rest(directory)


def find_client_python() -> str:
    """Return a Python with the pure Python client of Spark Connect instead of PySpark: no JVM, and no py4j to talk to one.

    The newest client is fetched, once, into the user's cache. All other packages are those of this Python.

    Raises
    ------
    UnavailableError
        If the client can't be fetched, in one line.
    """
    directory = _directory_of("client")
    if not (directory / "ready").exists():
        _fetch("pyspark-client", [_CLIENT], directory)
    (_packages(directory) / "no_py4j.pth").write_text("import sys; sys.modules['py4j'] = None\n", encoding="utf-8")
    return _add_rest(directory)


def _directory_of(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "spark"
    return cache / f"{name}-py{sys.version_info.major}{sys.version_info.minor}"


def _add_rest(directory: Path) -> str:
    """Put the packages of this Python behind those of another; every time, since the Python that calls may be another one."""
    (_packages(directory) / "zz_rest.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return str(directory / "bin" / "python")


def run_on(version: str, root: Path, *arguments: str, wait_s: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Run Python on a version of Spark, with the sources of the repository first on its path.

    Raises
    ------
    UnavailableError
        If that version can't be had.
    """
    python = find_python(version, root)
    paths = os.pathsep.join([str(root / "src"), str(root)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    environment.pop("SPARK_HOME", None)
    return subprocess.run(  # noqa: S603 - our own command
        [python, *arguments], capture_output=True, text=True, check=False, timeout=wait_s, env=environment, cwd=root
    )


def _fetch(name: str, wanted: list[str], directory: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(directory)], check=True)  # noqa: S603
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-cache-dir", "--disable-pip-version-check"]
    try:
        command = [*pip, "--target", str(_packages(directory)), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{name} was not fetched within {_FETCH_S:g} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise UnavailableError(f"{name} can't be fetched: {lines[-1]}")
    (directory / "ready").touch()


def _packages(directory: Path) -> Path:
    return next(directory.glob("lib/python*/site-packages"))
