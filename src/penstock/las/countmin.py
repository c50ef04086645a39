"""Count-min sketches: 2-universal hashing, and the pair of matrices that learns what a key costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import PenstockError

__all__ = ["CostSketch", "CountMin", "UniversalHash", "check_share"]

PRIME = (1 << 31) - 1
"""Keys are taken modulo this, so a product of two fits 64 bits: hash anything larger before."""


def check_share(name: str, value: float) -> float:
    """Return a number between 0 and 1, or say what is wrong with it."""
    if not (isinstance(value, int | float) and 0.0 < value < 1.0):
        raise PenstockError(f"{name} must lie in (0, 1), got {value!r}")
    return float(value)


def rows_for(delta: float) -> int:
    """How many rows keep an error's probability at delta: ``ceil(log2(1 / delta))``, four for 0.1 as in paper 004."""
    return max(1, math.ceil(math.log2(1.0 / check_share("delta", delta)) - 1e-12))


def columns_for(epsilon: float) -> int:
    """How many columns keep the error at epsilon: e / epsilon, rounded as the paper's 54 for 0.05."""
    return max(1, round(math.e / check_share("epsilon", epsilon)))


@dataclass(frozen=True, slots=True, eq=False)
class UniversalHash:
    """Rows of functions ``(a * key + b) mod p``, scaled down to the columns (Carter and Wegman): keys meet once in ``columns``.

    p is 2^31 - 1, so its remainder is a fold of the bits, and a product takes the place of the second division.

    >>> UniversalHash.of(2, 8, seed=1).buckets([1, 2, 3]).shape
    (2, 3)
    """

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    columns: int

    @classmethod
    def of(cls, rows: int, columns: int, seed: int = 0) -> UniversalHash:
        """Draw the functions of a seed."""
        rng = np.random.default_rng([seed, 0x1A5])
        return cls(rng.integers(1, PRIME, rows), rng.integers(0, PRIME, rows), columns)

    def buckets(self, keys: ArrayLike) -> NDArray[np.int64]:
        """The column of each key, by row."""
        folded = _folded(np.atleast_1d(np.asarray(keys, dtype=np.int64)))
        found = np.empty((self.a.size, folded.size), dtype=np.int64)
        spare = np.empty_like(folded)
        for row, (a, b) in enumerate(zip(self.a.tolist(), self.b.tolist(), strict=True)):
            value = found[row]
            np.multiply(folded, a, out=value)
            value += b
            for _ in range(2):  # modulo 2^31 - 1: add up the digits of 31 bits
                np.right_shift(value, 31, out=spare)
                value &= PRIME
                value += spare
            value *= self.columns
            value >>= 31
        return found


def _folded(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Any 64 bits as a number below 2^31."""
    bits = keys.view(np.uint64)
    sums = (bits & np.uint64(PRIME)) + ((bits >> np.uint64(31)) & np.uint64(PRIME)) + (bits >> np.uint64(62))
    found: NDArray[np.int64] = ((sums & np.uint64(PRIME)) + (sums >> np.uint64(31))).view(np.int64)
    return found


class CountMin:
    """How often each key came, never too low: above by more than ``epsilon * (m - f)`` with probability delta at most.

    >>> sketch = CountMin(epsilon=0.01, delta=0.01)
    >>> sketch.add([7, 7, 9])
    >>> sketch.estimate([7, 9]).tolist()
    [2.0, 1.0]
    """

    def __init__(self, epsilon: float, delta: float, seed: int = 0) -> None:
        self.hash = UniversalHash.of(rows_for(delta), columns_for(epsilon), seed)
        self.epsilon, self.delta, self.seed = epsilon, delta, seed
        self.counts = np.zeros((self.hash.a.size, self.hash.columns))

    def add(self, keys: ArrayLike, values: ArrayLike = 1.0) -> None:
        """Add values, one a key; a sketch of counts adds ones."""
        buckets = self.hash.buckets(keys)
        given = np.broadcast_to(np.asarray(values, dtype=np.float64), buckets.shape[1:])
        for row, columns in enumerate(buckets):
            np.add.at(self.counts[row], columns, given)

    def estimate(self, keys: ArrayLike) -> NDArray[np.float64]:
        """The least cell of each key."""
        buckets = self.hash.buckets(keys)
        found: NDArray[np.float64] = self.counts[np.arange(buckets.shape[0])[:, None], buckets].min(axis=0)
        return found

    def merge(self, other: CountMin) -> None:
        """Add another sketch of the same functions."""
        if (other.seed, other.epsilon, other.delta) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("sketches of different seed, epsilon or delta can't be merged")
        self.counts += other.counts


class CostSketch:
    """What each key costs, from two count-min matrices with the same functions (paper 004, section III).

    F counts, W adds up durations; ``W / F`` of a cell is the mean cost of the keys that share it. ``estimate`` takes the row
    with the least F, the one with the fewest strangers, as the paper's listing does; ``weighted=True`` the mean over the rows
    weighted by 1/F, which spreads less. The least of W/F over the rows, which the paper's analysis looks at, is no estimate at
    all: it takes the cheapest stranger. Keys that no cell knows cost the mean of all.

    >>> sketch = CostSketch(epsilon=0.01, delta=0.1)
    >>> sketch.add([1, 1, 2], [0.5, 0.5, 4.0])
    >>> sketch.estimate([1, 2]).tolist(), round(float(sketch.estimate([99])[0]), 3)
    ([0.5, 4.0], 1.667)
    """

    def __init__(self, epsilon: float = 0.05, delta: float = 0.1, seed: int = 0) -> None:
        self.epsilon, self.delta, self.seed = check_share("epsilon", epsilon), check_share("delta", delta), seed
        self.hash = UniversalHash.of(rows_for(delta), columns_for(epsilon), seed)
        self.frequency = np.zeros((self.hash.a.size, self.hash.columns))
        self.duration = np.zeros_like(self.frequency)
        self._count, self._total_s = 0.0, 0.0

    @property
    def mean_s(self) -> float | None:
        """The mean cost of a tuple; ``None`` before the first."""
        return self._total_s / self._count if self._count > 0 else None

    def add(self, keys: ArrayLike, durations_s: ArrayLike) -> None:
        """Take in executed tuples. A duration below 0, of a clock that went backwards, counts as 0."""
        buckets = self.hash.buckets(keys)
        taken = np.maximum(np.nan_to_num(np.atleast_1d(np.asarray(durations_s, dtype=np.float64)), nan=0.0, posinf=0.0), 0.0)
        for row, columns in enumerate(buckets):
            np.add.at(self.frequency[row], columns, 1.0)
            np.add.at(self.duration[row], columns, taken)
        self._count += float(taken.size)
        self._total_s += float(taken.sum())

    def estimate(self, keys: ArrayLike, *, weighted: bool = False) -> NDArray[np.float64]:
        """The cost of each key in seconds."""
        buckets = self.hash.buckets(keys)
        mean = self.mean_s or 0.0
        if weighted:
            return self._weighted(buckets, mean)
        rows = np.arange(buckets.shape[0])[:, None]
        counts, durations = self.frequency[rows, buckets], self.duration[rows, buckets]
        least = np.argmin(counts, axis=0)
        places = np.arange(counts.shape[1])
        chosen, taken = counts[least, places], durations[least, places]
        nearest: NDArray[np.float64] = np.divide(taken, chosen, out=np.full(chosen.shape, mean), where=chosen > 0)
        return nearest

    def _weighted(self, buckets: NDArray[np.int64], mean: float) -> NDArray[np.float64]:
        known = self.frequency > 0
        shares = np.divide(1.0, self.frequency, out=np.zeros_like(self.frequency), where=known)
        costs = shares * np.divide(self.duration, self.frequency, out=np.zeros_like(self.frequency), where=known)
        total, cost = np.zeros(buckets.shape[1]), np.zeros(buckets.shape[1])
        for row, columns in enumerate(buckets):
            total += shares[row].take(columns)
            cost += costs[row].take(columns)
        found: NDArray[np.float64] = np.divide(cost, total, out=np.full(total.shape, mean), where=total > 0)
        return found

    def decay(self, factor: float) -> None:
        """Forget a share of what was learnt, so that a changed cost shows sooner."""
        self.frequency *= factor
        self.duration *= factor
        self._count *= factor
        self._total_s *= factor

    def reset(self) -> None:
        """Forget all."""
        self.decay(0.0)

    def merge(self, other: CostSketch) -> None:
        """Add what another one has learnt, with the same functions."""
        if (other.seed, other.epsilon, other.delta) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("sketches of different seed, epsilon or delta can't be merged")
        self.frequency += other.frequency
        self.duration += other.duration
        self._count += other._count
        self._total_s += other._total_s

    def copy(self) -> CostSketch:
        """Return one of its own."""
        found = CostSketch(self.epsilon, self.delta, self.seed)
        found.frequency, found.duration = self.frequency.copy(), self.duration.copy()
        found._count, found._total_s = self._count, self._total_s
        return found

    def snapshot(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
            "count": self._count,
            "total_s": self._total_s,
            "frequency": self.frequency.tolist(),
            "duration": self.duration.tolist(),
        }

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Take the state of a snapshot and return the sketch."""
        if (state["seed"], state["epsilon"], state["delta"]) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("the sketch was stored with another seed, epsilon or delta")
        self._count, self._total_s = float(state["count"]), float(state["total_s"])
        self.frequency = np.array(state["frequency"], dtype=np.float64).reshape(self.frequency.shape)
        self.duration = np.array(state["duration"], dtype=np.float64).reshape(self.duration.shape)
        return self
