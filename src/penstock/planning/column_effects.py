"""What a tuple in each column of a root's table does: the shares of nodes and links that it takes, and its score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.planning.flows import Flows, Vector

__all__ = ["ColumnEffects", "column_effects"]


class ColumnEffects(NamedTuple):
    """What a tuple per second in each column of a table does if nothing is dropped behind the inputs."""

    shares: NDArray[np.float64]
    """By node or link, and column: the share of its capacity or bandwidth that the tuple takes."""
    worth: Vector
    """By column: the score."""


def column_effects(flows: Flows, columns: Sequence[str]) -> ColumnEffects:
    """Return what tuples in each column of a root's table do if nothing is dropped behind the inputs.

    A column is an input, or the arc from an input to one of several nodes that it feeds.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A", 2.0).input("i").operator("a", "A", "i", cost=1.0, selectivity=0.5).output("q", "a").build()
    ... )
    >>> effects = column_effects(Flows(network), ["i"])
    >>> effects.shares.tolist(), effects.worth.tolist()
    ([[0.5]], [0.5])
    """
    limits = np.concatenate([flows.capacity, flows.bandwidths])
    shares, worth = np.zeros((limits.size, len(columns))), np.zeros(len(columns))
    for number, column in enumerate(columns):
        origin = column if column in flows.inputs else column.partition("->")[0]
        keep = np.ones(len(flows.locations))
        for location in flows.locations if column != origin else ():
            if location.source == origin and location.target is not None and location.name != column:
                keep[flows.location_index[location.name]] = 0.0
        rates = np.array([1.0 if name == origin else 0.0 for name in flows.inputs])
        passing = flows.propagate(rates, keep)
        shares[:, number] = np.concatenate([flows.loads @ passing, flows.links @ passing]) / limits
        worth[number] = flows.value @ passing
    return ColumnEffects(np.unique(shares[np.any(shares > 0, axis=1)], axis=0).reshape(-1, len(columns)), worth)
