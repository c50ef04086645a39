"""WorkUnderWay: the tuples that the operator has not acknowledged yet, and how long a new one would wait behind them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

__all__ = ["WorkUnderWay"]

SCALE_GAIN = 1.0 / 64.0
"""How much a single tuple changes the ratio of true to estimated costs."""
REMAINS = 0.5
"""The share of its estimate that a tuple in process takes at least until it is acknowledged."""
PATIENCE = 32.0
"""Mean costs, beside twice tau, after which a tuple that was not acknowledged counts as done."""


@dataclass(frozen=True, slots=True)
class _Tuple:
    request_s: float
    arrival_s: float
    estimate_s: float
    wait_s: float
    work_s: float
    """All work enqueued so far, this tuple's included."""


class WorkUnderWay:
    """What is in the operator's queue, as far as its acknowledgements tell.

    Every tuple asks the operator for its clock, and the answer says when the tuple was done. So three things are known that an
    estimated clock has to guess: which tuples are under way, when the one in process began, and what those before it cost.
    A correction is never applied twice, because only the estimates of the tuples still under way are added to the last answer.

    ``scale`` is the ratio of true to estimated costs over the last tuples. All estimates are multiplied by it, those under way
    included, so a cost that doubles for all keys is known once a few tuples are done.

    An answer that never comes must not stop everything: a tuple that is long overdue counts as done, and from then on until the
    next answer the estimates count, as they do before the first one.

    Parameters
    ----------
    tau_s
        The constraint on queuing latency, which says how long is long.
    mean_s
        The mean cost as far as it is known; 0 if it is not.

    Examples
    --------
    >>> under_way = WorkUnderWay(tau_s=1.0, mean_s=2.0)
    >>> request_s = under_way.enqueue(arrival_s=0.0, estimate_s=2.0, wait_s=0.0)
    >>> request_s, under_way.wait_s(0.5)
    (2.0, 1.5)
    >>> _ = under_way.enqueue(arrival_s=0.5, estimate_s=2.0, wait_s=1.5)
    >>> under_way.acknowledge(request_s, delta_s=1.0)       # it was done at 3 s: the second one waited for a second more
    1.0
    """

    def __init__(self, tau_s: float, mean_s: float = 0.0) -> None:
        self.mean_s = mean_s
        """The mean cost of the last tuples."""
        self.scale = 1.0
        self._mean_estimate_s = mean_s
        self._patience_s = 2.0 * tau_s
        self._tuples: deque[_Tuple] = deque()
        self._start_s = self._work_s = 0.0
        self._is_silent = True

    def __len__(self) -> int:
        return len(self._tuples)

    def enqueue(self, arrival_s: float, estimate_s: float, wait_s: float) -> float:
        """Add a tuple, and return when it should be done."""
        if not self._tuples:
            self._start_s = arrival_s
        self._work_s += estimate_s
        request_s = arrival_s + wait_s + self.scale * estimate_s
        self._tuples.append(_Tuple(request_s, arrival_s, estimate_s, wait_s, self._work_s))
        return request_s

    def wait_s(self, now_s: float) -> float:
        """Return how long a tuple that arrives now would wait."""
        self._give_up(now_s)
        if not self._tuples:
            return 0.0
        first = self._tuples[0]
        cost_s = self.scale * first.estimate_s
        return max(self._start_s + cost_s - now_s, REMAINS * cost_s) + self.scale * (self._work_s - first.work_s)

    def acknowledge(self, request_s: float, delta_s: float) -> float:
        """Handle an answer: the tuple was done by so much later than requested.

        Returns
        -------
        float
            By how much longer than expected the next tuple under way has waited; 0 if there is none.
        """
        self._is_silent = False
        if not any(waiting.request_s == request_s for waiting in self._tuples):
            return 0.0  # it was given up
        done_s = request_s + delta_s
        first = self._tuples.popleft()
        if first.request_s == request_s:
            self._learn(max(done_s - self._start_s, 0.0), first.estimate_s)
        while first.request_s != request_s:  # the operator works in order, so answers were lost
            first = self._tuples.popleft()
        self._start_s = done_s
        if not self._tuples:
            return 0.0
        return max(done_s - self._tuples[0].arrival_s, 0.0) - self._tuples[0].wait_s

    def _learn(self, cost_s: float, estimate_s: float) -> None:
        if self.mean_s <= 0.0:
            self.mean_s = self._mean_estimate_s = cost_s
        self.mean_s += (cost_s - self.mean_s) * SCALE_GAIN
        self._mean_estimate_s += ((estimate_s if estimate_s > 0.0 else cost_s) - self._mean_estimate_s) * SCALE_GAIN
        if self._mean_estimate_s > 0.0:
            self.scale = self.mean_s / self._mean_estimate_s

    def _give_up(self, now_s: float) -> None:
        """Count tuples as done that are long overdue."""
        while self._tuples:
            end_s = self._start_s + self.scale * self._tuples[0].estimate_s
            if now_s < end_s + (0.0 if self._is_silent else PATIENCE * self.mean_s + self._patience_s):
                return
            self._is_silent = True
            self._tuples.popleft()
            self._start_s = max(end_s, self._tuples[0].arrival_s) if self._tuples else end_s
