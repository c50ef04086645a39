"""How many rows lie between two offsets of a source, if its offsets count rows."""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["is_kafka", "read_rows_per_s", "rows_between"]

_RATE = re.compile(r"RateStreamV2\[rowsPerSecond=(\d+), rampUpTimeSeconds=0\b")


def rows_between(start: str | None, end: str | None, rows_per_s: int | None = None) -> int | None:
    """Return the number of rows from one offset to the next; ``None`` if the source's offsets don't count rows.

    It knows the offsets of the replay source, of Kafka and of Spark's ``rate-micro-batch`` and ``rate``. For Kafka the number is
    an upper bound: a compacted topic has gaps, the marks of transactions take offsets, and retention removes rows.

    Parameters
    ----------
    start, end
        Offsets as JSON, as Spark logs them. Without a start, the rows from the beginning of the source are counted; for Kafka
        that is not known, because a topic may begin anywhere. A partition of Kafka that is new begins at 0, and one that is gone
        has no rows; neither has one that starts anew below its old end, because its topic was deleted and created again.
    rows_per_s
        Of Spark's ``rate``, whose offsets are seconds: how many rows it makes in each.

    Examples
    --------
    >>> rows_between('{"n": 10, "t0": 0.5}', '{"n": 25, "t0": 0.5}')
    15
    >>> rows_between('{"clicks": {"0": 5, "1": 7}}', '{"clicks": {"0": 6, "1": 9}}')
    3
    >>> rows_between(None, '{"offset": 4, "timestamp": 0}')
    4
    >>> rows_between("3", "5", rows_per_s=1_000)
    2000
    >>> rows_between('"opaque"', '"offset"') is None
    True
    """
    first, last = _partitions(start), _partitions(end)
    if last is not None:
        if first is None or not (first or last):
            return None
        return sum(max(0, offset - first.get(partition, 0)) for partition, offset in last.items())
    before, after = _position(start, rows_per_s), _position(end, rows_per_s)
    if after is None or (before is None and start is not None):
        return None
    return max(0, after - (before or 0))


def is_kafka(offset: str | None) -> bool:
    """Whether an offset is one of Kafka's, with a topic at least.

    >>> is_kafka('{"clicks": {"0": 5}}'), is_kafka('{"n": 5, "t0": 0}')
    (True, False)
    """
    return bool(_partitions(offset))


def read_rows_per_s(source: str) -> int | None:
    """Return how many rows Spark's ``rate`` makes per second, from what it says of itself; ``None`` for any other source.

    One that starts slowly makes another number in each of its first seconds, and is not known either.

    >>> read_rows_per_s("RateStreamV2[rowsPerSecond=100, rampUpTimeSeconds=0, numPartitions=default")
    100
    >>> read_rows_per_s("RateStreamV2[rowsPerSecond=100, rampUpTimeSeconds=5, numPartitions=2") is None
    True
    """
    found = _RATE.match(source)
    return None if found is None else int(found[1])


def _load(offset: str | None) -> Any:
    try:
        return json.loads(offset or "null")
    except ValueError:
        return None


def _partitions(offset: str | None) -> dict[tuple[str, str], int] | None:
    """Return Kafka's offset of each partition, ``None`` for other sources. A pattern may match no topic yet."""
    value = _load(offset)
    if not isinstance(value, dict) or not all(isinstance(partitions, dict) for partitions in value.values()):
        return None
    offsets = {(topic, number): count for topic, partitions in value.items() for number, count in partitions.items()}
    return offsets if all(isinstance(count, int) for count in offsets.values()) else None


def _position(offset: str | None, rows_per_s: int | None) -> int | None:
    match _load(offset):
        case int(seconds) if rows_per_s is not None:
            return seconds * rows_per_s
        case {"n": int(rows), "t0": _} | {"offset": int(rows), "timestamp": _}:
            return rows
    return None
