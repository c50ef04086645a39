"""Jars from Maven's repository, for tests against real services."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError

__all__ = ["UnavailableError", "cached_jars", "fetch_jars"]

_TIMEOUT_S = 300.0


class UnavailableError(PenstockError):
    """Something that a test needs cannot be had here; the message says what, in one line."""


def fetch_jars(name: str, coordinates: Sequence[str], *, transitive: bool = True) -> Path:
    """Return a directory with these jars, fetched by Maven the first time and kept in the user's cache.

    Parameters
    ----------
    name
        What the jars are together; it names the directory.
    coordinates
        ``group:artifact:version`` of each, or ``group:artifact:version:classifier``.
    transitive
        Whether to fetch what they depend on as well.

    Raises
    ------
    UnavailableError
        If Maven is missing, or the jars can't be had.

    Examples
    --------
    >>> fetch_jars("wrong", ["no-colons"])
    Traceback (most recent call last):
    ...
    penstock.errors.PenstockError: coordinates are group:artifact:version, got 'no-colons'
    """
    for one in coordinates:
        if one.count(":") not in (2, 3):
            raise PenstockError(f"coordinates are group:artifact:version, got {one!r}")
    if (found := cached_jars(name, coordinates)) is not None:
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"the jars of {name} need Maven to fetch them (Debian: apt-get install maven)")
    directory = _directory(name, coordinates)
    cache = directory.parent
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        Path(scratch, "pom.xml").write_text(_project(coordinates, transitive=transitive), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", scratch, "dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"the jars of {name} were not fetched within {_TIMEOUT_S:g} s") from None
        if done.returncode:
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
            raise UnavailableError(f"the jars of {name} can't be fetched: {lines[0] if lines else done.stderr.strip()[-200:]}")
        try:
            Path(scratch, "jars").rename(directory)
        except OSError:  # another process was faster
            if not directory.is_dir():
                raise
    return directory


def cached_jars(name: str, coordinates: Sequence[str]) -> Path | None:
    """Return the directory with these jars if they were fetched before."""
    directory = _directory(name, coordinates)
    return directory if directory.is_dir() else None


def _directory(name: str, coordinates: Sequence[str]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "jars"
    return cache / "-".join([name, *(one.split(":")[2] for one in coordinates)])


def _project(coordinates: Sequence[str], *, transitive: bool) -> str:
    alone = "" if transitive else "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = "".join(f"<dependency>{_element(one)}{alone}</dependency>" for one in coordinates)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>'
        "<artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{wanted}</dependencies></project>"
    )


def _element(coordinates: str) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    return "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, coordinates.split(":"), strict=False))
