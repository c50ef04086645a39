"""Parameters of arrival processes: what each may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.simulation.validation import positive, real, whole

__all__ = ["MAX_ARRIVALS", "check_arrivals", "check_parameters"]

MAX_ARRIVALS = 200_000_000
"""An arrival takes 8 bytes in every process that replays it; beyond this a machine swaps before it sheds."""

# A parameter means the same in every generator, so one check per name is enough.
_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "rate": positive,
    "duration_s": positive,
    "to_rate": lambda what, value: real(what, value, 0.0, math.inf, "a number of at least 0"),
    "at_s": lambda what, value: real(what, value, 0.0, math.inf, "a number of at least 0"),
    "amplitude": lambda what, value: real(what, value, 0.0, 1.0, "between 0 and 1"),
    "period_s": positive,
    "interval_s": positive,
    "on_s": positive,
    "off_s": positive,
    "shape": lambda what, value: real(
        what, value, 1.0, math.inf, "greater than 1 (the mean is infinite at 1 and below)", open_low=True
    ),
    "bias": lambda what, value: real(
        what, value, 0.5, math.nextafter(1.0, 0.0), "at least 0.5 (even) and less than 1 (all on one side)"
    ),
    "sources": lambda what, value: whole(what, value, 1, 1_000_000, "a whole number from 1 to 1,000,000"),
    "seed": lambda what, value: whole(what, value, 0, 2**63 - 1, "a whole number of at least 0"),
}


def check_parameters(**values: float) -> None:
    """Raise unless each parameter is allowed, and the arrivals are not too many."""
    for what, value in values.items():
        _CHECKS[what](what, value)
    if "rate" in values and "duration_s" in values:
        check_arrivals(values["rate"] * values["duration_s"], "rate * duration_s")


def check_arrivals(arrivals: float, what: str) -> None:
    """Raise if there are too many arrivals; ``what`` names the quantity."""
    if not arrivals <= MAX_ARRIVALS:
        raise PenstockError(f"{what} must be at most {MAX_ARRIVALS:,} arrivals, got {arrivals:,.0f}")
