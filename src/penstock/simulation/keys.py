"""Keys and costs of rows as pure functions of the row's number: random access, no state, always the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.errors import PenstockError
from penstock.simulation.validation import real, whole

__all__ = ["costs_of_keys", "splitmix64", "uniform_keys", "zipf_keys"]

Times: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def splitmix64(n: ArrayLike, seed: int = 0) -> NDArray[np.uint64]:
    """Return 64 random bits as a pure function of seed and n (Steele, Lea and Flood, OOPSLA 2014).

    With seed 0 and n = 0, 1, 2 ... this is the published sequence of the generator.

    >>> [hex(word) for word in splitmix64([0, 1]).tolist()]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    base = np.uint64((_GOLDEN + _scatter(seed)) & _MASK)
    # At least one dimension: numpy wraps overflowing arrays silently, as intended, but warns about scalars.
    z = np.atleast_1d(np.asarray(n, dtype=np.int64)).astype(np.uint64)
    z *= np.uint64(_GOLDEN)
    z += base
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _scatter(seed: int) -> int:
    """Spread seeds over the state space; otherwise seed 1 would be seed 0 shifted by one."""
    z = (seed * 0xD1342543DE82EF95) & _MASK
    z = ((z ^ (z >> 32)) * 0xBF58476D1CE4E5B9) & _MASK
    return z ^ (z >> 29)


def _uniform(n: ArrayLike, seed: int) -> Times:
    return np.asarray((splitmix64(n, seed) >> np.uint64(11)) * 2.0**-53)


def uniform_keys(n: ArrayLike, keys: int, seed: int = 0) -> Ints:
    """Return the key of each row number n: 0 to keys - 1, all equally likely.

    >>> uniform_keys([0, 1, 2, 3], keys=10, seed=1).tolist() == [int(uniform_keys(i, 10, 1)[0]) for i in range(4)]
    True
    """
    whole("keys", keys, 1, 2**53, "a whole number of at least 1")
    return (_uniform(n, seed) * keys).astype(np.int64)


def zipf_keys(n: ArrayLike, keys: int, exponent: float = 1.0, seed: int = 0) -> Ints:
    """Return the key of each row number n, key k with a share in proportion to ``(k + 1)^-exponent``: key 0 is the most frequent.

    >>> bool((zipf_keys(range(1000), keys=100) == 0).mean() > 0.15)
    True
    """
    return np.searchsorted(_zipf_shares(keys, exponent), _uniform(n, seed), side="right").astype(np.int64, copy=False)


@lru_cache(maxsize=4)
def _zipf_shares(keys: int, exponent: float) -> Times:
    whole("keys", keys, 1, 10_000_000, "a whole number from 1 to 10,000,000 for zipf")
    real("exponent", exponent, 0.0, math.inf, "a number of at least 0")
    shares = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
    shares /= shares[-1]
    return shares


def costs_of_keys(keys: ArrayLike, costs_s: Sequence[float], seed: int = 0) -> Times:
    """Return the cost in seconds of each key: a hash assigns each key to one of the cost classes.

    >>> set(costs_of_keys(range(100), (0.001, 0.010)).tolist()) == {0.001, 0.010}
    True
    """
    if not costs_s:
        raise PenstockError("costs_s must have at least one cost class, got none")
    for cost_s in costs_s:
        real("costs_s", cost_s, 0.0, math.inf, "numbers of at least 0")
    # Another seed than that of the keys; otherwise the class would follow from the row number behind the key.
    classes = splitmix64(keys, seed + 0x5EED) % np.uint64(len(costs_s))
    return np.asarray(costs_s, dtype=np.float64)[classes.astype(np.int64)]
