"""Checks of numbers, each with one line that says what would be right."""

from __future__ import annotations

import math

import numpy as np

from penstock.errors import PenstockError

__all__ = ["positive", "real", "whole"]


def real(what: str, value: float, low: float, high: float, right: str, *, open_low: bool = False) -> None:
    """Refuse what is no finite number from low to high; ``right`` says what would be right."""
    numeric = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not numeric or not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        raise PenstockError(f"{what} must be {right}, got {value!r}")


def whole(what: str, value: int, low: int, high: int, right: str) -> None:
    """Refuse what is no whole number from low to high."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise PenstockError(f"{what} must be {right}, got {value!r}")


def positive(what: str, value: float) -> None:
    """Refuse what is no positive number."""
    real(what, value, 0.0, math.inf, "a positive number", open_low=True)
