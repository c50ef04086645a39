"""What a benchmark is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from benchmarks.support.results import Result

__all__ = ["Benchmark", "Say"]

Say = Callable[[str], None]
"""Reports progress: one short text per step."""


class Benchmark(Protocol):
    """The module of a benchmark. It may also have a function ``plot(result, path)`` that draws the result into a file."""

    def run(self, *, quick: bool, say: Say) -> Result:
        """Measure, report progress on the way, and return the result."""
