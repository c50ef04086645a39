"""Backpressure as Spark's DStreams had it: a PID estimate of the rate that can be processed. It throttles; nothing is dropped."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PidThrottle"]


class PidThrottle:
    """The rate estimator of Spark Streaming's receivers, by its published rule and defaults.

    ``rate -= P * (rate - processed) + I * scheduling delay * processed / interval``, with P = 1, I = 0.2, D = 0 and a least
    rate. Rows above it wait in the source.

    >>> pid = PidThrottle(interval_s=1.0)
    >>> pid.update(rows=1000, processing_s=2.0, scheduling_s=0.0)      # the first batch sets the rate
    500.0
    >>> pid.update(rows=500, processing_s=2.0, scheduling_s=1.0)       # 250 rows/s, less a fifth for being late
    200.0
    """

    def __init__(self, interval_s: float, proportional: float = 1.0, integral: float = 0.2, least: float = 100.0) -> None:
        self._interval_s = interval_s
        self._proportional, self._integral, self._least = proportional, integral, least
        self._rate: float | None = None

    def update(self, rows: int, processing_s: float, scheduling_s: float) -> float:
        """Take in a batch and return the rows a second that the next one may take."""
        if rows <= 0 or processing_s <= 0.0:
            return self._rate if self._rate is not None else self._least
        processed = rows / processing_s
        if self._rate is None:
            self._rate = processed
            return self._rate
        error = self._rate - processed
        late = scheduling_s * processed / self._interval_s
        self._rate = max(self._least, self._rate - self._proportional * error - self._integral * late)
        return self._rate

    def write(self, path: Path) -> None:
        """Put the rows of one interval where the source reads them."""
        if self._rate is not None:
            path.write_text(str(max(1, round(self._rate * self._interval_s))))
