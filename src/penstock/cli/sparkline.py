"""A curve in one line of text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

__all__ = ["sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 40, limit: float | None = None) -> Text:
    """Return the last values as blocks; those above the limit are red, and the limit is half the height or more.

    >>> sparkline([0.0, 1.0, 2.0, 4.0], limit=2.0).plain
    '▁▃▅█'
    """
    shown = list(values)[-width:]
    top = max([*shown, 2.0 * limit if limit is not None else 0.0], default=0.0)
    line = Text()
    for value in shown:
        place = round(max(0.0, value) / top * (len(_BLOCKS) - 1)) if top > 0 else 0
        above = limit is not None and value > limit
        line.append(_BLOCKS[place], style="red" if above else "green" if limit is not None else "")
    return line
