"""Priority classes: one keep probability shared out by weight."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError

__all__ = ["Classes", "OTHER", "share_keep"]

OTHER = "(other)"


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of a gate, their weights, and the class of everything that is not named.

    >>> Classes.of({"gold": 10, "bronze": 1}).names
    ('gold', 'bronze', '(other)')
    """

    values: tuple[Hashable, ...]
    weights: tuple[float, ...]
    """One for each value, then that of all other values."""

    @classmethod
    def of(cls, weights: Mapping[Hashable, float]) -> Classes:
        """Build from ``{value: weight}``; the key ``None`` is the weight of all other values, else the least weight."""
        for value, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float | np.number):
                raise PenstockError(f"the weight of class {value!r} must be a number, got {weight!r}")
            if not (math.isfinite(weight) and weight >= 0):
                raise PenstockError(f"the weight of class {value!r} must be zero or positive, got {weight}")
        named = {value: float(weight) for value, weight in weights.items() if value is not None}
        if not named:
            raise PenstockError("weights must name at least one class, for example {'gold': 10, 'bronze': 1}")
        other = float(weights[None]) if None in weights else min(named.values())
        if not any((*named.values(), other)):
            raise PenstockError("at least one class must have a weight above zero, got all zero")
        return cls(tuple(named), (*named.values(), other))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the table."""
        return (*(str(value) for value in self.values), OTHER)


def share_keep(keep: float, weights: Sequence[float], offered: Sequence[float] | np.ndarray) -> np.ndarray:
    """Give each class its keep in proportion to its weight, capped at 1, so that in all ``keep`` of the rows stay.

    ``keep_i = min(1, scale * weight_i)`` with ``scale`` such that ``sum(offered_i * keep_i) = keep * sum(offered_i)``. A class of
    weight zero is kept only once every other class is whole.

    >>> share_keep(0.5, weights=[4, 1], offered=[100, 100]).tolist()      # 80 and 20 of 100 each
    [0.8, 0.2]
    >>> share_keep(0.7, weights=[4, 1], offered=[100, 100]).tolist()      # gold is whole, bronze takes the rest
    [1.0, 0.4]
    """
    weight = np.asarray(weights, dtype=np.float64)
    rows = np.maximum(np.asarray(offered, dtype=np.float64), 0.0)
    if rows.sum() <= 0.0:
        rows = np.ones_like(weight)
    if keep >= 1.0:
        return np.ones_like(weight)
    budget = keep * rows.sum()
    out = np.zeros_like(weight)
    # The dearest classes reach 1 first: walk them down and scale the rest to what is left.
    positive = np.flatnonzero(weight > 0)
    order = positive[np.argsort(-weight[positive], kind="stable")]
    for place, first in enumerate(order):
        rest = order[place:]
        scale = budget / max(float(rows[rest] @ weight[rest]), 1e-300)
        if scale * weight[first] <= 1.0:
            out[rest] = scale * weight[rest]
            return out
        out[first] = 1.0
        budget = max(0.0, budget - rows[first])
    free = weight == 0
    if free.any():
        out[free] = min(1.0, budget / max(float(rows[free].sum()), 1e-300))
    return out
