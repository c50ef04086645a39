"""What every planner returns, and what every planner is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.coefficients import Coefficients
from penstock.network.model import Network
from penstock.planning.flows import Flows, Vector

__all__ = ["Plan", "Planner", "check_epsilon", "check_rates"]

_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to keep at each drop location, and what comes of it.

    All numbers follow from ``keep`` by walking the network, whoever made the plan: a planner's own idea of its score is not
    taken on trust. ``loads`` are CPU seconds a second, to be held against ``capacities``.
    """

    method: str
    rates: Mapping[str, float]
    keep: Mapping[str, float]
    score: float
    """Total weighted throughput (paper 000, equation 3)."""
    loads: Mapping[str, float]
    throughput: Mapping[str, float]
    capacities: Mapping[str, float]
    overloaded: bool
    """Whether the network would be overloaded without the plan."""
    links: Mapping[str, float]
    bandwidths: Mapping[str, float]
    notes: tuple[str, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether every node can do what the plan leaves it, and every link can carry it."""
        pairs = ((self.loads, self.capacities), (self.links, self.bandwidths))
        return all(used[name] <= limit * (1 + _TOLERANCE) for used, limits in pairs for name, limit in limits.items())

    @property
    def bottleneck(self) -> str:
        """The node that has the least left."""
        return max(self.loads, key=lambda name: self.loads[name] / self.capacities[name])

    def to_dict(self) -> dict[str, Any]:
        """Return what ``penstock plan --json`` prints."""
        return {
            "method": self.method,
            "score": self.score,
            "overloaded": self.overloaded,
            "keep": dict(self.keep),
            "loads": dict(self.loads),
            "throughput": dict(self.throughput),
            "feasible": self.feasible,
            "rates": dict(self.rates),
            "notes": list(self.notes),
        }


class Planner(ABC):
    """Answers one question: at these rates, how much to keep where? A method is a class with ``_keep`` and a ``name``."""

    name: ClassVar[str]
    _in_advance: ClassVar[bool] = False
    """Whether it plans for rates that it does not know yet."""

    def __init__(self, network: Network, flows: Flows | None = None) -> None:
        self.network = network
        self.flows = flows if flows is not None else Flows(network)

    def plan(self, rates: Mapping[str, float]) -> Plan:
        """Return the plan for these rates, by input, in tuples a second."""
        found, notes = check_rates(self.network, rates)
        if not any(operator.cost for operator in self.network.operators.values()) and not self.network.bandwidths:
            notes = (*notes, "no operator costs anything: nothing is ever overloaded")
        notes = (*notes, *self._caveats())
        real = np.array([float(rates[name]) for name in self.network.inputs])
        keep = self._whole(found) if self.flows.overloaded(found) else np.ones(len(self.flows.locations))
        if np.any(real > found):  # what comes beyond a max_rate is dropped where it enters
            keep[: real.size] *= np.divide(found, real, out=np.ones_like(real), where=real > found)
        return self._evaluated(real, keep, overloaded=self.flows.overloaded(real), notes=notes)

    def _caveats(self) -> tuple[str, ...]:
        """What a user of its plans should know."""
        return ()

    def _whole(self, rates: Vector) -> Vector:
        """Plans made in advance are for what is worth something: the rest goes first, and whole.

        Next to a score of nearly nothing no finite number of plans keeps a relative error.
        """
        if not self._in_advance or self._worthy.all():
            return self._keep(rates)
        left = np.where(self._worthy, rates, 0.0)
        keep = self._keep(left) if self.flows.overloaded(left) else np.ones(len(self.flows.locations))
        keep[: rates.size][~self._worthy] = 0.0
        return keep

    @cached_property
    def _worthy(self) -> NDArray[np.bool_]:
        quality = Coefficients(self.network).quality
        return np.array([quality[name] > 0 for name in self.flows.inputs])

    @abstractmethod
    def _keep(self, rates: Vector) -> Vector:
        """Return the keep at each location of ``flows`` for rates that overload the network."""

    def _evaluated(self, rates: Vector, keep: Vector, *, overloaded: bool, notes: tuple[str, ...]) -> Plan:
        flows = self.flows
        y = flows.passing(rates, keep)
        through = flows.through @ y
        return Plan(
            self.name,
            dict(zip(flows.inputs, rates.tolist(), strict=True)),
            dict(zip(flows.place, keep.tolist(), strict=True)),
            float(through @ flows.weights),
            dict(zip(flows.nodes, (flows.loads @ y).tolist(), strict=True)),
            dict(zip(flows.outputs, through.tolist(), strict=True)),
            dict(zip(flows.nodes, flows.capacity.tolist(), strict=True)),
            overloaded,
            dict(zip(self.network.bandwidths, (flows.links @ y).tolist(), strict=True)) if self.network.bandwidths else {},
            self.network.bandwidths,
            notes,
        )


def check_rates(network: Network, rates: Mapping[str, float]) -> tuple[Vector, tuple[str, ...]]:
    """Return the rates in the order of the inputs, none above its ``max_rate``, and what had to be said about them."""
    unknown = [name for name in rates if name not in network.inputs]
    if unknown:
        raise PenstockError(f"rate of {unknown[0]!r}: there is no such input; there are {', '.join(network.inputs)}")
    missing = [name for name in network.inputs if name not in rates]
    if missing:
        raise PenstockError(f"no rate for input {missing[0]!r}: give one for each of {', '.join(network.inputs)}")
    notes = []
    found = np.empty(len(network.inputs))
    for number, (name, stream) in enumerate(network.inputs.items()):
        rate = rates[name]
        if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not (math.isfinite(rate) and rate >= 0):
            raise PenstockError(f"rate of {name!r} must be finite and not negative, got {rate!r}")
        if rate > stream.max_rate:
            notes.append(f"rate of {name!r} was {rate:g}, above its max_rate: planned for {stream.max_rate:g}")
        found[number] = min(float(rate), stream.max_rate)
    return found, tuple(notes)


def check_epsilon(epsilon: float) -> float:
    """Return a relative error bound, or say what is wrong with it."""
    if not (isinstance(epsilon, int | float) and 0 < epsilon < 1):
        raise PenstockError(f"epsilon must lie in (0, 1), got {epsilon!r}")
    return float(epsilon)
