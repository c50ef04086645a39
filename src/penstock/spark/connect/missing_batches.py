"""What the ledger says of batches that nobody counted: over Spark Connect they can't be run again for that."""

from __future__ import annotations

from collections.abc import Collection, Iterator

__all__ = ["find_missing", "name_batches"]


def find_missing(first: int, end: int, counted: Collection[int] = ()) -> Iterator[range]:
    """Yield the batches from one up to another that are not counted, in ranges.

    >>> list(find_missing(3, 9, {4, 5})), list(find_missing(3, 5, {3, 4})), list(find_missing(3, 3))
    ([range(3, 4), range(6, 9)], [], [])
    """
    for batch_id in (*sorted(number for number in counted if first <= number < end), end):
        if first < batch_id:
            yield range(first, batch_id)
        first = batch_id + 1


def name_batches(batches: range) -> str:
    """Return what a few batches in a row are called.

    >>> name_batches(range(3, 4)), name_batches(range(3, 6))
    ('batch 3', 'batches 3 to 5')
    """
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
