"""What py4j raises, for ``except``: the pure Python client of Spark Connect comes without it, and nothing raises them there."""

from __future__ import annotations

from typing import Any

__all__ = ["Py4JError", "Py4JJavaError"]

try:
    from py4j.protocol import Py4JError, Py4JJavaError
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef] # there is no JVM
        """Never raised."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef,misc] # there is no JVM
        """Never raised."""

        java_exception: Any
