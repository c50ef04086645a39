"""What a shedder promises about queuing latency: the CHECK of LAS."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import ClassVar

from penstock.errors import PenstockError

__all__ = ["ABS", "AVG", "Constraint", "Sliding"]


class Constraint(ABC):
    """Decides whether a tuple that would wait for q seconds may be enqueued, and remembers the ones that were."""

    remembers: ClassVar[bool] = False
    """Whether waits of earlier tuples matter."""

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

    def credit_s(self, share: float = 1.0) -> float:  # noqa: ARG002 - most constraints have a memory
        """Return how much longer than this share of tau a tuple may wait, because earlier ones waited less; negative if more."""
        return 0.0

    def correct(self, ago: int, error_s: float) -> None:  # noqa: B027 - most have nothing to correct
        """Change the wait of an enqueued tuple, the last one if ``ago`` is 1, which turned out longer by so much."""


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

    remembers = True

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

    def credit_s(self, share: float = 1.0) -> float:
        """Return what the tuples so far have left of tau."""
        return share * self.tau_s * self._count - self._total_s

    def correct(self, ago: int, error_s: float) -> None:
        """Add to the mean."""
        if 0 < ago <= self._count:
            self._total_s += error_s


class Sliding(Constraint):
    """The mean over the last ``window`` enqueued tuples is at most tau.

    >>> check = Sliding(1.0, window=2)
    >>> for q in (0.0, 0.0, 1.0):
    ...     check.add(q)
    >>> check.is_violated(1.1)
    True
    """

    remembers = True

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

    def credit_s(self, share: float = 1.0) -> float:
        """Return what the tuples that stay in the window have left of tau."""
        if len(self._last) == self._last.maxlen:
            return share * self.tau_s * (len(self._last) - 1) - (self._total_s - self._last[0])
        return share * self.tau_s * len(self._last) - self._total_s

    def correct(self, ago: int, error_s: float) -> None:
        """Change a tuple that is still in the window."""
        if 0 < ago <= len(self._last):
            self._last[-ago] += error_s
            self._total_s += error_s
