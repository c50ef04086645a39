"""What Spark reports of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from penstock.decision.events import BatchTimes
from penstock.spark.offsets import is_kafka, rows_between

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Spark's report of one batch."""

    batch_id: int
    run_id: str
    times: BatchTimes
    backlog_rows: Mapping[str, int]
    left_rows: Mapping[str, int]
    """What a cap on its size made the batch leave in each source when it was planned, for sources that say so."""
    ends: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """The offset of each source at the end of the batch, as JSON."""
    densities: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """By Kafka source that was read: rows read per offset, which is 1 unless the topic has gaps."""
    rows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many rows were read from each source; of a batch that was evaluated twice, twice as many."""
    is_skipped: bool = False
    """The batch had input but nothing was run: after a crash, its sink had it already."""

    @classmethod
    def parse(cls, text: str, first_offsets: Callable[[], Sequence[str | None]] = tuple) -> Progress | None:
        """Read Spark's JSON; ``None`` for a report of a trigger that ran no batch.

        Of the first batch of a query, Spark does not report where it began; ``first_offsets`` does.
        """
        report = json.loads(text)
        durations = report.get("durationMs", {})
        if "addBatch" not in durations or "triggerExecution" not in durations:
            return None
        start_s = datetime.fromisoformat(report["timestamp"]).timestamp()
        duration_s = durations["triggerExecution"] / 1e3
        sources = report.get("sources", [])
        if report["batchId"] == 0 and any(is_kafka(_as_text(source.get("endOffset"))) for source in sources):
            sources = [
                source | {"startOffset": first} for source, first in zip(sources, first_offsets(), strict=False)
            ] or sources
        return cls(
            batch_id=report["batchId"],
            run_id=report["runId"],
            times=BatchTimes(start_s, start_s + duration_s, durations["addBatch"] / 1e3),
            backlog_rows={source_name(number): _backlog(source, duration_s) for number, source in enumerate(sources)},
            left_rows={source_name(n): left for n, source in enumerate(sources) if (left := _left(source)) is not None},
            ends={
                source_name(n): end for n, source in enumerate(sources) if (end := _as_text(source.get("endOffset"))) is not None
            },
            densities={source_name(n): share for n, source in enumerate(sources) if (share := _density(source)) is not None},
            rows={source_name(n): source.get("numInputRows") or 0 for n, source in enumerate(sources)},
            is_skipped=not report.get("numInputRows") and any(s.get("startOffset") != s.get("endOffset") for s in sources),
        )


def source_name(number: int) -> str:
    """Return what a query's source is called in observations."""
    return f"source{number}"


def _backlog(source: dict[str, Any], duration_s: float) -> int:
    """Rows that wait at a source when a batch ends.

    What Spark calls the latest offset was taken when the batch was planned, so it shows only what a cap on the batch's size left
    behind. The rows that came while the batch ran are estimated from the rate at which its own rows came.
    """
    return (_left(source) or 0) + round((source.get("inputRowsPerSecond") or 0.0) * duration_s)


def _left(source: dict[str, Any]) -> int | None:
    """Rows that were there when the batch was planned and that it did not take; ``None`` where offsets don't tell."""
    return rows_between(_as_text(source.get("endOffset")), _as_text(source.get("latestOffset")))


def _density(source: dict[str, Any]) -> float | None:
    """Rows per offset of a Kafka source. A batch may be evaluated more than once, and its rows counted as often: at most 1."""
    start, end = _as_text(source.get("startOffset")), _as_text(source.get("endOffset"))
    spanned, read = rows_between(start, end) if is_kafka(end) else None, source.get("numInputRows")
    return min(1.0, read / spanned) if spanned and read else None


def _as_text(offset: Any) -> str | None:
    """Offsets come as JSON text or as JSON values, depending on the source."""
    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)
