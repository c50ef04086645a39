"""Which Python Spark's workers run, and what to say if it is not the driver's.

Without ``PYSPARK_PYTHON`` the workers run whatever ``python3`` is on the path, also when the driver runs in a virtual environment
that was never activated. Gates need nothing there; the replay source and load-aware functions do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_worker_python"]

_PATIENCE_S = 30.0
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)
_ASKED: set[tuple[str, ...]] = set()


def check_worker_python(spark: SparkSession, what: str, *modules: str) -> None:
    """Raise, in one line that says what to do, if Spark's Python workers can't run Penstock.

    Parameters
    ----------
    spark
        The session.
    what
        What runs there, for the message.
    modules
        What the workers will load.
    """
    context = spark.sparkContext
    if not str(context.master).startswith("local") or str(context.master).startswith("local-cluster"):
        _check_executors(spark, what, modules)
        return
    if context._python_includes:
        return  # they are sent what they need
    program = str(context.pythonExec)
    jvm: Any = spark._jvm
    problem = _find_problem(program, modules, str(jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath()))
    if problem is not None:
        raise PenstockError(
            f"{what} runs in Spark's Python workers, and those run {program!r}, {problem}: set PYSPARK_PYTHON={sys.executable} "
            "before the session starts, or activate the virtual environment"
        )


def _check_executors(spark: SparkSession, what: str, modules: tuple[str, ...]) -> None:
    """Ask the executors of a cluster, with a small job, once for each application and what it needs."""
    context = spark.sparkContext
    asked = (context.applicationId, *modules)
    if asked in _ASKED:
        return
    tasks = max(2, context.defaultParallelism)
    answers = context.parallelize(range(tasks), tasks).map(_make_probe(modules)).collect()
    lacking = [answer for answer in answers if answer is not None]
    if lacking:
        host, problem = lacking[0]
        # A zip file holds Penstock, and nothing that was compiled, as numpy was.
        ways = "--py-files or --archives" if problem == "can't import penstock" else "--archives"
        raise PenstockError(
            f"{what} runs in Spark's Python workers, and those on {host} {problem}: send it there with {ways}, or install it"
        )
    _ASKED.add(asked)


def _make_probe(modules: tuple[str, ...]) -> Callable[[int], tuple[str, str] | None]:
    """Return a function for a task: the host's name, and what is wrong there, if it can't load all of these modules."""

    def probe(_: int) -> tuple[str, str] | None:
        import socket  # noqa: PLC0415 - this runs in a worker
        from importlib import import_module  # noqa: PLC0415

        for module in modules:
            try:
                import_module(module)
            except ModuleNotFoundError as error:
                return socket.gethostname(), f"can't import {(error.name or module).split('.')[0]}"
            except Exception as error:  # whatever a package does there
                return socket.gethostname(), f"can't import {module} ({type(error).__name__}: {error})".replace("\n", " ")
        return None

    probe.__module__ = "__main__"  # so that its code travels, and not the name of a module that may not be there
    return probe


@cache
def _find_problem(program: str, modules: tuple[str, ...], spark_path: str) -> str | None:
    """Return why a Python can't stand in for this one; ``None`` if it can. Spark puts its own packages on the workers' path."""
    path = shutil.which(program)
    if path is None:
        return "which is not on the path"
    if Path(path).parent == Path(sys.executable).parent:
        return None
    # Another directory may still be the same Python: ask it.
    code = f"import sys; print('%d.%d' % sys.version_info[:2]); import {', '.join(modules)}"
    paths = os.pathsep.join(part for part in (spark_path, os.environ.get("PYTHONPATH")) if part)
    environment = {**os.environ, "PYTHONPATH": paths}
    try:
        asked = subprocess.run(  # noqa: S603 - Spark would run it too
            [path, "-c", code], capture_output=True, text=True, check=False, timeout=_PATIENCE_S, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        asked = None
    if asked is None or not asked.stdout:
        return f"which is {path} and does not answer"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked.stdout.strip() != version:
        return f"which is {path}, Python {asked.stdout.strip()} and not {version}"
    if asked.returncode:
        missing = _MISSING.search(asked.stderr)
        return f"which is {path} and can't import {missing[1].split('.')[0] if missing else 'penstock'}"
    return None
