"""A number that was measured, with its error."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Estimate"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its error, as one standard deviation."""

    value: float
    error: float
