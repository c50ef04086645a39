"""Which Python Spark's workers run, and what to say if it is not the driver's.

Without ``PYSPARK_PYTHON`` the workers run whatever ``python3`` is on the path, also when the driver runs in a virtual environment
that was never activated. Gates need nothing there; the replay source and load-aware functions do.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_worker_python"]

_PATIENCE_S = 30.0
_ASKED: set[str] = set()


def check_worker_python(spark: SparkSession, what: str) -> None:
    """Raise, in one line that says what to do, if Spark's Python workers can't run Penstock."""
    context = spark.sparkContext
    if not str(context.master).startswith("local") or str(context.master).startswith("local-cluster"):
        _check_executors(spark, what)
        return
    if context._python_includes:
        return  # they are sent what they need
    program = str(context.pythonExec)
    problem = _find_problem(program)
    if problem is not None:
        raise PenstockError(
            f"{what} runs in Spark's Python workers, and those run {program!r}, {problem}: set PYSPARK_PYTHON={sys.executable} "
            "before the session starts, or activate the virtual environment"
        )


def _check_executors(spark: SparkSession, what: str) -> None:
    """Ask the executors of a cluster, with a small job, once for each application."""
    context = spark.sparkContext
    if context.applicationId in _ASKED:
        return
    tasks = max(2, context.defaultParallelism)
    lacking = [host for host in context.parallelize(range(tasks), tasks).map(_make_probe()).collect() if host is not None]
    if lacking:
        raise PenstockError(
            f"{what} runs in Spark's Python workers, and those on {lacking[0]} can't import penstock: send it there with "
            "--py-files or --archives, or install it"
        )
    _ASKED.add(context.applicationId)


def _make_probe() -> Callable[[int], str | None]:
    """Return a function for a task: the host's name if Penstock is not there."""

    def probe(_: int) -> str | None:
        import socket  # noqa: PLC0415 - this runs in a worker
        from importlib.util import find_spec  # noqa: PLC0415

        return socket.gethostname() if find_spec("penstock") is None else None

    probe.__module__ = "__main__"  # so that its code travels, and not the name of a module that may not be there
    return probe


@cache
def _find_problem(program: str) -> str | None:
    """Return why a Python can't stand in for this one; ``None`` if it can."""
    path = shutil.which(program)
    if path is None:
        return "which is not on the path"
    if Path(path).parent == Path(sys.executable).parent:
        return None
    # Another directory may still be the same Python: ask it.
    code = "import sys, penstock; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False, timeout=_PATIENCE_S)  # noqa: S603 - Spark would run it too
    except (OSError, subprocess.TimeoutExpired):
        return f"which is {path} and does not answer"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked.returncode:
        return f"which is {path} and can't import penstock"
    if asked.stdout.strip() != version:
        return f"which is {path}, Python {asked.stdout.strip()} and not {version}"
    return None
