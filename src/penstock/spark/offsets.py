"""How many rows lie between two offsets of a source, if its offsets count rows."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["rows_between"]


def rows_between(start: str | None, end: str | None) -> int | None:
    """Return the number of rows from one offset to the next; ``None`` if the source's offsets don't count rows.

    It knows the offsets of the replay source, of Kafka and of Spark's ``rate-micro-batch``.

    Parameters
    ----------
    start, end
        Offsets as JSON, as Spark logs them. Without a start, the rows from the beginning of the source are counted; for Kafka
        that is not known, because a topic may begin anywhere.

    Examples
    --------
    >>> rows_between('{"n": 10, "t0": 0.5}', '{"n": 25, "t0": 0.5}')
    15
    >>> rows_between('{"clicks": {"0": 5, "1": 7}}', '{"clicks": {"0": 6, "1": 9}}')
    3
    >>> rows_between(None, '{"offset": 4, "timestamp": 0}')
    4
    >>> rows_between('"opaque"', '"offset"') is None
    True
    """
    before, after = _position(start), _position(end)
    if start is None and _is_kafka(end):
        return None
    if after is None or (before is None and start is not None):
        return None
    return max(0, after - (before or 0))


def _is_kafka(offset: str | None) -> bool:
    try:
        value = json.loads(offset or "null")
    except ValueError:
        return False
    return isinstance(value, dict) and bool(value) and all(isinstance(partitions, dict) for partitions in value.values())


def _position(offset: str | None) -> int | None:
    try:
        value: Any = json.loads(offset or "null")
    except ValueError:
        return None
    match value:
        case {"n": int(rows), "t0": _} | {"offset": int(rows), "timestamp": _}:
            return rows
        case dict() if value and all(isinstance(partitions, dict) for partitions in value.values()):
            counts = [count for partitions in value.values() for count in partitions.values()]
            return sum(counts) if all(isinstance(count, int) for count in counts) else None
    return None
