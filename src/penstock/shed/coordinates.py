"""Which rows of a Kafka topic a gate has shed, from coordinates, seed and table alone: the gate is a hash and a comparison."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.drop.hashing import gate_seed, uniform
from penstock.errors import PenstockError
from penstock.shed.shed_log import OffsetRange, ShedRecord

__all__ = ["find_shed_offsets", "find_shed_rows"]

_ROWS_AT_ONCE = 1 << 20


def find_shed_offsets(record: ShedRecord) -> Iterator[tuple[OffsetRange, np.ndarray]]:
    """Yield the offsets that a batch has shed, partition by partition.

    Offsets that hold no row, such as markers of transactions, are judged as if they did.

    Raises
    ------
    PenstockError
        If the arrival of a row decides, too: then its timestamp is needed, see ``find_shed_rows``.

    Examples
    --------
    >>> record = ShedRecord(0, "in", 0.25, (OffsetRange("clicks", 0, 0, 8),))
    >>> [offsets.tolist() for _, offsets in find_shed_offsets(record)]
    [[0, 1, 2, 4, 5, 7]]
    """
    if record.has_ages:
        raise PenstockError(f"batch {record.batch} was shed by age, too: the rows' timestamps are needed")
    for whole in record.ranges:
        for start in range(whole.start, whole.end, _ROWS_AT_ONCE):
            part = OffsetRange(whole.topic, whole.partition, start, min(start + _ROWS_AT_ONCE, whole.end))
            offsets = np.arange(part.start, part.end)
            yield part, offsets[~_is_below(record.gate, part, offsets, record.keep)]


def find_shed_rows(record: ShedRecord, part: OffsetRange, offsets: np.ndarray, micros: np.ndarray) -> np.ndarray:
    """Return why each of some rows of a partition was shed: 0 if it was kept, 1 for overload, 2 if it was too old.

    Parameters
    ----------
    record
        What is known of the batch.
    part
        Topic and partition.
    offsets
        The offset of each row.
    micros
        The timestamp of each row, in microseconds since the epoch.
    """
    keep = np.full(len(offsets), record.keep)
    is_old = np.zeros(len(offsets), dtype=bool)
    if record.older_keep is not None and record.line is not None:
        is_old = micros < record.line
        keep[is_old] = record.older_keep
    kept = _is_below(record.gate, part, offsets, keep)
    reasons: np.ndarray = np.where(kept, 0, np.where(is_old, 2, 1))
    return reasons


def _is_below(gate: str, part: OffsetRange, offsets: np.ndarray, keep: np.ndarray | float) -> np.ndarray:
    """Hash topic, partition and offset as the gate does."""
    count = len(offsets)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, dtype=np.int32)), pa.array([part.topic])).cast(pa.string()),
        pa.array(np.full(count, part.partition, dtype=np.int32)),
        pa.array(offsets.astype(np.int64)),
    ]
    below: np.ndarray = uniform(gate_seed(gate), columns) < keep
    return below
