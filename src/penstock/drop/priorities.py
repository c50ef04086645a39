"""Priority classes: one keep probability, shared out among classes by weight."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.errors import PenstockError

__all__ = ["OTHER", "Priorities", "share_keep", "share_out"]

OTHER = "(other)"


class Priorities:
    """Priority classes of rows: a class of weight 10 is kept ten times as often as one of weight 1, until all of it is kept.

    Parameters
    ----------
    column
        The column with a row's class: its name, or an expression.
    weights
        ``{value: weight}``. The key ``None`` stands for all other values; without it they get the lowest weight.
    costs
        What a row of each class costs relative to the others, 1 by default. Of two classes with the same weight, the more
        expensive one is kept less.
    floor
        The lowest keep of every class, as long as there is that much to share out.

    Raises
    ------
    PenstockError
        If a weight, a cost or the floor is out of range, or a class has a cost and no weight.

    Examples
    --------
    >>> Priorities("tier", {"gold": 10, "bronze": 1}).names
    ('gold', 'bronze', '(other)')

    """

    def __init__(
        self,
        column: Any,
        weights: Mapping[Hashable, float],
        *,
        costs: Mapping[Hashable, float] | None = None,
        floor: float = 0.0,
    ) -> None:
        if isinstance(floor, bool) or not isinstance(floor, int | float) or not 0.0 <= floor < 1.0:
            raise PenstockError(f"floor must lie in [0, 1), got {floor!r}")
        if not isinstance(weights, Mapping):
            raise PenstockError(f"weights must be a mapping such as {{'gold': 10, 'bronze': 1}}, got {weights!r}")
        _check_numbers(weights, costs or {})
        named = {value: float(weight) for value, weight in weights.items() if value is not None}
        if not named:
            raise PenstockError("weights must name at least one class, for example {'gold': 10, 'bronze': 1}")
        self.column = column
        self.names_others = None in weights
        """Whether the user gave a weight for all other values."""
        self.values: tuple[Hashable, ...] = tuple(named)
        other = float(weights[None]) if self.names_others else min(named.values())
        self.weights = (*named.values(), other)
        """One weight per value, then the weight of all other values."""
        if not any(self.weights):
            raise PenstockError("at least one class must have a weight above zero, got zero for all")
        known = costs or {}
        self.costs = (*(float(known.get(value, 1.0)) for value in named), float(known.get(None, 1.0)))
        """The cost of a row, in the same order."""
        self.floor = float(floor)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes in the order of the table."""
        return (*(str(value) for value in self.values), OTHER)


def _check_numbers(weights: Mapping[Hashable, float], costs: Mapping[Hashable, float]) -> None:
    for value, cost in costs.items():
        if value is not None and value not in weights:
            raise PenstockError(f"costs name class {value!r}, which has no weight")
        if not _is_number(cost) or not (math.isfinite(cost) and cost > 0):
            raise PenstockError(f"the cost of class {value!r} must be positive, got {cost!r}")
    for value, weight in weights.items():
        if not _is_number(weight):
            raise PenstockError(f"the weight of class {value!r} must be a number, got {weight!r}")
        if not (math.isfinite(weight) and weight >= 0):
            raise PenstockError(f"the weight of class {value!r} must be zero or positive, got {weight}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def share_out(
    keep: float,
    priorities: Priorities,
    offered: Sequence[float] | np.ndarray,
) -> np.ndarray:
    """Share a keep out among classes by weight, cost and floor: the share ``keep`` of all work stays, no class below the floor.

    A class whose rows cost twice as much is kept half as often for the same weight. If the keep is below the floor, all classes
    get the same keep.

    Parameters
    ----------
    keep
        The share of the work to keep.
    priorities
        The classes.
    offered
        How many rows of each class are offered, in the order of ``priorities.names``.

    Examples
    --------
    >>> share_out(0.5, Priorities("tier", {"gold": 9, "bronze": 1}, floor=0.2), [100, 100, 0]).tolist()
    [0.74, 0.26, 0.26]
    """
    weight, cost = np.asarray(priorities.weights), np.asarray(priorities.costs)
    work = np.maximum(np.asarray(offered, dtype=np.float64), 0.0) * cost
    if keep <= priorities.floor:
        return np.full(len(weight), keep)
    rest = (keep - priorities.floor) / (1.0 - priorities.floor)
    return priorities.floor + (1.0 - priorities.floor) * share_keep(rest, (weight / cost).tolist(), work)


def share_keep(keep: float, weights: Sequence[float], offered: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the keep of each class in proportion to its weight, capped at 1, so that the share ``keep`` of all rows stays.

    ``keep_i = min(1, scale * weight_i)`` with ``scale`` such that ``sum(offered_i * keep_i) = keep * sum(offered_i)``. A class of
    weight zero is kept only once all other classes are kept whole.

    Examples
    --------
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
    keeps = np.zeros_like(weight)
    # The classes of the highest weight reach 1 first: go through them in turn and scale the others to what is left.
    positive = np.flatnonzero(weight > 0)
    order = positive[np.argsort(-weight[positive], kind="stable")]
    for index, first in enumerate(order):
        rest = order[index:]
        scale = budget / max(float(rows[rest] @ weight[rest]), 1e-300)
        if scale * weight[first] <= 1.0:
            keeps[rest] = scale * weight[rest]
            return keeps
        keeps[first] = 1.0
        budget = max(0.0, budget - rows[first])
    is_weightless = weight == 0
    if is_weightless.any():
        keeps[is_weightless] = min(1.0, budget / max(float(rows[is_weightless].sum()), 1e-300))
    return keeps
