"""The streams of the experiments of LAS: tuples with keys, and a cost for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.simulation.compiled import compiled

__all__ = ["Stream", "draw_costs", "draw_keys", "phases", "synthetic", "zipf_at"]

_GUIDES = 1 << 13
"""Entries of the table that says where to begin the search for a key; a power of two, so that no rounding can miss."""


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Tuples: arrival time, key and cost of each; all times in seconds.

    Raises
    ------
    PenstockError
        If the columns differ in length, keys are not whole numbers of 64 bits, times are not finite or go backwards, or costs are
        negative or not finite.

    Examples
    --------
    >>> Stream([0.0, 1.0], [7, 2**63 - 1], [0.5, 0.5]).mean_cost_s
    0.5
    >>> Stream([0.0], [7], [-0.5])
    Traceback (most recent call last):
    penstock.errors.PenstockError: the cost of tuple 0 must be finite and not negative, got -0.5
    """

    arrivals_s: NDArray[np.float64]
    keys: NDArray[np.int64]
    costs_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        for name in ("arrivals_s", "costs_s"):
            object.__setattr__(self, name, _as_column(name, getattr(self, name), np.float64))
        object.__setattr__(self, "keys", _as_column("keys", self.keys, np.int64))
        sizes = (self.arrivals_s.size, self.keys.size, self.costs_s.size)
        if len(set(sizes)) != 1:
            raise PenstockError(f"a stream needs as many arrivals as keys and costs, got {sizes[0]}, {sizes[1]} and {sizes[2]}")
        if not sizes[0]:
            return
        _check("the cost of", self.costs_s, (self.costs_s >= 0) & (self.costs_s < np.inf), "finite and not negative")
        finite = np.isfinite(self.arrivals_s)
        finite[1:] &= self.arrivals_s[1:] >= self.arrivals_s[:-1]
        _check("the arrival of", self.arrivals_s, finite, "finite and not before the one before it")

    @property
    def mean_cost_s(self) -> float:
        """The mean cost of a tuple; 0 if there is none."""
        return float(self.costs_s.mean()) if self.costs_s.size else 0.0


def _as_column(name: str, values: object, kind: type[np.float64 | np.int64]) -> NDArray[np.generic]:
    """Return values as a column of this kind, or raise if they do not fit."""
    what = "whole numbers from -2^63 to 2^63 - 1" if kind is np.int64 else "numbers"
    try:
        column = np.asarray(values).reshape(-1)
        fits = column.dtype.kind in ("iu" if kind is np.int64 else "iuf") or not column.size
        if fits and not (column.dtype == np.uint64 and column.size and int(column.max()) >= 1 << 63):
            return np.ascontiguousarray(column, dtype=kind)
    except (OverflowError, TypeError, ValueError):
        pass
    raise PenstockError(f"{name} of a stream must be {what}")


def _check(what: str, values: NDArray[np.float64], is_valid: NDArray[np.bool_], rule: str) -> None:
    if not is_valid.all():
        first = int(np.argmin(is_valid))
        raise PenstockError(f"{what} tuple {first} must be {rule}, got {values[first]}")


def synthetic(
    *,
    seed: int,
    permutation: int = 0,
    tuples: int = 32_768,
    keys: int = 4_096,
    alpha: float | None = 1.0,
    values: int = 64,
    w_min_s: float = 0.1e-3,
    w_max_s: float = 6.4e-3,
    under: float = 0.25,
) -> Stream:
    """Return the stream of the experiments of LAS: Zipf keys, each with one of several evenly spaced costs.

    Parameters
    ----------
    seed, permutation
        ``permutation`` draws which key costs what, ``seed`` the order of the tuples.
    tuples, keys
        How many there are.
    alpha
        The exponent of the Zipf distribution; ``None`` means uniform keys.
    values, w_min_s, w_max_s
        How many costs there are, the least and the largest.
    under
        The share by which the operator is too slow: tuples arrive every ``(1 - under) * mean cost``.

    Examples
    --------
    >>> stream = synthetic(seed=1, tuples=1000)
    >>> round(stream.mean_cost_s / float(np.diff(stream.arrivals_s).mean()), 3)
    1.333
    """
    costs = draw_costs(permutation, keys=keys, values=values, w_min_s=w_min_s, w_max_s=w_max_s)
    if tuples < 0:
        raise PenstockError(f"the number of tuples must not be negative, got {tuples}")
    if not under <= 1.0:
        raise PenstockError(f"the share by which the operator is too slow must be at most 1, got {under!r}")
    chosen = draw_keys(np.random.default_rng([seed, permutation, 2]), tuples, keys, alpha)
    costs_s = costs[chosen]
    mean_s = float(costs_s.mean()) if tuples else 0.0
    return Stream(np.arange(tuples, dtype=np.float64) * (mean_s * (1.0 - under)), chosen, costs_s)


def draw_costs(
    permutation: int, *, keys: int = 4_096, values: int = 64, w_min_s: float = 0.1e-3, w_max_s: float = 6.4e-3
) -> NDArray[np.float64]:
    """Return a cost for each key: evenly spaced values, each for as many keys.

    >>> draw_costs(1, keys=4, values=2, w_min_s=1.0, w_max_s=2.0).tolist()
    [2.0, 1.0, 1.0, 2.0]
    """
    if keys < 1 or values < 1 or keys % values:
        raise PenstockError(f"the number of keys must be a multiple of the {values} costs, got {keys}")
    costs = np.repeat(np.linspace(w_min_s, w_max_s, values), keys // values)
    permuted: NDArray[np.float64] = np.random.default_rng([permutation, 1]).permutation(costs)
    return permuted


def draw_keys(rng: np.random.Generator, tuples: int, keys: int = 4_096, alpha: float | None = 1.0) -> NDArray[np.int64]:
    """Draw a key for each tuple; ``alpha`` is the exponent of a Zipf distribution, ``None`` means uniform keys."""
    uniforms = rng.random(tuples)
    return (uniforms * keys).astype(np.int64) if alpha is None else zipf_at(uniforms, keys, alpha)


def zipf_at(uniforms: NDArray[np.float64], keys: int, exponent: float = 1.0) -> NDArray[np.int64]:
    """Turn uniform numbers into Zipf keys; key 0 is the most frequent.

    >>> zipf_at(np.array([0.0, 0.99]), keys=2).tolist()
    [0, 1]
    """
    shares, guides = _zipf_tables(keys, exponent)
    chosen: NDArray[np.int64] = _search(np.ascontiguousarray(uniforms, dtype=np.float64), shares, guides)  # type: ignore[no-untyped-call]
    return chosen


@lru_cache(maxsize=32)
def _zipf_tables(keys: int, exponent: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the cumulated shares of the keys, and the first key for each of many evenly spaced uniform numbers."""
    if keys < 1:
        raise PenstockError(f"the number of keys must be positive, got {keys}")
    weights = np.cumsum(np.arange(1, keys + 1) ** -float(exponent))
    shares = weights / weights[-1]
    return shares, np.searchsorted(shares, np.arange(_GUIDES) / _GUIDES)


@compiled
def _search(uniforms, shares, guides):  # type: ignore[no-untyped-def]  # compiled
    """Return ``np.searchsorted(shares, uniforms)``, several times as fast."""
    chosen = np.empty(uniforms.size, np.int64)
    last = shares.size - 1
    for number in range(uniforms.size):
        uniform = uniforms[number]
        key = guides[int(uniform * _GUIDES)]
        while key < last and shares[key] < uniform:
            key += 1
        chosen[number] = key
    return chosen


def phases(seed: int, *, length: int = 20_000, alpha: float | None = 1.0, under: float = 0.5) -> tuple[Stream, Sequence[str]]:
    """Return the stream of LAS, figure 9, and the names of its phases, A to G.

    Parameters
    ----------
    seed
        Draws costs and keys.
    length
        The tuples of a phase.
    alpha
        The exponent of the Zipf distribution; ``None`` means uniform keys.
    under
        The share by which the operator is too slow in phase B, and too fast in phase E.
    """
    rng = np.random.default_rng([seed, 9])
    keys, values = 4_096, 64
    base = rng.permutation(np.repeat(np.linspace(0.1e-3, 6.4e-3, values), keys // values))
    expensive = int(np.flatnonzero(base == base.max())[-1])
    short = {"A": 0.0, "B": under, "C": 0.0, "D": 0.0, "E": -under, "F": 0.0, "G": 0.0}
    arrivals, chosen, costs = [], [], []
    # LAS sets the throughput by the mean cost at the start: later changes of costs or keys do not change it.
    mean_s = float(base[draw_keys(rng, length, keys, alpha)].mean())
    begin_s = 0.0
    for name, share in short.items():
        phase = draw_keys(rng, length, keys, alpha)
        if name == "D":
            phase = np.where(phase == 0, expensive, np.where(phase == expensive, 0, phase))
        gap_s = mean_s * (1.0 - share)
        arrivals.append(begin_s + gap_s * np.arange(length))
        begin_s += gap_s * length
        chosen.append(phase)
        costs.append(base[phase] * (2.0 if name == "F" else 1.0))
    return Stream(np.concatenate(arrivals), np.concatenate(chosen), np.concatenate(costs)), tuple(short)
