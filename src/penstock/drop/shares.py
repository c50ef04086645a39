"""How one keep probability is shared out: over all rows alike, by priority, or by bucket of cost.

One small class per kind. Each turns a keep into the entries of a gate's table, one per class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.drop.priorities import Priorities, share_out

__all__ = ["BucketModel", "BucketShares", "EqualShare", "PriorityShares", "Shares", "WorkReading"]


@dataclass(slots=True)
class WorkReading:
    """What the rows kept took, timed where they ran."""

    rows: np.ndarray
    """By bucket."""
    seconds: np.ndarray
    """By bucket; zero where rows were only timed together."""
    totals: list[tuple[np.ndarray, np.ndarray, float]]
    """Calls for several rows together: the buckets, the rows of each, and the seconds."""

    @property
    def total_s(self) -> float:
        """The seconds that all rows took."""
        return float(sum(seconds for _, _, seconds in self.totals) if self.totals else self.seconds.sum())

    def add(self, other: WorkReading) -> None:
        """Add what another task measured."""
        self.rows += other.rows
        self.seconds += other.seconds
        self.totals += other.totals


class Shares(ABC):
    """Shares a keep out among classes of rows."""

    names: tuple[str, ...]
    """The names of the classes; empty where they have none."""
    count: int
    """How many classes there are."""
    are_many = False
    """Whether there are so many that a table can't have a keep of each for every slot."""

    @abstractmethod
    def entries(self, keep: float) -> tuple[float, ...]:
        """Return the keep of each class."""

    def update_offered(self, rows: Sequence[float]) -> None:  # noqa: B027 - some kinds learn nothing
        """Learn how many rows of each class a batch had."""

    def update_work(self, work: WorkReading) -> None:  # noqa: B027 - some kinds learn nothing
        """Learn what the rows of a batch took."""

    def put_in_force(self, entries: Sequence[float]) -> None:  # noqa: B027 - some kinds learn nothing
        """Take note that these entries hold from now on."""

    def warn(self, offered: Sequence[int]) -> str | None:  # noqa: ARG002 - only some kinds have something to warn of
        """Return what the user should know about the rows of a batch, in one line."""
        return None


class EqualShare(Shares):
    """All rows alike.

    >>> EqualShare().entries(0.5)
    (0.5,)
    """

    names = ("all",)
    count = 1

    def entries(self, keep: float) -> tuple[float, ...]:
        """Return the keep itself."""
        return (float(keep),)


class PriorityShares(Shares):
    """By weight, cost and floor of a row's class; how many rows each class has is learnt, older batches counting less.

    >>> shares = PriorityShares(Priorities("tier", {"gold": 4, "bronze": 1}))
    >>> shares.update_offered([100, 100, 0])
    >>> shares.entries(0.5)
    (0.8, 0.2, 0.2)
    """

    def __init__(self, priorities: Priorities) -> None:
        self.priorities = priorities
        self.names = priorities.names
        self.count = len(self.names)
        self._offered = np.zeros(self.count)

    def entries(self, keep: float) -> tuple[float, ...]:
        """Return the keep of each class; before the first batch all classes count as equally frequent."""
        offered = self._offered if self._offered.any() else np.ones(self.count)
        return tuple(float(value) for value in share_out(keep, self.priorities, offered))

    def update_offered(self, rows: Sequence[float]) -> None:
        """Learn how many rows of each class a batch had."""
        self._offered = 0.5 * self._offered + 0.5 * np.asarray(rows, dtype=np.float64)

    def warn(self, offered: Sequence[int]) -> str | None:
        """Return a line if rows came whose class nobody named."""
        if not offered[-1] or self.priorities.names_others:
            return None
        named = ", ".join(str(value) for value in self.priorities.values)
        return (
            f"rows of a class without a weight (known: {named}) are shed as '(other)' with weight "
            f"{self.priorities.weights[-1]:g}; name the class, or give None a weight"
        )


class BucketModel(Protocol):
    """Knows what rows of each bucket cost, and shares a keep out by it."""

    keeps: np.ndarray
    """What is in force."""

    def share_out(self, keep: float) -> np.ndarray:
        """Return the keep of each bucket."""

    def update(self, kept: np.ndarray, durations_s: np.ndarray, keeps: np.ndarray) -> None:
        """Learn from rows timed one by one."""

    def update_from_total(self, kept: np.ndarray, total_s: float) -> None:
        """Learn from the time that rows of several buckets took together."""

    def update_offered(self, rows: Sequence[float]) -> None:
        """Learn how many rows of each bucket a batch had."""


class BucketShares(Shares):
    """By bucket of a row's key, as a model of costs says."""

    names = ()
    are_many = True

    def __init__(self, model: BucketModel) -> None:
        self._model = model
        self.count = len(model.keeps)

    def entries(self, keep: float) -> tuple[float, ...]:
        """Return the keep of each bucket."""
        return tuple(self._model.share_out(keep).tolist())

    def update_offered(self, rows: Sequence[float]) -> None:
        """Learn how many rows of each bucket a batch had."""
        self._model.update_offered(rows)

    def update_work(self, work: WorkReading) -> None:
        """Learn what the rows of a batch took."""
        if not work.totals:
            self._model.update(work.rows, work.seconds, self._model.keeps)
            return
        for indices, counts, seconds in work.totals:
            rows = np.zeros(self.count)
            rows[indices] = counts
            self._model.update_from_total(rows, seconds)
        self._model.update_offered(work.rows / np.maximum(self._model.keeps, 1e-6))

    def put_in_force(self, entries: Sequence[float]) -> None:
        """Tell the model, which needs the keeps to learn from what comes through."""
        self._model.keeps = np.asarray(entries, dtype=np.float64)
