"""How fast rows arrive at one entry of a node, and how many of a batch may pass."""

from __future__ import annotations

from collections import deque

__all__ = ["TokenBucket"]

_EXPIRY_PACES = 3.0


class TokenBucket:
    """Measures the arrival rate at one entry and decides how many rows of a batch may pass.

    An input from outside is steady: a batch holds what arrived since the previous one, so its rate is that of the last batch. An
    arc from another node delivers whole batches, at times two at once and then none, so its rate is an average over four paces.

    Allowance that is not used is saved: for a quarter of a pace at an input, for a whole pace at an arc. So a late batch is not
    punished, and no burst makes a batch much longer than it should be.

    Parameters
    ----------
    pace_s
        How often a query takes a micro-batch.
    is_steady
        Whether the entry is an input from outside rather than an arc.

    Examples
    --------
    >>> bucket = TokenBucket(2.0, is_steady=True)
    >>> bucket.add_batch(1000, now_s=10.0)
    >>> bucket.add_batch(1000, now_s=12.0)
    >>> bucket.rate
    500.0
    >>> bucket.admit(1000, 100.0)
    0.2

    """

    def __init__(self, pace_s: float, *, is_steady: bool) -> None:
        self.is_steady = is_steady
        self.rate = 0.0
        """Rows per second that arrive."""
        self._pace_s = pace_s
        self._window_s = 4.0 * pace_s
        self._burst_s = pace_s * (1.25 if is_steady else 2.0)
        self._recent: deque[tuple[float, int]] = deque()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._elapsed_s = self._burst_s
        self._saved = 0.0

    def add_batch(self, rows: int, now_s: float) -> None:
        """Count a batch that has arrived."""
        elapsed_s = self._burst_s if self._last_s is None else now_s - self._last_s
        self._elapsed_s = min(max(elapsed_s, self._pace_s), self._burst_s)
        self._first_s = now_s if self._first_s is None else self._first_s
        self._last_s = now_s
        if self.is_steady:
            self.rate = rows / self._elapsed_s
            return
        self._recent.append((now_s, rows))
        while self._recent[0][0] <= now_s - self._window_s:
            self._recent.popleft()
        observed_s = max(now_s - self._first_s, self._pace_s) + self._pace_s
        self.rate = sum(count for _, count in self._recent) / min(self._window_s, observed_s)

    def expire(self, now_s: float) -> None:
        """Set the rate to zero if no batch has arrived for three paces."""
        if self._last_s is not None and now_s - self._last_s > _EXPIRY_PACES * self._pace_s:
            self.rate = 0.0
            self._recent.clear()

    def admit(self, rows: int, rows_per_s: float | None, swing: float = 0.0) -> float:
        """Spend the allowance on the batch that was added last, and return the share of it that may pass.

        Parameters
        ----------
        rows
            The rows of the batch.
        rows_per_s
            The limit, or ``None`` if there is none: then everything passes.
        swing
            Lets this fraction more pass now. The next batch gets as much less.

        """
        if rows_per_s is None:
            self._saved = 0.0
            return 1.0
        allowance = min(self._saved + rows_per_s * self._elapsed_s, rows_per_s * self._burst_s)
        keep = min(1.0, max(0.0, allowance * (1.0 + swing)) / rows) if rows > 0 else 1.0
        self._saved = allowance - keep * rows
        return keep
