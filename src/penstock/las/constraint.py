"""What a shedder promises about queuing latency: the CHECK of LAS."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque

from penstock.errors import PenstockError

__all__ = ["ABS", "AVG", "Constraint", "Sliding"]


class Constraint(ABC):
    """Decides whether a tuple that would wait for q seconds may be enqueued, and remembers the ones that were."""

    def __init__(self, tau_s: float) -> None:
        if not (math.isfinite(tau_s) and tau_s >= 0):
            raise PenstockError(f"tau must be finite and not negative, got {tau_s!r}")
        self.tau_s = tau_s

    @abstractmethod
    def is_violated(self, q_s: float) -> bool:
        """Return whether enqueueing a tuple that waits this long would violate the constraint."""

    @abstractmethod
    def add(self, q_s: float) -> None:
        """Count a tuple that is enqueued."""


class ABS(Constraint):
    """No tuple waits for more than tau.

    >>> ABS(1.0).is_violated(1.5)
    True
    """

    def is_violated(self, q_s: float) -> bool:
        """Compare the tuple alone."""
        return q_s > self.tau_s

    def add(self, q_s: float) -> None:
        """Remember nothing."""


class AVG(Constraint):
    """The mean over all tuples enqueued so far is at most tau.

    The text of LAS adds q to the mean before it compares, and so does this. Its listing compares first: once the mean is above
    tau, nothing is ever enqueued again that could bring it down.

    >>> check = AVG(1.0)
    >>> check.add(0.5)
    >>> check.is_violated(1.5), check.is_violated(1.6)
    (False, True)
    """

    def __init__(self, tau_s: float) -> None:
        super().__init__(tau_s)
        self._total_s, self._count = 0.0, 0

    def is_violated(self, q_s: float) -> bool:
        """Compare the mean that includes the tuple."""
        return (self._total_s + q_s) / (self._count + 1) > self.tau_s

    def add(self, q_s: float) -> None:
        """Add to the mean."""
        self._total_s += q_s
        self._count += 1


class Sliding(Constraint):
    """The mean over the last ``window`` enqueued tuples is at most tau.

    >>> check = Sliding(1.0, window=2)
    >>> for q in (0.0, 0.0, 1.0):
    ...     check.add(q)
    >>> check.is_violated(1.1)
    True
    """

    def __init__(self, tau_s: float, window: int = 1024) -> None:
        super().__init__(tau_s)
        if window < 1:
            raise PenstockError(f"the window must be positive, got {window}")
        self._last: deque[float] = deque(maxlen=window)
        self._total_s = 0.0

    def is_violated(self, q_s: float) -> bool:
        """Compare the mean that includes the tuple and excludes the oldest one."""
        is_full = len(self._last) == self._last.maxlen
        total_s = self._total_s - (self._last[0] if is_full else 0.0) + q_s
        return total_s / (len(self._last) + (0 if is_full else 1)) > self.tau_s

    def add(self, q_s: float) -> None:
        """Move the window by one tuple."""
        if len(self._last) == self._last.maxlen:
            self._total_s -= self._last[0]
        self._last.append(q_s)
        self._total_s += q_s
