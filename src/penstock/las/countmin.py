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
"""Keys are folded below this number, so that a product of two fits 64 bits."""


def check_share(name: str, value: float) -> float:
    """Return a number between 0 and 1, or raise if it is not one."""
    if not (isinstance(value, int | float) and 0.0 < value < 1.0):
        raise PenstockError(f"{name} must lie in (0, 1), got {value!r}")
    return float(value)


def rows_for(delta: float) -> int:
    """Return how many rows keep an error's probability at delta: ``ceil(log2(1 / delta))``, four for 0.1 as in LAS."""
    return max(1, math.ceil(math.log2(1.0 / check_share("delta", delta)) - 1e-12))


def check_epsilon(value: float) -> float:
    """Return an error of the sketches, or raise if it is not one: from e on there is a single column."""
    if not (isinstance(value, int | float) and 0.0 < value <= math.e):
        raise PenstockError(f"epsilon must lie in (0, e], got {value!r}")
    return float(value)


def columns_for(epsilon: float) -> int:
    """Return how many columns keep the error at epsilon: e / epsilon, rounded to 54 for 0.05 as in LAS."""
    return max(1, round(math.e / check_epsilon(epsilon)))


@dataclass(frozen=True, slots=True, eq=False)
class UniversalHash:
    """Rows of functions ``(a * key + b) mod p``, scaled down to the columns: two keys collide with probability 1/columns.

    p is 2^31 - 1, so the remainder is a fold of the bits, and a product replaces the second division (Carter and Wegman, 1979).

    >>> UniversalHash.of(2, 8, seed=1).buckets([1, 2, 3]).shape
    (2, 3)
    """

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    columns: int

    @classmethod
    def of(cls, rows: int, columns: int, seed: int = 0) -> UniversalHash:
        """Draw the functions from a seed."""
        rng = np.random.default_rng([seed, 0x1A5])
        return cls(rng.integers(1, PRIME, rows), rng.integers(0, PRIME, rows), columns)

    def buckets(self, keys: ArrayLike) -> NDArray[np.int64]:
        """Return the column of each key, by row."""
        folded = _fold(_as_keys(keys))
        columns = np.empty((self.a.size, folded.size), dtype=np.int64)
        spare = np.empty_like(folded)
        for row, (a, b) in enumerate(zip(self.a.tolist(), self.b.tolist(), strict=True)):
            value = columns[row]
            np.multiply(folded, a, out=value)
            value += b
            for _ in range(2):  # modulo 2^31 - 1: add up the digits of 31 bits
                np.right_shift(value, 31, out=spare)
                value &= PRIME
                value += spare
            value *= self.columns
            value >>= 31
        return columns


def _as_keys(keys: ArrayLike) -> NDArray[np.int64]:
    try:
        return np.atleast_1d(np.asarray(keys, dtype=np.int64))
    except (OverflowError, TypeError, ValueError):
        raise PenstockError("keys must be whole numbers from -2^63 to 2^63 - 1") from None


def _fold(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fold any 64 bits into a number below 2^31."""
    bits = keys.view(np.uint64)
    sums = (bits & np.uint64(PRIME)) + ((bits >> np.uint64(31)) & np.uint64(PRIME)) + (bits >> np.uint64(62))
    folded: NDArray[np.int64] = ((sums & np.uint64(PRIME)) + (sums >> np.uint64(31))).view(np.int64)
    return folded


class CountMin:
    """How often each key came: never too low, and too high by more than ``epsilon * (m - f)`` with probability delta at most.

    m is the number of all keys that came, f that of the key itself.

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
        """Add a value per key; by default ones, which counts."""
        buckets = self.hash.buckets(keys)
        broadcast = np.broadcast_to(np.asarray(values, dtype=np.float64), buckets.shape[1:])
        for row, columns in enumerate(buckets):
            np.add.at(self.counts[row], columns, broadcast)

    def estimate(self, keys: ArrayLike) -> NDArray[np.float64]:
        """Return the least cell of each key."""
        buckets = self.hash.buckets(keys)
        least: NDArray[np.float64] = self.counts[np.arange(buckets.shape[0])[:, None], buckets].min(axis=0)
        return least

    def merge(self, other: CountMin) -> None:
        """Add the counts of another sketch with the same functions."""
        if (other.seed, other.epsilon, other.delta) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("sketches of different seed, epsilon or delta can't be merged")
        self.counts += other.counts


class CostSketch:
    """What each key costs, from two count-min matrices with the same functions (LAS, section III).

    F counts, W adds up durations; ``W / F`` of a cell is the mean cost of the keys that share it. ``estimate`` takes the row
    with the least F, the one with the fewest other keys, as the listing of LAS does; with ``weighted=True`` it takes the mean
    over the rows weighted by 1/F, which varies less. The least of W/F over the rows, which the analysis of LAS looks at, is no
    estimate at all: it picks whichever key is cheapest in any cell. Keys that no cell knows cost the mean of all.

    >>> sketch = CostSketch(epsilon=0.01, delta=0.1)
    >>> sketch.add([1, 1, 2], [0.5, 0.5, 4.0])
    >>> sketch.estimate([1, 2]).tolist(), round(float(sketch.estimate([99])[0]), 3)
    ([0.5, 4.0], 1.667)
    """

    def __init__(self, epsilon: float = 0.05, delta: float = 0.1, seed: int = 0) -> None:
        self.epsilon, self.delta, self.seed = check_epsilon(epsilon), check_share("delta", delta), seed
        self.hash = UniversalHash.of(rows_for(delta), columns_for(epsilon), seed)
        self.frequency = np.zeros((self.hash.a.size, self.hash.columns))
        self.duration = np.zeros_like(self.frequency)
        self._count, self._total_s = 0.0, 0.0

    @property
    def mean_s(self) -> float | None:
        """The mean cost of a tuple; ``None`` before the first."""
        return self._total_s / self._count if self._count > 0 else None

    def add(self, keys: ArrayLike, durations_s: ArrayLike) -> None:
        """Learn from executed tuples. A duration below 0, from a clock that went backwards, counts as 0."""
        buckets = self.hash.buckets(keys)
        valid_s = np.maximum(np.nan_to_num(np.atleast_1d(np.asarray(durations_s, dtype=np.float64)), nan=0.0, posinf=0.0), 0.0)
        for row, columns in enumerate(buckets):
            np.add.at(self.frequency[row], columns, 1.0)
            np.add.at(self.duration[row], columns, valid_s)
        self._count += float(valid_s.size)
        self._total_s += float(valid_s.sum())

    def estimate(self, keys: ArrayLike, *, weighted: bool = False) -> NDArray[np.float64]:
        """Return the cost of each key in seconds."""
        buckets = self.hash.buckets(keys)
        mean = self.mean_s or 0.0
        if weighted:
            return self._weighted(buckets, mean)
        rows = np.arange(buckets.shape[0])[:, None]
        counts, durations = self.frequency[rows, buckets], self.duration[rows, buckets]
        least, each = np.argmin(counts, axis=0), np.arange(counts.shape[1])
        count, duration = counts[least, each], durations[least, each]
        costs: NDArray[np.float64] = np.divide(duration, count, out=np.full(count.shape, mean), where=count > 0)
        return costs

    def _weighted(self, buckets: NDArray[np.int64], mean: float) -> NDArray[np.float64]:
        known = self.frequency > 0
        shares = np.divide(1.0, self.frequency, out=np.zeros_like(self.frequency), where=known)
        costs = shares * np.divide(self.duration, self.frequency, out=np.zeros_like(self.frequency), where=known)
        total, cost = np.zeros(buckets.shape[1]), np.zeros(buckets.shape[1])
        for row, columns in enumerate(buckets):
            total += shares[row].take(columns)
            cost += costs[row].take(columns)
        means: NDArray[np.float64] = np.divide(cost, total, out=np.full(total.shape, mean), where=total > 0)
        return means

    def decay(self, factor: float) -> None:
        """Keep only this share of what was learned, so that a changed cost shows sooner."""
        self.frequency *= factor
        self.duration *= factor
        self._count *= factor
        self._total_s *= factor

    def reset(self) -> None:
        """Forget everything."""
        self.decay(0.0)

    def merge(self, other: CostSketch) -> None:
        """Add what another sketch with the same functions has learned."""
        if (other.seed, other.epsilon, other.delta) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("sketches of different seed, epsilon or delta can't be merged")
        self.frequency += other.frequency
        self.duration += other.duration
        self._count += other._count
        self._total_s += other._total_s

    def add_matrices(self, frequency: NDArray[np.float64], duration: NDArray[np.float64], count: float, total_s: float) -> None:
        """Add what was learned elsewhere with the same functions: F, W, and how many tuples took how long."""
        self.frequency += frequency
        self.duration += duration
        self._count += count
        self._total_s += total_s

    def with_matrices(self, frequency: NDArray[np.float64], duration: NDArray[np.float64]) -> CostSketch:
        """Return a sketch with the same functions and these F and W: every row of them sums up all tuples."""
        sketch = CostSketch(self.epsilon, self.delta, self.seed)
        sketch.add_matrices(frequency, duration, float(frequency[0].sum()), float(duration[0].sum()))
        return sketch

    def copy(self) -> CostSketch:
        """Return a copy that shares nothing with this one."""
        sketch = CostSketch(self.epsilon, self.delta, self.seed)
        sketch.frequency, sketch.duration = self.frequency.copy(), self.duration.copy()
        sketch._count, sketch._total_s = self._count, self._total_s
        return sketch

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain JSON values."""
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
        """Continue from a snapshot, and return the sketch."""
        if (state["seed"], state["epsilon"], state["delta"]) != (self.seed, self.epsilon, self.delta):
            raise PenstockError("the sketch was stored with another seed, epsilon or delta")
        self._count, self._total_s = float(state["count"]), float(state["total_s"])
        self.frequency = np.array(state["frequency"], dtype=np.float64).reshape(self.frequency.shape)
        self.duration = np.array(state["duration"], dtype=np.float64).reshape(self.duration.shape)
        return self
