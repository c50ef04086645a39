"""The shedder's side of LAS, and the shedders that it is compared with (paper 004, listing III.2 and section V)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from penstock.errors import PenstockError
from penstock.las.constraint import Constraint
from penstock.las.countmin import CostSketch
from penstock.las.operator_sketches import Matrices, Sync

__all__ = ["BaseLine", "ClockShedder", "FullKnowledge", "Las", "StrawMan", "TupleShedder"]


class TupleShedder(ABC):
    """Decides tuple by tuple. Time is what has passed since the first tuple, in seconds."""

    @abstractmethod
    def shed(self, key: int, elapsed_s: float) -> bool:
        """Whether to drop a tuple that arrives now."""

    def request(self) -> float | None:
        """What to send with the tuple that was just let through: an estimate of when it will be done, or ``None``."""
        return None

    def receive(self, message: Matrices | Sync) -> None:  # noqa: B027 - most have nothing to learn
        """Take in what the operator says."""


class BaseLine(TupleShedder):
    """Drops a share of the tuples at random, whatever they cost."""

    def __init__(self, share: float, uniform: Callable[[], float]) -> None:
        if not 0.0 <= share <= 1.0:
            raise PenstockError(f"the share to drop must lie in [0, 1], got {share!r}")
        self._share, self._uniform = share, uniform

    def shed(self, key: int, elapsed_s: float) -> bool:  # noqa: ARG002 - it looks at neither
        """Throw a coin."""
        return self._uniform() < self._share


class ClockShedder(TupleShedder):
    """Estimates when the operator will be done with all that was let through, and from that how long a tuple would wait.

    The estimate never lags behind the clock: an operator that ran dry has waited, and what it waited is no work done ahead.
    """

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self.clock_s = 0.0
        self._request_s: float | None = None

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Listing III.2, lines 18 to 28."""
        q_s = self.wait_s(elapsed_s)
        if self.constraint.violated(q_s):
            return True
        self.constraint.enqueued(q_s)
        self.clock_s += self.cost_s(key)
        return False

    def wait_s(self, elapsed_s: float) -> float:
        """How long a tuple that arrives now would wait."""
        self.clock_s = max(self.clock_s, elapsed_s)
        return self.clock_s - elapsed_s

    def request(self) -> float | None:
        """The estimated clock, where the tuple is to ask the operator for the true one."""
        return self._request_s

    def receive(self, message: Matrices | Sync) -> None:
        """Take new matrices, or set the clock right."""
        if isinstance(message, Sync):
            self.clock_s += message.delta_s
        else:
            self.learn(message.sketch)

    def learn(self, sketch: CostSketch) -> None:
        """Take what the operator has learnt."""

    @abstractmethod
    def cost_s(self, key: int) -> float:
        """What the tuple will cost."""


class StrawMan(ClockShedder):
    """LAS with the mean cost for every tuple."""

    def __init__(self, constraint: Constraint, mean_s: float) -> None:
        super().__init__(constraint)
        self._mean_s = mean_s

    def cost_s(self, key: int) -> float:  # noqa: ARG002 - that is the point of it
        """The mean."""
        return self._mean_s


class FullKnowledge(ClockShedder):
    """LAS with the true cost of every tuple."""

    def __init__(self, constraint: Constraint, cost_s: Callable[[int], float]) -> None:
        super().__init__(constraint)
        self._cost_s = cost_s

    def cost_s(self, key: int) -> float:
        """The truth."""
        return self._cost_s(key)


class Las(ClockShedder):
    """Load-Aware Shedding: costs from the operator's sketches, a clock that is set right after each new pair of them.

    Three states (figure 3): NOP lets all through until the first matrices come; SEND has new ones and asks the operator for its
    clock with the next tuple; RUN sheds. The cost is increased by ``1 + epsilon`` against underestimates.
    """

    def __init__(self, constraint: Constraint, sketch: CostSketch | None = None, *, margin: float | None = None) -> None:
        super().__init__(constraint)
        self.sketch = sketch
        self.state: Literal["NOP", "SEND", "RUN"] = "NOP" if sketch is None else "SEND"
        self._margin = margin

    def shed(self, key: int, elapsed_s: float) -> bool:
        """Listing III.2."""
        self._request_s = None
        if self.state == "NOP":
            return False
        if super().shed(key, elapsed_s):
            return True
        if self.state == "SEND":
            self._request_s = self.clock_s
            self.state = "RUN"
        return False

    def learn(self, sketch: CostSketch) -> None:
        """Take new matrices, and ask for the clock with the next tuple."""
        self.sketch = sketch
        self.state = "SEND"

    def cost_s(self, key: int) -> float:
        """W/F of the row with the least F, and a margin."""
        if self.sketch is None:
            raise PenstockError("LAS has no matrices yet")
        margin = self.sketch.epsilon if self._margin is None else self._margin
        return float(self.sketch.estimate([key])[0]) * (1.0 + margin)
