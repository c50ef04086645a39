"""The work of the demo's job: a score per row that costs real CPU time."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import compute as pc

__all__ = ["SCORED", "Work", "calibrate", "score", "scorer"]

SCORED = "arrival timestamp, key bigint, score double"
"""The schema that a scorer returns."""

_SCORE_BYTES = 6  # fits a double exactly


def score(payload: bytes, rounds: int) -> float:
    """Return a number in [0, 1) that takes ``rounds`` rounds of SHA-256 to compute.

    >>> 0.0 <= score(b"row", 10) < 1.0
    True
    """
    for _ in range(rounds):
        payload = hashlib.sha256(payload).digest()
    return int.from_bytes(payload[:_SCORE_BYTES], "big") / float(1 << (8 * _SCORE_BYTES))


def scorer(rounds: int, double_from_s: float = math.inf) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that scores rows; those that arrive from ``double_from_s`` on take twice the work."""

    def apply(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            payloads = batch.column("payload").to_pylist()
            if math.isinf(double_from_s):
                scores = [score(payload, rounds) for payload in payloads]
            else:
                is_doubled = pc.greater_equal(batch.column("arrival").cast(pa.int64()), round(double_from_s * 1e6)).to_pylist()
                scores = [score(payload, rounds * (1 + double)) for payload, double in zip(payloads, is_doubled, strict=True)]
            columns = [batch.column("arrival"), batch.column("key"), pa.array(scores, pa.float64())]
            yield pa.RecordBatch.from_arrays(columns, names=["arrival", "key", "score"])

    return apply


@dataclass(frozen=True, slots=True)
class Work:
    """The rounds of SHA-256 per row, and the seconds of one core that they take on this machine."""

    rounds: int
    cost_s: float


def calibrate(cost_s: float, clock: Callable[[], float] = time.perf_counter, tries: int = 7) -> Work:
    """Choose the rounds so that a row takes about ``cost_s`` of one core on this machine; the best of several tries counts."""
    rounds, rows = 1000, 10
    best_s = float("inf")
    for _ in range(tries):
        begin_s = clock()
        for row in range(rows):
            score(row.to_bytes(32, "big"), rounds)
        best_s = min(best_s, (clock() - begin_s) / rows)
    calibrated = max(1, round(rounds * cost_s / best_s))
    return Work(calibrated, best_s * calibrated / rounds)
