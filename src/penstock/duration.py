"""Parse durations: ``"2s"``, ``"500ms"``, a timedelta or a number of seconds."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from penstock.errors import PenstockError

__all__ = ["is_zero_duration", "parse_duration"]

_SPELLINGS = {
    1e-6: ("us", "microsecond"),
    1e-3: ("ms", "msec", "millisecond"),
    1.0: ("s", "sec", "second"),
    60.0: ("m", "min", "minute"),
    3600.0: ("h", "hour"),
    86400.0: ("d", "day"),
    7 * 86400.0: ("week",),
}
_UNITS_S = {
    name + plural: seconds
    for seconds, names in _SPELLINGS.items()
    for name in names
    for plural in ("", *(("s",) if len(name) > 2 else ()))
}
_TEXT = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", re.IGNORECASE)


def is_zero_duration(text: str) -> bool:
    """Return whether a text is a duration of zero, such as ``"0s"``, which ``parse_duration`` rejects.

    >>> is_zero_duration("0 seconds"), is_zero_duration("0.5s")
    (True, False)
    """
    match = _TEXT.fullmatch(text)
    return match is not None and (match.group(2).lower() or "s") in _UNITS_S and float(match.group(1)) == 0.0


def parse_duration(value: str | float | timedelta, what: str) -> float:
    """Return a duration in seconds.

    Parameters
    ----------
    value
        Text with a unit such as ``"2s"``, ``"500ms"`` or ``"1 min"``, a timedelta, or a number of seconds.
    what
        What the duration is, for error messages.

    Raises
    ------
    PenstockError
        If the value is not a duration, or not positive and finite.

    Examples
    --------
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
        raise PenstockError(f"{what} must be a duration such as '2s', '500ms', a timedelta or a number of seconds, got {value!r}")
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
