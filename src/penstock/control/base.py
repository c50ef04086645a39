"""What every controller gets, answers and must be able to do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self

from penstock.errors import PenstockError

__all__ = ["AgeRule", "Controller", "Decision", "GateCount", "Observation", "SHORTEST_S", "check_target", "describe_model"]

SHORTEST_S = 1e-6
"""The shortest time to divide by: a clock that moved by less stood still, and a rate over it would be anything."""


@dataclass(frozen=True, slots=True)
class GateCount:
    """Rows that one gate was offered in one batch, and how many of them it kept."""

    offered: int
    kept: int

    def __post_init__(self) -> None:
        if not 0 <= self.kept <= self.offered:
            raise PenstockError(f"kept must lie between 0 and offered, got kept={self.kept} of offered={self.offered}")

    @property
    def shed(self) -> int:
        """Rows dropped: ``offered = kept + shed``, always."""
        return self.offered - self.kept


@dataclass(frozen=True, slots=True)
class Observation:
    """One control period as the engine measured it. On Spark a period is a micro-batch.

    Times are seconds since the epoch. ``None`` means unknown; zero means zero.

    Examples
    --------
    >>> batch = Observation(batch_id=7, start_s=100.0, end_s=101.5, gates={"in": GateCount(offered=400, kept=300)})
    >>> batch.period_s, batch.offered, batch.kept
    (1.5, 400, 300)
    """

    batch_id: int
    start_s: float
    end_s: float
    gates: Mapping[str, GateCount] = field(default_factory=lambda: MappingProxyType({}))
    keep: float = 1.0
    """The keep probability that was in force during the period."""
    busy_s: float = 0.0
    """Seconds spent on rows, without planning and checkpointing."""
    mean_arrival_s: float | None = None
    """Mean arrival time of the kept rows."""
    backlog_rows: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Rows that wait at the end of the period, by source or queue; empty if that is unknown."""
    upcoming_rows: int | None = None
    """Size of the batch that is about to run, if the engine knows it before the batch starts, as in ``foreachBatch``."""
    completed: int | None = None
    """Rows that left the system, as output or filtered out; ``None`` if those are the kept rows, as in a micro-batch."""
    work_s: float | None = None
    """Seconds that the kept rows took, if they are timed one by one or in groups."""
    cold: bool = False
    """Whether the batch pays for code generation and warm-up, and so says little about the cost of rows."""
    waited_s: float | None = None
    """The longest time that an upcoming row can have waited: 0 if the engine was idle before."""
    taken_s: float | None = None
    """When the observation was taken, if later than ``end_s``: at the start of the upcoming batch."""
    upcoming_cold: bool = False
    """Whether the upcoming batch is the first of a run, on an engine that may have to warm up."""
    has_ages: bool = False
    """Whether the gates of the upcoming batch can tell how long ago a row arrived."""
    expired: int = 0
    """Rows that the gates shed because they arrived too long ago."""
    mean_expired_arrival_s: float | None = None
    """Mean arrival time of those."""
    left_rows: int | None = None
    """Rows that the period left in its sources when it was planned, because a cap did not let them in; ``None`` if unknown."""
    has_bound: bool = True
    """Whether something bounds a batch whose size is not known before it runs; if not, nothing may be tried there."""
    row_units: float = 1.0
    """What one row counts in all of these numbers; microseconds of work where a controller is shown work instead of rows."""

    def __post_init__(self) -> None:
        for name in ("gates", "backlog_rows"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    @property
    def offered(self) -> int:
        """Rows offered to all gates."""
        return sum(count.offered for count in self.gates.values())

    @property
    def kept(self) -> int:
        """Rows kept by all gates."""
        return sum(count.kept for count in self.gates.values())

    @property
    def period_s(self) -> float:
        """Length of the period in seconds; zero if the clock stood still or went backwards."""
        return max(0.0, self.end_s - self.start_s)

    @property
    def fresh(self) -> int:
        """Rows offered that had not expired."""
        return max(0, self.offered - self.expired)

    @property
    def mean_offered_arrival_s(self) -> float | None:
        """Mean arrival time of all rows offered: of those kept for the fresh ones, and of the expired ones."""
        if self.mean_arrival_s is None or not self.fresh:
            return self.mean_expired_arrival_s
        if self.mean_expired_arrival_s is None or not self.expired:
            return self.mean_arrival_s
        expired_s = self.expired * (self.mean_expired_arrival_s - self.mean_arrival_s)
        return self.mean_arrival_s + expired_s / (self.fresh + self.expired)

    @property
    def delay_s(self) -> float | None:
        """Mean delay of the kept rows: from their arrival to the end of the period."""
        return None if self.mean_arrival_s is None else max(0.0, self.end_s - self.mean_arrival_s)


@dataclass(frozen=True, slots=True)
class AgeRule:
    """What to keep of the upcoming batch by age, at gates that can tell it; it replaces the decision's keep there.

    >>> AgeRule(after_s=100.0, fresh=0.5).older
    0.0
    """

    after_s: float
    """Rows that arrived at this time or later are fresh."""
    fresh: float
    """The keep probability of fresh rows."""
    older: float = 0.0
    """The keep probability of all others."""

    def __post_init__(self) -> None:
        for name, keep in (("fresh", self.fresh), ("older", self.older)):
            if not (math.isfinite(keep) and 0.0 <= keep <= 1.0):
                raise PenstockError(f"the keep of {name} rows must lie in [0, 1], got {keep}")
        if math.isnan(self.after_s):
            raise PenstockError("after_s must be a time, got nan")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a controller wants.

    Examples
    --------
    >>> Decision(keep=0.25).keep
    0.25
    >>> Decision(keep=1.5)
    Traceback (most recent call last):
    penstock.errors.PenstockError: keep must lie in [0, 1], got 1.5
    """

    keep: float | None = None
    """The keep probability to put in force; ``None`` means no opinion yet: leave it as it is."""
    full_rows: float | None = None
    """Rows of a batch up to which ``keep`` holds; beyond them a bounded gate keeps fewer and fewer."""
    note: str | None = None
    """Something that the user should know, in one line, for the log and the report."""
    gates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The keep of single gates by name, if theirs differs."""
    age: AgeRule | None = None
    """What to keep by age instead, at gates that can tell it; by batch only."""
    reachable_s: float | None = None
    """The delay that is held instead, if the target can't be reached whatever is shed."""

    def __post_init__(self) -> None:
        if self.keep is not None and not (math.isfinite(self.keep) and 0.0 <= self.keep <= 1.0):
            raise PenstockError(f"keep must lie in [0, 1], got {self.keep}")
        for name, keep in self.gates.items():
            if not (math.isfinite(keep) and 0.0 <= keep <= 1.0):
                raise PenstockError(f"the keep of gate {name!r} must lie in [0, 1], got {keep}")
        if self.full_rows is not None and not (math.isfinite(self.full_rows) and self.full_rows >= 0.0):
            raise PenstockError(f"full_rows must be finite and not negative, got {self.full_rows}")


class Controller(ABC):
    """When to shed, and how much: an observation in, a decision out.

    A controller reads no clock and does no input or output, so a simulator, a test or Spark can drive it. Its whole memory is
    in ``snapshot``: restored from one, it goes on as if it had never stopped.

    Parameters
    ----------
    delay_target_s
        The delay to hold, in seconds.

    Examples
    --------
    A controller of your own needs ``update``, and a snapshot if it remembers anything:

    >>> class Half(Controller):
    ...     def update(self, observation: Observation) -> Decision:
    ...         return Decision(keep=0.5)
    >>> Half(delay_target_s=2.0).update(Observation(batch_id=0, start_s=0.0, end_s=1.0)).keep
    0.5
    """

    sheds: ClassVar[bool] = True
    """Whether it ever sheds: for one that never does, nothing else may, however long a batch takes."""

    def __init__(self, delay_target_s: float) -> None:
        self.delay_target_s = check_target(delay_target_s)

    @abstractmethod
    def update(self, observation: Observation) -> Decision:
        """Learn from one period, and decide what to keep in the next."""

    def start(self) -> Decision:
        """Return what holds before the first observation of a run. By arrival only: by batch, the first batch is observed."""
        return Decision()

    def change_target(self, delay_target_s: float) -> None:
        """Hold another delay from the next decision on."""
        self.delay_target_s = check_target(delay_target_s)

    def learnt(self) -> dict[str, float]:
        """Return what it knows of its engine, for people: ``cost_s``, ``overhead_s``, ``batch_time_s``, what of them it has.

        A controller with a ``model`` of both costs and a ``batch_time_s`` has nothing to do.
        """
        model, batch_time_s = getattr(self, "model", None), getattr(self, "batch_time_s", None)
        return {} if model is None or batch_time_s is None else describe_model(model, batch_time_s)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> Self:  # noqa: ARG002 - a controller without memory has nothing to restore
        """Continue from a snapshot, and return the controller."""
        return self


class _BatchModel(Protocol):
    @property
    def cost_s(self) -> float | None: ...

    @property
    def overhead_s(self) -> float | None: ...


def describe_model(model: _BatchModel, batch_time_s: float) -> dict[str, float]:
    """Return what a model of batches has learnt, and the time that a batch may take, with what is known of it."""
    values = {"cost_s": model.cost_s, "overhead_s": model.overhead_s, "batch_time_s": batch_time_s}
    return {name: float(f"{value:.6g}") for name, value in values.items() if value is not None}


def check_target(delay_target_s: float) -> float:
    """Return a delay target, or raise if it is none."""
    if not (math.isfinite(delay_target_s) and delay_target_s > 0):
        raise PenstockError(f"delay_target_s must be positive, got {delay_target_s}")
    return delay_target_s
