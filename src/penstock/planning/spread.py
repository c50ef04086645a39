"""How far apart the sample rates of a table lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.errors import PenstockError
from penstock.planning.flows import Vector
from penstock.planning.plan import check_epsilon

__all__ = ["AbsoluteError", "Anchored", "Geometric", "Spread", "Steps", "TableSize"]


_MOST_SAMPLES = 1_000_000


class Spread(Protocol):
    """Chooses sample rates along each dimension."""

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:
        """For each dimension, rates from 0 up to its limit, rising.

        ``limits`` are the greatest rates that are feasible, ``qualities`` what a tuple is worth at the outputs, ``dimensions``
        how many there are in the whole network.
        """

    def margin(self, dimensions: int) -> float:
        """How far below the boundary a sample may lie that is the best for some rates, as a share."""


@dataclass(frozen=True, slots=True)
class Geometric:
    """Paper 000, section 6.2.1: each sample is ``1 - step`` times the one above it, so the relative error is at most ``step``.

    That never reaches 0. So from where a step is worth no more than ``least``, the score that may be lost along one dimension,
    down to 0 the steps are equal: a third fewer samples than going on until a sample itself is worth that little.

    >>> Geometric(0.5, least=0.125, total=0.6).samples([1.0], [1.0])
    [array([0.   , 0.125, 0.25 , 0.5  , 1.   ])]
    """

    step: float
    least: float
    total: float
    """The whole relative error that it may come to, with what is lost near 0 and with later roundings."""

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - ``least`` has them
        """Geometric along each dimension, then equal."""
        return [self._along(limit, quality) for limit, quality in zip(limits, qualities, strict=True)]

    def _along(self, limit: float, quality: float) -> Vector:
        if quality <= 0.0 or limit <= 0.0:
            return np.zeros(1)
        equal = self.least / quality
        turn = min(limit, equal / self.step)
        wanted = math.log(limit / turn) / -math.log1p(-self.step)
        _check_count(wanted)
        count = max(0, math.ceil(wanted - 1e-9))
        upper = limit * (1.0 - self.step) ** np.arange(count - 1, -1, -1.0)
        lowest = upper[0] if count else limit * (1.0 + 1e-9)
        lower = _multiples(turn, equal)
        return np.concatenate([lower[lower < lowest * (1.0 - 1e-9)], upper]) if count else np.append(lower[lower < limit], limit)

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - does not depend on them
        """As far as the whole error."""
        return self.total


@dataclass(frozen=True, slots=True)
class Anchored(Geometric):
    """The same with samples that stay where they are when the limits change: a table made again has most of its entries still.

    >>> Anchored(0.5, least=0.125, total=0.6).samples([1.0, 1.3], [1.0, 1.0])
    [array([0.   , 0.125, 0.25 , 0.5  , 1.   ]), array([0.   , 0.125, 0.25 , 0.5  , 1.   , 2.   ])]
    """

    def _along(self, limit: float, quality: float) -> Vector:
        """From the least power of the step that is nowhere below the limit; each a power itself, to the last digit."""
        if quality <= 0.0 or limit <= 0.0:
            return np.zeros(1)
        ratio = 1.0 - self.step
        top = ratio ** math.floor(math.log(limit) / math.log(ratio) + 1e-9)
        found = Geometric(self.step, self.least, self.total).samples([top], [quality])[0]
        turn = min(top, self.least / quality / self.step)
        powers = np.round(np.log(np.maximum(found, 1e-300)) / math.log(ratio))
        return np.where(found >= turn * (1.0 - 1e-9), ratio**powers, found)


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps of a share of the greatest feasible rate: the grid behind the counts of paper 000's table 3.

    It does not keep a relative error.
    """

    step: float = 0.1

    def __post_init__(self) -> None:
        check_epsilon(self.step)

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - all alike
        """Equal steps along each dimension; whole multiples, not sums, so that no digit drifts."""
        count = math.floor(1.0 / self.step + 1e-9)
        return [limit * self.step * np.arange(count + 1, dtype=np.float64) for limit in limits]

    def margin(self, dimensions: int) -> float:
        """Every dimension may be a step too low; the paper's counts go down to half of the capacity in any case."""
        return min(1.0, max(0.5, dimensions * self.step))


@dataclass(frozen=True, slots=True)
class AbsoluteError:
    """Paper 003, section 3.2: steps of ``error / (m * quality)``, so that the score is at most ``error`` too low.

    The error is in tuples a second, not a share: relative to a small score it may be anything. Where streams merge on the way to
    a leaf it may be exceeded: the paper has no merges.
    """

    error: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.error) and self.error > 0):
            raise PenstockError(f"the absolute error must be positive and finite, got {self.error!r}")

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:
        """Equal steps, smaller where a tuple is worth more."""
        return [
            _multiples(limit, self.error / (max(dimensions, len(limits)) * quality)) if quality > 0 else np.zeros(1)
            for limit, quality in zip(limits, qualities, strict=True)
        ]

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - nothing is excluded
        """Any point may be the best for some rates."""
        return 1.0


@dataclass(frozen=True, slots=True)
class TableSize:
    """Paper 003, section 3.2: at most ``entries`` combinations, with the same error along all dimensions.

    With ``B_i = R_i / s_i + 1`` samples along dimension i and ``s_i * quality_i = t`` for all of them, t follows from
    the product of the ``B_i``.

    >>> [samples.size for samples in TableSize(50).samples([1.0, 2.0], [1.0, 1.0])]
    [5, 10]
    """

    entries: int

    def __post_init__(self) -> None:
        if self.entries < 1:
            raise PenstockError(f"the size of a table must be positive, got {self.entries}")

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - a table's own count
        """Equal steps; the largest number of them that fits."""
        worth = [limit * quality for limit, quality in zip(limits, qualities, strict=True)]
        if max(worth, default=0.0) <= 0.0:
            return [np.zeros(1) for _ in limits]

        def size(error: float) -> int:
            return math.prod(math.floor(value / error + 1e-9) + 1 for value in worth)

        low, high = 1e-9 * max(worth, default=1.0) + 1e-300, 2.0 * max(worth, default=1.0) + 1e-300
        for _ in range(200):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if size(middle) > self.entries else (low, middle)
        return [
            _multiples(limit, high / quality) if quality > 0 else np.zeros(1)
            for limit, quality in zip(limits, qualities, strict=True)
        ]

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - nothing is excluded
        """Any point may be the best for some rates."""
        return 1.0


def _check_count(samples: float) -> None:
    if not samples <= _MOST_SAMPLES:
        raise PenstockError(
            f"{samples:.3g} samples along one dimension are too many: take a greater epsilon, or the method exact"
        )


def _multiples(limit: float, step: float) -> Vector:
    """0, step, 2 step and so on up to the limit: multiples, because a sum of steps drifts past the last one."""
    _check_count(limit / step)
    found: Vector = step * np.arange(math.floor(limit / step + 1e-9) + 1, dtype=np.float64)
    return found
