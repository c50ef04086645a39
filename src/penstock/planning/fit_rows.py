"""Rows of a Feasible Input Table under construction."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "repeat_index"]


class Rows:
    """Table rows under construction, as columns of equal length.

    Keys: ``column X`` is the rate of input X of the node, ``flow X`` the rate that leaves operator or input X, ``need A`` the
    rate that arc A must carry, ``supplied X`` what the sources of X contribute so far, ``row C`` the row of child C's table.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._columns: dict[str, NDArray[Any]] = {}

    def __setitem__(self, key: str, values: NDArray[Any]) -> None:
        self._columns[key] = values

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._columns[key]

    def get(self, key: str) -> NDArray[Any]:
        """Return a column, or zeros if there is none."""
        return self._columns.get(key, np.zeros(self.count))

    def keys_of(self, prefix: str) -> list[str]:
        """Return the keys with a prefix, in the order of insertion."""
        return [key for key in self._columns if key.startswith(prefix)]

    def select(self, index: NDArray[np.int64]) -> None:
        """Keep the rows with these indices, which may repeat."""
        self.count = index.size
        self._columns = {key: values[index] for key, values in self._columns.items()}


def repeat_index(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index that repeats row i ``counts[i]`` times, and the position of each copy among its copies."""
    index = np.repeat(np.arange(counts.size), counts)
    return index, np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts)
