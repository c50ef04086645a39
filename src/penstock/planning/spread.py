"""Spreads: how far apart the sample rates of a FIT table lie."""

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

_MAX_SAMPLES = 1_000_000


class Spread(Protocol):
    """Chooses the sample rates along each dimension of a table."""

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:
        """Return ascending rates from 0 to the limit, for each dimension.

        Parameters
        ----------
        limits
            The greatest feasible rate along each dimension.
        qualities
            The weighted output tuples per tuple, for each dimension.
        dimensions
            The number of dimensions in the whole network.
        """

    def margin(self, dimensions: int) -> float:
        """Return how far below the boundary the best sample for some rates may lie, as a share of the feasible rate."""


@dataclass(frozen=True, slots=True)
class Geometric:
    """Each sample is ``1 - step`` times the next, so the relative error is at most ``step`` (Staying FIT, section 6.2.1).

    Geometric samples never reach 0. ``least`` is the score that may be lost along one dimension. Below the rate at which a step
    is worth ``least``, the samples are equally spaced down to 0. That takes a third fewer samples than geometric steps down to
    a sample worth ``least``.

    Examples
    --------
    >>> Geometric(0.5, least=0.125, total=0.6).samples([1.0], [1.0])
    [array([0.   , 0.125, 0.25 , 0.5  , 1.   ])]
    """

    step: float
    least: float
    total: float
    """The total relative error, including the loss near 0 and later roundings."""

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - included in ``least``
        """Return samples that are geometric at high rates and equally spaced near 0."""
        return [self._samples_along(limit, quality) for limit, quality in zip(limits, qualities, strict=True)]

    def _samples_along(self, limit: float, quality: float) -> Vector:
        if quality <= 0.0 or limit <= 0.0:
            return np.zeros(1)
        equal_step = self.least / quality
        turn = min(limit, equal_step / self.step)
        exact_count = math.log(limit / turn) / -math.log1p(-self.step)
        _check_count(exact_count)
        count = max(0, math.ceil(exact_count - 1e-9))
        upper = limit * (1.0 - self.step) ** np.arange(count - 1, -1, -1.0)
        lowest = upper[0] if count else limit * (1.0 + 1e-9)
        lower = _multiples(turn, equal_step)
        return np.concatenate([lower[lower < lowest * (1.0 - 1e-9)], upper]) if count else np.append(lower[lower < limit], limit)

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - the same for any number
        """Return the total error."""
        return self.total


@dataclass(frozen=True, slots=True)
class Anchored(Geometric):
    """Geometric samples that do not move when the limits change, so that a recomputed table keeps most of its entries.

    All samples are powers of ``1 - step``, and near 0 multiples of a power of 2, times the unit of the dimension. Nodes whose
    units stand for the same rate upstream have samples in common there, so their combined table is hardly larger than each.

    Examples
    --------
    >>> Anchored(0.5, least=0.125, total=0.6).samples([1.0, 1.3], [1.0, 1.0])
    [array([0.   , 0.125, 0.25 , 0.5  , 1.   ]), array([0.   , 0.125, 0.25 , 0.5  , 1.   , 2.   ])]
    """

    units: tuple[float, ...] = ()
    """The unit of each dimension; 1 by default."""

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - included in ``least``
        """Return samples that are geometric at high rates and equally spaced near 0."""
        units = self.units or (1.0,) * len(limits)
        return [
            self._samples_along(limit / unit, quality * unit) * unit
            for limit, quality, unit in zip(limits, qualities, units, strict=True)
        ]

    def _samples_along(self, limit: float, quality: float) -> Vector:
        """Start at the smallest power of ``1 - step`` that is at least the limit."""
        if quality <= 0.0 or limit <= 0.0:
            return np.zeros(1)
        ratio = 1.0 - self.step
        first = math.floor(math.log(limit) / math.log(ratio) + 1e-9)
        equal_step = 2.0 ** math.floor(math.log2(self.least / quality))
        last = max(first, math.floor(math.log(equal_step / self.step) / math.log(ratio) + 1e-9))
        _check_count(last - first)
        upper = ratio ** np.arange(last, first - 1, -1.0)
        lower = _multiples(upper[0], equal_step)
        return np.concatenate([lower[lower < upper[0] * (1.0 - 1e-9)], upper])


@dataclass(frozen=True, slots=True)
class Steps:
    """Equal steps, each a share of the greatest feasible rate: the grid behind the counts in table 3 of Staying FIT.

    It does not bound the relative error.
    """

    step: float = 0.1

    def __post_init__(self) -> None:
        check_epsilon(self.step)

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - the same for any
        """Return multiples of the step along each dimension, not sums of steps, which would accumulate rounding errors."""
        count = math.floor(1.0 / self.step + 1e-9)
        return [limit * self.step * np.arange(count + 1, dtype=np.float64) for limit in limits]

    def margin(self, dimensions: int) -> float:
        """Return one step per dimension, and at least a half, because the paper counts down to half of the capacity."""
        return min(1.0, max(0.5, dimensions * self.step))


@dataclass(frozen=True, slots=True)
class AbsoluteError:
    """Steps of ``error / (m * quality)``, so that the score is at most ``error`` below the best.

    From Dealing with Overload in Distributed Stream Processing Systems (Tatbul, Zdonik), section 3.2. The error is in weighted
    tuples per second, so it may be large relative to a small score. It may be exceeded where streams merge on the way to a leaf,
    which the paper does not consider.
    """

    error: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.error) and self.error > 0):
            raise PenstockError(f"the absolute error must be positive and finite, got {self.error!r}")

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:
        """Return equal steps, smaller along dimensions where a tuple is worth more."""
        return [
            _multiples(limit, self.error / (max(dimensions, len(limits)) * quality)) if quality > 0 else np.zeros(1)
            for limit, quality in zip(limits, qualities, strict=True)
        ]

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - no sample is excluded
        """Return 1, because any sample may be the best for some rates."""
        return 1.0


@dataclass(frozen=True, slots=True)
class TableSize:
    """At most ``entries`` combinations of samples, with the same error along all dimensions.

    From Dealing with Overload in Distributed Stream Processing Systems (Tatbul, Zdonik), section 3.2. Dimension i has
    ``B_i = R_i / s_i + 1`` samples, and ``s_i * quality_i`` is the same error t for all dimensions. The smallest t is used for
    which the product of the ``B_i`` is at most ``entries``.

    Examples
    --------
    >>> [samples.size for samples in TableSize(50).samples([1.0, 2.0], [1.0, 1.0])]
    [5, 10]
    """

    entries: int

    def __post_init__(self) -> None:
        if self.entries < 1:
            raise PenstockError(f"the size of a table must be positive, got {self.entries}")

    def samples(self, limits: Sequence[float], qualities: Sequence[float], dimensions: int = 1) -> list[Vector]:  # noqa: ARG002 - the size is per table
        """Return equal steps, as small as the size allows."""
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

    def margin(self, dimensions: int) -> float:  # noqa: ARG002 - no sample is excluded
        """Return 1, because any sample may be the best for some rates."""
        return 1.0


def _check_count(samples: float) -> None:
    if not samples <= _MAX_SAMPLES:
        raise PenstockError(f"{samples:.3g} samples along one dimension are too many: use a larger epsilon, or the method exact")


def _multiples(limit: float, step: float) -> Vector:
    """Return 0, step, 2 step and so on up to the limit. Multiples, because a sum of steps would drift past the limit."""
    _check_count(limit / step)
    multiples: Vector = step * np.arange(math.floor(limit / step + 1e-9) + 1, dtype=np.float64)
    return multiples
