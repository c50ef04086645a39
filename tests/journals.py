"""Journals for tests of what shows them: a job under bursts, without Spark."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

from penstock.journal import BatchRecord, DecisionRecord, Journal

__all__ = ["make_records", "write_journal"]


def make_records(
    batches: int,
    *,
    first_s: float = 1_700_000_000.0,
    target_s: float = 2.0,
    first: int = 0,
    has_classes: bool = False,
    seed: int = 1,
) -> Iterator[tuple[DecisionRecord, BatchRecord]]:
    """Yield decisions and batches of a job at 2,000 rows per second of capacity, whose input comes in waves."""
    draw = random.Random(seed)
    start_s = first_s
    batch_s, cost_s, overhead_s = target_s / 2.0, 4e-4, 0.12
    taken_s = start_s - 0.5
    for number in range(first, first + batches):
        rate = 1800.0 * (1.0 + 0.9 * math.sin(number / 37.0)) + 300.0 * draw.random() + (4000.0 if number % 211 > 195 else 0.0)
        rows = int(rate * (start_s - taken_s))
        fitting = (batch_s - overhead_s) / cost_s
        keep = min(1.0, fitting / max(1, rows))
        kept = round(keep * rows)
        expired = int(0.3 * (rows - kept)) if number % 211 > 195 else 0
        end_s = start_s + overhead_s * (1.0 + 0.1 * draw.random()) + cost_s * kept * (1.0 + 0.05 * draw.gauss(0.0, 1.0))
        arrival_s = (taken_s + start_s) / 2.0 if kept else None
        gold = rows // 10
        classes = {"in": [(gold, min(gold, kept)), (rows - gold, max(0, kept - gold))]} if has_classes else None
        entries = (1.0, keep) if has_classes else (keep,)
        learnt = {"cost_s": cost_s * (1.0 + 0.02 * math.sin(number)), "overhead_s": overhead_s, "batch_time_s": batch_s}
        yield (
            DecisionRecord({"in": entries}, keep, batch_id=number, learnt=learnt),
            BatchRecord(
                number,
                {"in": (rows, kept)},
                keep=keep,
                start_s=start_s,
                end_s=end_s,
                busy_s=end_s - start_s,
                mean_arrival_s=arrival_s,
                backlog_rows=rows,
                expired={"in": expired} if expired else None,
                delay_target_s=target_s,
                classes=classes,
                expired_classes={"in": [0, expired]} if expired and has_classes else None,
            ),
        )
        taken_s, start_s = start_s, max(end_s, start_s + 0.2)


def write_journal(path: Path, batches: int, *, label: str | None = None, **options: object) -> Path:
    """Write a journal as a job does, one file for two records."""
    journal = Journal(path, owner=label or "job")
    for records in make_records(batches, **options):  # type: ignore[arg-type]
        journal.append(*records)
    journal.append("the clock of a source is ahead")
    journal.close()
    return path
