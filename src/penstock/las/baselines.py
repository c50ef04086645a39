"""The shedders that LAS is compared with: a coin, the mean cost, the true cost."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import PenstockError
from penstock.las.constraint import Constraint
from penstock.las.tuple_shedder import ClockShedder, TupleShedder

__all__ = ["BaseLine", "FullKnowledge", "StrawMan"]


class BaseLine(TupleShedder):
    """Drops a share of the tuples at random, whatever they cost (LAS, section V).

    Parameters
    ----------
    share
        The share to drop.
    uniform
        Source of random numbers in [0, 1).

    Examples
    --------
    >>> coins = iter([0.1, 0.9])
    >>> shedder = BaseLine(0.25, lambda: next(coins))
    >>> shedder.shed(7, 0.0), shedder.shed(7, 0.0)
    (True, False)
    """

    def __init__(self, share: float, uniform: Callable[[], float]) -> None:
        if not 0.0 <= share <= 1.0:
            raise PenstockError(f"the share to drop must lie in [0, 1], got {share!r}")
        self._share, self._uniform = share, uniform

    def shed(self, key: int, elapsed_s: float) -> bool:  # noqa: ARG002 - it looks at neither
        """Toss a coin."""
        return self._uniform() < self._share


class StrawMan(ClockShedder):
    """LAS with the mean cost for every tuple (LAS, section V).

    Examples
    --------
    >>> from penstock.las import ABS
    >>> shedder = StrawMan(ABS(1.5), mean_s=1.0)
    >>> [shedder.shed(key, 0.0) for key in range(3)]        # waits of 0 s and 1 s are allowed, one of 2 s is not
    [False, False, True]
    """

    def __init__(self, constraint: Constraint, mean_s: float) -> None:
        super().__init__(constraint)
        self._mean_s = mean_s

    def cost_s(self, key: int) -> float:  # noqa: ARG002 - that is the point of it
        """Return the mean."""
        return self._mean_s


class FullKnowledge(ClockShedder):
    """LAS with the true cost of every tuple (LAS, section V): what no shedder can know in advance.

    Examples
    --------
    >>> from penstock.las import ABS
    >>> shedder = FullKnowledge(ABS(1.5), {1: 2.0, 2: 0.5}.__getitem__)
    >>> [shedder.shed(key, 0.0) for key in (2, 1, 2)]       # the last one would wait for 2.5 s
    [False, False, True]
    """

    def __init__(self, constraint: Constraint, cost_s: Callable[[int], float]) -> None:
        super().__init__(constraint)
        self._cost_s = cost_s

    def cost_s(self, key: int) -> float:
        """Return the true cost."""
        return self._cost_s(key)
