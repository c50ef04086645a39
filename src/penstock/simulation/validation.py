"""Checks of numbers, with messages that say what would be right."""

from __future__ import annotations

import math

import numpy as np

from penstock.errors import PenstockError

__all__ = ["positive", "real", "whole"]


def real(what: str, value: float, low: float, high: float, right: str, *, open_low: bool = False) -> None:
    """Raise unless a value is a finite number from low to high; ``right`` says what would be right."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high or (open_low and value == low):
        raise PenstockError(f"{what} must be {right}, got {value!r}")


def whole(what: str, value: int, low: int, high: int, right: str) -> None:
    """Raise unless a value is a whole number from low to high."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise PenstockError(f"{what} must be {right}, got {value!r}")


def positive(what: str, value: float) -> None:
    """Raise unless a value is a positive number."""
    real(what, value, 0.0, math.inf, "a positive number", open_low=True)
