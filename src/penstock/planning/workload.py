"""Workloads: probability distributions of the input rates, for Solver-W."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError

__all__ = ["Empirical", "Exponential", "Marginal", "Workload"]


class Workload(Protocol):
    """A probability distribution of the input rates."""

    def mass(self, lower: Sequence[float], upper: Sequence[float]) -> float:
        """Return the probability of a box of rates; a box that ends at the limit of an input includes all rates above it."""


class Exponential:
    """Independent exponentially distributed rates, each with its own mean.

    Staying FIT calls the parameter lambda and has higher rates for a larger lambda (section 8.2.2), so it is the mean and not its
    inverse.

    Examples
    --------
    >>> round(Exponential([2.0], [10.0]).mass([0.0], [2.0]), 3)
    0.632
    """

    def __init__(self, means: Sequence[float], limits: Sequence[float]) -> None:
        if len(means) != len(limits):
            raise PenstockError(f"a workload needs a mean for each of {len(limits)} inputs, got {len(means)}")
        for mean in means:
            if not (math.isfinite(mean) and mean > 0):
                raise PenstockError(f"the mean of an exponential workload must be positive and finite, got {mean!r}")
        self._means, self._limits = tuple(means), tuple(limits)

    def mass(self, lower: Sequence[float], upper: Sequence[float]) -> float:
        """Return the product of the probabilities along each dimension."""
        probability = 1.0
        for low, high, mean, limit in zip(lower, upper, self._means, self._limits, strict=True):
            above = 0.0 if high >= limit else math.exp(-high / mean)
            probability *= math.exp(-low / mean) - above
        return probability


class Empirical:
    """Recorded rates. Each sample, one rate per input, has the same probability.

    Examples
    --------
    >>> Empirical(np.array([[1.0, 2.0], [5.0, 5.0]]), [10.0, 10.0]).mass([0.0, 0.0], [3.0, 3.0])
    0.5
    """

    def __init__(self, samples: NDArray[np.float64], limits: Sequence[float]) -> None:
        if samples.ndim != 2 or not samples.size or samples.shape[1] != len(limits):
            raise PenstockError(
                f"a workload needs samples with a rate for each of {len(limits)} inputs, got shape {samples.shape}"
            )
        if not np.all(np.isfinite(samples)) or np.any(samples < 0):
            raise PenstockError("a workload's rates must be finite and not negative")
        self._limits = np.asarray(limits, dtype=np.float64)
        self._samples = np.minimum(samples, self._limits)

    def mass(self, lower: Sequence[float], upper: Sequence[float]) -> float:
        """Return the share of the samples in the box."""
        high = np.asarray(upper)
        below = (self._samples < high) | (high >= self._limits)
        return float(np.mean(np.all((self._samples >= np.asarray(lower)) & below, axis=1)))

    @classmethod
    def from_trace(cls, rates: Mapping[str, NDArray[np.float64]], limits: Mapping[str, float]) -> Empirical:
        """Use recorded rates by input, all of the same length; ``limits`` has the inputs in the order of the network."""
        unmatched = sorted(set(rates) ^ set(limits))
        if unmatched:
            raise PenstockError(f"the trace and the network differ in input {unmatched[0]!r}")
        lengths = {len(series) for series in rates.values()}
        if len(lengths) != 1:
            raise PenstockError(f"the rates of the inputs differ in length: {sorted(lengths)}")
        return cls(np.column_stack([rates[name] for name in limits]), list(limits.values()))


class Marginal:
    """A workload of some of the inputs, whatever the rates of the others.

    Examples
    --------
    >>> both = Empirical(np.array([[1.0, 2.0], [5.0, 5.0]]), [10.0, 10.0])
    >>> Marginal(both, [1], [10.0, 10.0]).mass([0.0], [3.0])
    0.5
    """

    def __init__(self, workload: Workload, inputs: Sequence[int], limits: Sequence[float]) -> None:
        self._workload, self._inputs, self._limits = workload, tuple(inputs), tuple(limits)

    def mass(self, lower: Sequence[float], upper: Sequence[float]) -> float:
        """Return the probability of a box that has no sides in the other dimensions."""
        all_lower, all_upper = [0.0] * len(self._limits), list(self._limits)
        for number, low, high in zip(self._inputs, lower, upper, strict=True):
            all_lower[number], all_upper[number] = low, high
        return self._workload.mass(all_lower, all_upper)
