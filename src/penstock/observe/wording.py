"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["count", "seconds", "share"]


def seconds(value: float) -> str:
    """Return a time with the unit that fits it.

    >>> seconds(0.00042), seconds(0.125), seconds(1.7), seconds(90.0), seconds(7200.0)
    ('0.42 ms', '125 ms', '1.7 s', '90 s', '2 h')
    """
    if not math.isfinite(value):
        return "an unknown time"
    unit, name = next((unit, name) for limit, unit, name in _UNITS if abs(value) < limit)
    return f"{value / unit:.3g} {name}" if value else "0 s"


_UNITS = (
    (1e-5, 1e-6, "µs"),
    (1.0, 1e-3, "ms"),
    (600.0, 1.0, "s"),
    (7200.0, 60.0, "min"),
    (172_800.0, 3600.0, "h"),
    (math.inf, 86_400.0, "days"),
)


def count(value: float) -> str:
    """Return a number of rows.

    >>> count(12345.0)
    '12,345'
    """
    return f"{value:,.0f}" if math.isfinite(value) else "an unknown number of"


def share(value: float) -> str:
    """Return a share in percent; a part is never shown as nothing or as all.

    >>> share(0.5), share(0.9999), share(0.0004), share(1.0), share(11.6)
    ('50%', '99.9%', '0.1%', '100%', '1,160%')
    """
    percent = 100.0 * value
    if 0.0 < percent < 0.1:
        percent = 0.1
    if 99.9 < percent < 100.0:
        percent = 99.9
    return f"{percent:.3g}%" if percent < 999.5 else f"{percent:,.0f}%"
