"""How often the queries of a node run a batch, how long a batch takes, and what that says of the node's capacity."""

from __future__ import annotations

__all__ = ["BatchTimes"]

_LATE_PACES, _TIMELY_PACES = 1.2, 1.05
_STEP = 0.02
_LEAST_HEADROOM = 0.9


class BatchTimes:
    """Smooths the cycle and the length of each query's batches and derives the node's headroom from them.

    The headroom is that of SEaMLeSS (Pham et al.): the share of the declared capacity that the node really has. It falls while
    batches take longer than a pace, to 0.9 at the least, and recovers when they are in time again.
    """

    def __init__(self, pace_s: float) -> None:
        self._pace_s = pace_s
        self._started_s: dict[str, float] = {}
        self._lengths_s: dict[str, float] = {}
        self.cycles_s: dict[str, float] = {}
        """Seconds from the start of a batch to the start of the next, by query."""
        self.headroom = 1.0

    def begin(self, query: str, now_s: float) -> None:
        """Note that a batch starts."""
        if query in self._started_s:
            _smooth(self.cycles_s, query, now_s - self._started_s[query])
        self._started_s[query] = now_s

    def end(self, query: str, now_s: float) -> None:
        """Note that the batch of a query has ended, and adjust the headroom."""
        _smooth(self._lengths_s, query, now_s - self._started_s[query])
        paces = max(self._lengths_s.values()) / self._pace_s
        if paces > _LATE_PACES:
            self.headroom = max(_LEAST_HEADROOM, self.headroom * (1.0 - _STEP * min(1.0, paces - _LATE_PACES)))
        elif paces < _TIMELY_PACES:
            self.headroom = min(1.0, self.headroom + _STEP)

    def cycle_s(self, query: str) -> float:
        """Return the cycle of a query, which is at least a pace."""
        return max(self._pace_s, self.cycles_s.get(query, self._pace_s))


def _smooth(values: dict[str, float], name: str, value: float) -> None:
    values[name] = 0.7 * values.get(name, value) + 0.3 * value
