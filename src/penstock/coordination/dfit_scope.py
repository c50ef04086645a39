"""How far and how finely a node of D-FIT must sample: what its parent tells it of the nodes above and beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import PenstockError

__all__ = ["Scope", "ScopeSender"]

_MARGIN = 2.0
_BAND = 16.0
_LEAST_RATE = 1e-12
_ROUNDING = 1e-9
_COARSEST = 2.0**40


@dataclass(frozen=True, slots=True)
class Scope:
    """The range of a node's samples.

    Both depend on other nodes: what can arrive, on those above; which rates are too low to matter, on all nodes of the tree. So
    they are measured where they are known and told to the nodes below.
    """

    least_score: float
    """A lower bound of the best score at rates that overload a node of the tree."""
    most: Mapping[str, float] = field(default_factory=dict)
    """By entry: an upper bound of the rate that can arrive. An entry that is missing has none."""
    units: Mapping[str, float] = field(default_factory=dict)
    """By entry: the unit of its samples, which stands for the same rate upstream as those of the node's siblings."""

    def with_margin(self) -> Scope:
        """Return a scope that stays right when facts change a little: all numbers are powers of 2, on the safe side."""
        most = {name: _round_to_power(rate, math.ceil) for name, rate in self.most.items() if math.isfinite(rate)}
        if self.least_score <= 0:  # nothing is ever overloaded, so the coarsest table will do
            return Scope(_COARSEST, most, self.units)
        return Scope(_round_to_power(self.least_score, math.floor) / _MARGIN, most, self.units)

    def covers(self, other: Scope) -> bool:
        """Return whether tables of this scope are right where the other is the actual one, and not much larger than need be."""
        if not other.least_score / _BAND <= self.least_score <= other.least_score:
            return False
        if not set(self.most) >= {name for name, rate in other.most.items() if math.isfinite(rate)}:
            return False
        if any(abs(self.units.get(name, 1.0) - unit) > _ROUNDING * unit for name, unit in other.units.items()):
            return False
        return all(rate <= self.most.get(name, math.inf) <= max(rate, _LEAST_RATE) * _BAND for name, rate in other.most.items())

    def to_body(self) -> dict[str, Any]:
        """Return the body of a message: plain JSON values."""
        return {"least_score": self.least_score, "most": dict(self.most), "units": dict(self.units)}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Scope:
        """Read the body of a message.

        Raises
        ------
        PenstockError
            If a number is missing, negative or not finite.

        Examples
        --------
        >>> Scope.from_body({"least_score": -1.0, "most": {}, "units": {}})
        Traceback (most recent call last):
        penstock.errors.PenstockError: a scope needs numbers that are positive and finite, got -1.0

        """
        most, units = ({str(name): float(number) for name, number in body[key].items()} for key in ("most", "units"))
        scope = cls(float(body["least_score"]), most, units)
        for number in (scope.least_score, *most.values(), *units.values()):
            if not (math.isfinite(number) and number > 0):
                raise PenstockError(f"a scope needs numbers that are positive and finite, got {number!r}")
        return scope


class ScopeSender:
    """Knows the scope that each child has, and finds those who need another.

    Parameters
    ----------
    declared
        By child: the scope that it starts with.

    """

    def __init__(self, declared: Mapping[str, Scope]) -> None:
        self._declared = dict(declared)
        self._known = dict(declared)

    def forget(self, child: str) -> None:
        """Assume that a child has just started."""
        self._known[child] = self._declared[child]

    def take_news(self, child: str, actual: Scope) -> Scope | None:
        """Return the scope to tell a child, and consider it told; ``None`` if what it has will do.

        Parameters
        ----------
        child
            The child.
        actual
            What is right for it now. Its least score has its margin already, because all nodes of a tree share one.

        """
        known = self._known[child]
        if known.least_score == actual.least_score and replace(known, least_score=1.0).covers(replace(actual, least_score=1.0)):
            return None
        self._known[child] = replace(actual.with_margin(), least_score=actual.least_score)
        return self._known[child]


def _round_to_power(number: float, round_off: Callable[[float], int]) -> float:
    """Return a power of 2 near a number."""
    return float(2.0 ** round_off(math.log2(max(number, _LEAST_RATE))))
