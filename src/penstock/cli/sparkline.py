"""A curve in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

__all__ = ["sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 40, limit: float | None = None) -> Text:
    """Return the last values as blocks of different heights.

    With a limit, values above it are red and the others green, and the limit is at half of the height or below.

    >>> sparkline([0.0, 1.0, 2.0, 4.0], limit=2.0).plain
    '▁▃▅█'
    """
    shown = list(values)[-width:]
    top = max([*shown, 2.0 * limit if limit is not None else 0.0], default=0.0)
    line = Text()
    for value in shown:
        height = round(max(0.0, value) / top * (len(_BLOCKS) - 1)) if top > 0 else 0
        is_above = limit is not None and value > limit
        line.append(_BLOCKS[height], style="red" if is_above else "green" if limit is not None else "")
    return line
