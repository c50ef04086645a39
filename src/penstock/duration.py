"""Durations as people write them: ``"2s"``, ``"500ms"``, a timedelta or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from penstock.errors import PenstockError

__all__ = ["parse_duration"]

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*?)(?:onds?|utes?|ours?)?\s*", re.IGNORECASE)


def parse_duration(value: str | float | timedelta, what: str) -> float:
    """Return a positive number of seconds.

    >>> parse_duration("500ms", "delay_target")
    0.5
    >>> parse_duration("2 seconds", "delay_target")
    2.0
    >>> parse_duration(timedelta(minutes=1), "delay_target")
    60.0
    """
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool) or not isinstance(value, int | float | str):
        raise PenstockError(f"{what} must be a duration such as '2s', '500ms', a timedelta or seconds, got {value!r}")
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value)
        unit = match.group(2).lower() if match else ""
        if match is None or (unit or "s") not in _UNITS_S:
            raise PenstockError(f"{what} must be a duration such as '2s', '500ms' or '1 min', got {value!r}")
        seconds = float(match.group(1)) * _UNITS_S[unit or "s"]
    else:
        seconds = float(value)
    if not (math.isfinite(seconds) and seconds > 0):
        raise PenstockError(f"{what} must be positive, got {value!r}")
    return seconds
