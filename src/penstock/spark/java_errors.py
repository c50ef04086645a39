"""What py4j raises, for ``except``: the pure Python client of Spark Connect comes without it, and nothing raises them there."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Py4JError", "Py4JJavaError"]


class _NeverRaised(Exception):  # noqa: N818 - it stands for one that there is not
    """Stands in where there is no JVM."""


def _find(name: str) -> Any:
    try:
        return getattr(import_module("py4j.protocol"), name)
    except ModuleNotFoundError:
        return _NeverRaised


Py4JError: Any = _find("Py4JError")
Py4JJavaError: Any = _find("Py4JJavaError")
