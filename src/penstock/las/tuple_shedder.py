"""What every shedder of LAS does: decide tuple by tuple, from an estimate of the operator's clock."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Matrices, Sync

__all__ = ["ClockShedder", "TupleShedder"]


class TupleShedder(ABC):
    """Decides tuple by tuple. Time is what has passed since the first tuple, in seconds."""

    @abstractmethod
    def shed(self, key: int, elapsed_s: float) -> bool:
        """Decide on a tuple that arrives now, and return whether to drop it."""

    def request(self) -> float | None:
        """Return what to send along with the tuple that was just let through.

        That is the estimated time at which the operator will be done with it, if the operator is asked to correct the estimate,
        and ``None`` otherwise.
        """
        return None

    def receive(self, message: Matrices | Sync) -> None:  # noqa: B027 - most have nothing to learn
        """Handle a message from the operator."""


class ClockShedder(TupleShedder):
    """Estimates when the operator will be done with all that was let through, and from that how long a new tuple would wait.

    The estimate never lags behind the real clock: an idle operator has waited, and its waiting is not work done ahead.

    References
    ----------
    Rivetti, Anceaume, Busnel, Querzoni and Sericola, *Load-Aware Shedding in Stream Processing Systems* (LAS), 2016,
    listing III.2.
    """

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.clock_s = 0.0
        self._request_s: float | None = None

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Drop the tuple if letting it wait would violate the constraint (LAS, listing III.2, lines 18 to 28)."""
        q_s = self.advance(elapsed_s)
        if self.constraint.is_violated(q_s):
            return True
        self.constraint.add(q_s)
        self.clock_s += self.cost_s(key)
        return False

    def advance(self, elapsed_s: float) -> float:
        """Move the estimated clock up to now, and return how long a tuple that arrives now would wait."""
        self.clock_s = max(self.clock_s, elapsed_s)
        return self.clock_s - elapsed_s

    def request(self) -> float | None:
        """Return the estimated clock if the tuple shall ask the operator for the true one, else ``None``."""
        return self._request_s

    def receive(self, message: Matrices | Sync) -> None:
        """Use new matrices, or correct the clock."""
        if isinstance(message, Sync):
            self.clock_s += message.delta_s
        else:
            self.learn(message.sketch)

    def learn(self, sketch: CostSketch) -> None:
        """Use what the operator has learned."""

    @abstractmethod
    def cost_s(self, key: int) -> float:
        """Return what a tuple with this key should cost."""
