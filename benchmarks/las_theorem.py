"""LAS (Rivetti et al.), theorem 4.2: the expected value of a cell of the sketches.

The expected W/F of a cell with all keys equally frequent, and the paper's numeric example: n = 4,096 keys, k = 55
columns, 64 costs from 1 to 64 with 64 keys each. Compares it with the mean over many hash functions of real sketches.
The paper's interval is [32.08, 32.92]. Its bound on the smallest of ten rows is measured as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.las.countmin import UniversalHash

__all__ = ["expected_ratio", "run"]


def expected_ratio(cost: float, costs: np.ndarray, columns: int) -> float:
    """Return the expected W/F of a cell by the formula of theorem 4.2.

    >>> round(expected_ratio(1.0, np.repeat(np.arange(1.0, 65.0), 64), 55), 2)
    32.08
    """
    n, total = costs.size, float(costs.sum())
    spread = columns * (total - n * cost) / (n * (n - 1)) * (1.0 - (1.0 - 1.0 / columns) ** n)
    return (total - cost) / (n - 1) - spread


def _share_of_large_minima(costs: np.ndarray, seeds: Iterable[int]) -> float:
    """Measure how often the smallest W/F of ten rows reaches 48, over all keys and many hash functions."""
    large = [float(np.mean(smallest_ratios(costs, UniversalHash.of(10, 55, seed)) >= 48)) for seed in seeds]
    return float(np.mean(large))


def smallest_ratios(costs: np.ndarray, functions: UniversalHash) -> np.ndarray:
    """Return the smallest W/F over the rows of each key, if every key came once.

    >>> smallest_ratios(np.array([1.0, 5.0]), UniversalHash.of(2, 1)).tolist()      # in one column both keys meet
    [3.0, 3.0]
    """
    ratios = []
    for column in functions.buckets(np.arange(costs.size)):
        frequency = np.bincount(column, minlength=functions.columns)
        ratios.append((np.bincount(column, costs, functions.columns) / np.maximum(frequency, 1))[column])
    return np.asarray(np.min(ratios, axis=0))


def run(*, quick: bool, say: Say) -> Result:
    """Compare formula and sketches for the lowest, a middle and the highest cost."""
    costs = np.repeat(np.arange(1.0, 65.0), 64)
    keys = np.arange(costs.size)
    tries = 200 if quick else 2000
    sums = dict.fromkeys((1.0, 32.0, 64.0), 0.0)
    say(f"{tries} hash functions")
    for seed in range(tries):
        column = UniversalHash.of(1, 55, seed).buckets(keys)[0]
        means = np.bincount(column, costs, 55) / np.maximum(np.bincount(column, minlength=55), 1)
        for cost in sums:
            sums[cost] += float(means[column[costs == cost]].mean())
    rows: list[Row] = [
        {"cost": cost, "theorem": expected_ratio(cost, costs, 55), "sketches": total / tries} for cost, total in sums.items()
    ]
    low, high = expected_ratio(1.0, costs, 55), expected_ratio(64.0, costs, 55)
    worst = max(abs(float(row["theorem"] or 0) - float(row["sketches"] or 0)) for row in rows)
    say("ten rows")
    share = _share_of_large_minima(costs, range(tries // 10))
    claims = [
        Claim(
            "interval of the expected W/F",
            "[32.08, 32.92]",
            f"[{low:.2f}, {high:.2f}]",
            round(low, 2) == 32.08 and round(high, 2) == 32.92,
        ),
        Claim("real sketches agree with the formula", "-", f"within {worst:.3f}", worst < 0.1),
        Claim("keys whose smallest W/F of ten rows is 48 or more, at most", "0.024", f"{share:.4f}", share <= 0.024),
    ]
    return Result("las-theorem", rows, claims=claims)
