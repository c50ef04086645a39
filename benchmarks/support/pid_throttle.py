"""Backpressure as in Spark's DStreams: a PID estimate of the rate that the job can process. It delays rows and drops none."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PidThrottle"]


class PidThrottle:
    """The rate estimator of Spark Streaming's receivers, with its published rule and defaults.

    ``rate -= P * (rate - processed) + I * scheduling delay * processed / interval``, with P = 1, I = 0.2, D = 0 and a minimum
    rate. Rows above the rate wait in the source.

    >>> pid = PidThrottle(interval_s=1.0)
    >>> pid.update(rows=1000, processing_s=2.0, scheduling_s=0.0)      # the first batch sets the rate
    500.0
    >>> pid.update(rows=500, processing_s=2.0, scheduling_s=1.0)       # 250 rows/s, less a fifth for being late
    200.0
    """

    def __init__(self, interval_s: float, proportional: float = 1.0, integral: float = 0.2, min_rate: float = 100.0) -> None:
        self._interval_s = interval_s
        self._proportional, self._integral, self._min_rate = proportional, integral, min_rate
        self._rate: float | None = None

    def update(self, rows: int, processing_s: float, scheduling_s: float) -> float:
        """Account for a batch and return the rate for the next one, in rows per second."""
        if rows <= 0 or processing_s <= 0.0:
            return self._rate if self._rate is not None else self._min_rate
        processed = rows / processing_s
        if self._rate is None:
            self._rate = processed
            return self._rate
        error = self._rate - processed
        late = scheduling_s * processed / self._interval_s
        self._rate = max(self._min_rate, self._rate - self._proportional * error - self._integral * late)
        return self._rate

    def write(self, path: Path) -> None:
        """Write the number of rows for one interval to the file that the source reads."""
        if self._rate is not None:
            path.write_text(str(max(1, round(self._rate * self._interval_s))))
