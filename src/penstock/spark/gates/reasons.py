"""Why a row is shed, as a dead letter says it."""

from __future__ import annotations

__all__ = ["EXPIRED", "OVERLOAD"]

OVERLOAD = "overload"
"""There is more than can be processed in time."""
EXPIRED = "expired"
"""It arrived so long ago that it can't meet the target any more, or is too old to be preferred."""
