"""Priority classes: one keep probability shared out by weight."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import PenstockError

__all__ = ["Classes", "OTHER", "share_keep", "share_out"]

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
    costs: tuple[float, ...] = ()
    """What a row costs, relative to others, in the same order."""
    floor: float = 0.0
    """The least keep of a class, as long as there is that much to share out."""

    @classmethod
    def of(cls, weights: Mapping[Hashable, float], costs: Mapping[Hashable, float] | None = None, floor: float = 0.0) -> Classes:
        """Build from ``{value: weight}``; the key ``None`` is the weight of all other values, else the least weight.

        ``costs`` says in the same way what a row of a class costs, 1 where it doesn't.
        """
        if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0.0 <= floor < 1.0:
            raise PenstockError(f"floor must lie in [0, 1), got {floor!r}")
        for value, cost in (costs or {}).items():
            if value is not None and value not in weights:
                raise PenstockError(f"costs name class {value!r}, which has no weight")
            if isinstance(cost, bool) or not isinstance(cost, int | float | np.number) or not (math.isfinite(cost) and cost > 0):
                raise PenstockError(f"the cost of class {value!r} must be positive, got {cost!r}")
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
        known = costs or {}
        relative = (*(float(known.get(value, 1.0)) for value in named), float(known.get(None, 1.0)))
        return cls(tuple(named), (*named.values(), other), relative, float(floor))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the table."""
        return (*(str(value) for value in self.values), OTHER)


def share_out(
    keep: float,
    classes: Classes,
    offered: Sequence[float] | np.ndarray,
) -> np.ndarray:
    """Share a keep out among classes by weight, cost and floor: in all, ``keep`` of the work stays, and no class goes below.

    A class that costs twice as much a row is kept half as often for the same weight. If not even the floor of each can be kept,
    all have the same.

    >>> share_out(0.5, Classes.of({"gold": 9, "bronze": 1}, floor=0.2), [100, 100, 0]).tolist()
    [0.74, 0.26, 0.26]
    """
    weight, cost = np.asarray(classes.weights), np.asarray(classes.costs)
    work = np.maximum(np.asarray(offered, dtype=np.float64), 0.0) * cost
    if keep <= classes.floor:
        return np.full(len(weight), keep)
    rest = (keep - classes.floor) / (1.0 - classes.floor)
    return classes.floor + (1.0 - classes.floor) * share_keep(rest, (weight / cost).tolist(), work)


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
