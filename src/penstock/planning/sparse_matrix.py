"""A sparse matrix that multiplies vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["SparseMatrix", "expand_ranges", "sum_groups"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


class SparseMatrix:
    """A sparse matrix that multiplies vectors. NumPy has none, and SciPy would be a large dependency for this alone.

    Examples
    --------
    >>> matrix = SparseMatrix(2, np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0]))
    >>> (matrix @ np.array([1.0, 10.0])).tolist()
    [21.0, 30.0]
    """

    __slots__ = ("columns", "height", "rows", "values")

    def __init__(self, height: int, rows: Indices, columns: Indices, values: Vector) -> None:
        self.height, self.rows, self.columns, self.values = height, rows, columns, values

    def __matmul__(self, vector: Vector) -> Vector:
        return sum_groups(self.rows, self.values * vector[self.columns], self.height)

    def multiply(self, other: SparseMatrix, width: int) -> SparseMatrix:
        """Return the product with another matrix, which has ``width`` columns."""
        order = np.argsort(other.rows, kind="stable")
        counts = np.bincount(other.rows, minlength=other.height)
        starts = np.cumsum(counts) - counts
        repeats = counts[self.columns]
        entries = order[expand_ranges(starts[self.columns], repeats)]
        keys = np.repeat(self.rows, repeats) * width + other.columns[entries]
        products = np.repeat(self.values, repeats) * other.values[entries]
        unique, group = np.unique(keys, return_inverse=True)
        return SparseMatrix(self.height, unique // width, unique % width, sum_groups(group, products, unique.size))


def sum_groups(groups: Indices, values: Vector, count: int) -> Vector:
    """Return the sum of the values of each group.

    >>> sum_groups(np.array([1, 1, 0]), np.array([1.0, 2.0, 3.0]), 3).tolist()
    [3.0, 3.0, 0.0]
    """
    return np.asarray(np.bincount(groups, values, minlength=count), dtype=np.float64)  # bincount of nothing returns integers


def expand_ranges(starts: Indices, counts: Indices) -> Indices:
    """Return the numbers of several ranges, one range after the other.

    >>> expand_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    numbers: Indices = np.arange(int(counts.sum())) - np.repeat(ends - counts - starts, counts)
    return numbers
