"""What a controller sees, what it answers, and what it must be able to do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

from penstock.errors import PenstockError

__all__ = ["Controller", "Decision", "GateCount", "Observation", "SHORTEST_S"]

SHORTEST_S = 1e-6
"""The shortest time to divide by: a clock that moved by less stood still, and a rate over it would be anything."""


@dataclass(frozen=True, slots=True)
class GateCount:
    """Rows that reached one gate in one batch, and how many of them it let through."""

    offered: int
    kept: int

    def __post_init__(self) -> None:
        if not 0 <= self.kept <= self.offered:
            raise PenstockError(f"kept must lie between 0 and offered, got kept={self.kept} of offered={self.offered}")

    @property
    def shed(self) -> int:
        """Rows dropped: offered = kept + shed, always."""
        return self.offered - self.kept


@dataclass(frozen=True, slots=True)
class Observation:
    """One control period, that is one micro-batch, as the engine saw it.

    Times are seconds since the epoch. ``upcoming_rows`` is the size of the batch that is about to run, where the engine
    knows it before it starts (in ``foreachBatch`` it does); ``None`` means unknown, zero means zero rows.
    """

    batch_id: int
    start_s: float
    end_s: float
    gates: Mapping[str, GateCount] = field(default_factory=lambda: MappingProxyType({}))
    keep: float = 1.0
    """The keep probability that was in force."""
    busy_s: float = 0.0
    """The part of the batch spent on rows, without planning and checkpointing."""
    mean_arrival_s: float | None = None
    """Mean arrival time of the rows kept."""
    backlog_rows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Rows that wait when the period ends, by source or queue, with those that came in it; empty where that is not known."""
    upcoming_rows: int | None = None
    completed: int | None = None
    """Rows that left the system, put out or discarded; ``None`` where those are the rows kept, as in a micro-batch."""
    cold: bool = False
    """The first batch of a run: it pays for code generation and warm-up, and says little about the cost of rows."""
    waited_s: float | None = None
    """How long the oldest of the upcoming rows can have waited, where the engine knows: no time, if it was idle."""
    taken_s: float | None = None
    """When the observation was taken, where that is later than the end: at the start of the upcoming batch."""

    def __post_init__(self) -> None:
        for name in ("gates", "backlog_rows"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def offered(self) -> int:
        """Rows that reached the gates."""
        return sum(count.offered for count in self.gates.values())

    @property
    def kept(self) -> int:
        """Rows that passed the gates."""
        return sum(count.kept for count in self.gates.values())

    @property
    def period_s(self) -> float:
        """Length of the batch; zero where the clock stood still or went back."""
        return max(0.0, self.end_s - self.start_s)

    @property
    def delay_s(self) -> float | None:
        """Mean delay of the batch: its end minus the mean arrival of what it kept."""
        return None if self.mean_arrival_s is None else max(0.0, self.end_s - self.mean_arrival_s)


@dataclass(frozen=True, slots=True)
class Decision:
    """The keep probability to put in force; ``None`` means no opinion yet: leave it as it is."""

    keep: float | None = None
    full_rows: float | None = None
    """Rows of a batch up to which ``keep`` holds; of later ones a bounded gate lets fewer and fewer through."""
    note: str | None = None
    """Something that the user should know, in one line; it goes to the log and the report."""

    def __post_init__(self) -> None:
        if self.keep is not None and not (math.isfinite(self.keep) and 0.0 <= self.keep <= 1.0):
            raise PenstockError(f"keep must lie in [0, 1], got {self.keep}")
        if self.full_rows is not None and not (math.isfinite(self.full_rows) and self.full_rows >= 0.0):
            raise PenstockError(f"full_rows must not be negative, got {self.full_rows}")


class Controller(ABC):
    """When and how much to shed: an observation in, a decision out.

    A controller reads no clock and does no input or output, so that a simulator, a test or Spark can drive it. Its
    whole memory is in ``snapshot``: a controller restored from a snapshot goes on as if it had never stopped.
    """

    def __init__(self, delay_target_s: float) -> None:
        if not (math.isfinite(delay_target_s) and delay_target_s > 0):
            raise PenstockError(f"delay_target_s must be positive, got {delay_target_s}")
        self.delay_target_s = delay_target_s

    @abstractmethod
    def update(self, observation: Observation) -> Decision:
        """Take in one period and say what to keep in the next."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> Self:  # noqa: ARG002 - a controller without memory has nothing to restore
        """Take the state of a snapshot and return the controller."""
        return self
