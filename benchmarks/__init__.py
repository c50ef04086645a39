"""What Penstock and the papers behind it claim, measured: one module per benchmark.

A module in this package is a benchmark: it has a function ``run`` and may have a function ``plot``. Its name is what
``python -m benchmarks`` takes, with hyphens, and the first line of its docstring is what the list shows. What
benchmarks share is in ``benchmarks.support``.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path
from typing import cast

from benchmarks.support.protocol import Benchmark
from penstock.errors import PenstockError

__all__ = ["benchmark_named", "list_benchmarks"]


def list_benchmarks() -> dict[str, str]:
    """Return the name of every benchmark and the first line of its docstring, without loading any: most need Spark."""
    modules = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg and module.name != "__main__"]
    return {_command_name(module): _first_line(module) for module in sorted(modules, key=_natural_order)}


def benchmark_named(name: str) -> Benchmark:
    """Load and return a benchmark.

    >>> benchmark_named("gait")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.errors.PenstockError: there is no benchmark 'gait'; choose one of answers, answers-cost, ...
    """
    names = list_benchmarks()
    if name not in names:
        raise PenstockError(f"there is no benchmark {name!r}; choose one of {', '.join(names)}")
    return cast("Benchmark", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


def _command_name(module: str) -> str:
    return module.replace("_", "-")


def _first_line(module: str) -> str:
    source = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


def _natural_order(module: str) -> list[str | int]:
    """Sort ``las_4`` before ``las_10``.

    >>> _natural_order("las_10")
    ['las_', 10, '']
    """
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", module)]
