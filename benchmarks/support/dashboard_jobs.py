"""Journals for the dashboard's benchmark: as a job with default settings leaves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from penstock.journal import BatchRecord, DecisionRecord, Journal, JournalState
from penstock.journal.files import seal

__all__ = ["make_batches", "write_long_journal"]

_COMPACTED_EVERY = 256
_RETAINED = 4096


def make_batches(count: int) -> Iterator[tuple[DecisionRecord, BatchRecord]]:
    """Yield decisions and batches of a second each, of a job whose input comes in waves."""
    for number in range(count):
        rows = int(2000 + 1500 * math.sin(number / 50.0))
        keep = min(1.0, 2200 / rows)
        start_s = 1_700_000_000.0 + number
        learnt = {"cost_s": 4e-4, "overhead_s": 0.12, "batch_time_s": 1.0}
        yield (
            DecisionRecord({"in": (keep,)}, keep, batch_id=number, learnt=learnt),
            BatchRecord(
                number,
                {"in": (rows, round(keep * rows))},
                keep=keep,
                start_s=start_s,
                end_s=start_s + 0.97,
                busy_s=0.9,
                mean_arrival_s=start_s - 0.5,
                backlog_rows=rows,
                delay_target_s=2.0,
            ),
        )


def write_long_journal(path: Path, batches: int) -> None:
    """Write the journal of a job that has run so many batches, with the last ones in files of their own.

    A job writes a file per batch and folds them every so often. Here all but the last ones are folded in memory, in the same
    steps and by the same code, and only the last compacted file is written.
    """
    Journal(path, owner="job").close()
    state = JournalState()
    loose = batches % _COMPACTED_EVERY or 100
    small: list[tuple[DecisionRecord, BatchRecord]] = []
    for number, records in enumerate(make_batches(batches)):
        if number >= batches - loose:
            small.append(records)
            continue
        for record in records:
            state.add(record)
        if number % _COMPACTED_EVERY == 0:
            state.fold(_RETAINED)
    state.fold(_RETAINED)
    (path / f"{batches:012d}.compact.json").write_bytes(seal(state.to_lines()))
    journal = Journal(path, owner="job")
    for records in small:
        journal.append(*records)
    journal.close()
