"""The plan that every planner returns, and the base class of planners."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.errors import PenstockError
from penstock.network.drops import derive_drops
from penstock.network.facts import Facts
from penstock.network.fragments import split_into_fragments
from penstock.network.model import Network
from penstock.planning.floors import FloorReserve
from penstock.planning.flows import Flows, Vector, feasible_keep

__all__ = ["Fragment", "Plan", "Planner", "check_epsilon", "check_rates"]

Index = Mapping[str, int]
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Plan:
    """The keep at each drop location, and the rates and loads that result.

    All other numbers are computed from ``keep`` by propagating the rates through the network. They do not rely on the planner's
    own estimates. ``loads`` are in CPU seconds per second, like ``capacities``; ``links`` are in tuples per second, like
    ``bandwidths``.
    """

    method: str
    rates: Mapping[str, float]
    keep: Mapping[str, float]
    score: float
    """The total weighted throughput (Staying FIT, equation 3)."""
    loads: Mapping[str, float]
    throughput: Mapping[str, float]
    capacities: Mapping[str, float]
    overloaded: bool
    """Whether the network is overloaded if nothing is dropped."""
    links: Mapping[str, float]
    bandwidths: Mapping[str, float]
    notes: tuple[str, ...] = ()
    """What a user of the plan should know."""

    @property
    def feasible(self) -> bool:
        """Whether no node exceeds its capacity and no link its bandwidth under the plan."""
        pairs = ((self.loads, self.capacities), (self.links, self.bandwidths))
        return all(used[name] <= limit * (1 + _TOLERANCE) for used, limits in pairs for name, limit in limits.items())

    @property
    def bottleneck(self) -> str:
        """The node with the highest load relative to its capacity."""
        return max(self.loads, key=lambda name: self.loads[name] / self.capacities[name])

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as ``penstock plan --json`` prints it."""
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
    """Base class of planners, which answer how much each drop location should keep at given rates.

    A planning method is a subclass with a ``name`` and a ``_keep``. It returns the keeps only when the rates overload the
    network; ``plan`` handles all other cases and computes the loads, the throughputs and the score.
    """

    name: ClassVar[str]
    _plans_ahead: ClassVar[bool] = False
    """Whether the method prepares plans before it knows the rates."""
    _ties_keeps: ClassVar[bool] = False
    """Whether the method can give several locations one keep."""

    def __init__(self, network: Network, flows: Flows | None = None) -> None:
        if network.bilinear and not self._ties_keeps:
            raise PenstockError(
                f"join {network.bilinear[0]!r} has windows in seconds, so both of its sides must have one keep, which "
                f"{self.name} can't plan: use exact, or give its windows in tuples"
            )
        self.network = network
        self.flows = flows if flows is not None else Flows(network)
        self.fragments: tuple[Fragment, ...] = ()
        """The independent parts of the network, each with a planner of its own; none if the network is all of one piece."""

    def _plan_apart(self, make: Callable[[Network, int], Planner]) -> bool:
        """Let a planner of its own plan for each fragment of the network, and return whether there are several.

        ``make`` gets a fragment and how many there are. Staying FIT, section 8.2.4: what shares neither a node nor a stream need
        not be planned together.
        """
        fragments = split_into_fragments(self.network)
        if len(fragments) != 1 or fragments[0] is not self.network:
            network = self.network
            indexes = [_index(part) for part in (network.inputs, self.flows.location_index, network.operators, network.nodes)]
            self.fragments = tuple(Fragment(make(fragment, len(fragments)), *indexes) for fragment in fragments)
        return bool(self.fragments)

    def update(self, facts: Facts) -> None:  # noqa: ARG002 - for those that can
        """Plan with other costs, selectivities and capacities from now on. ``network`` keeps the declared ones.

        Raises
        ------
        PenstockError
            If the method plans ahead: then build a new planner.
        """
        raise PenstockError(f"{self.name} cannot change the numbers of its network: build a new planner")

    def plan(self, rates: Mapping[str, float]) -> Plan:
        """Return the plan for these rates.

        Parameters
        ----------
        rates
            Tuples per second by input. If they overload the network, a note says which are above the ``max_rate`` of their input.
            Methods that plan in advance then look up the plan for ``max_rate``, and let more through as far as nodes have
            capacity.

        Raises
        ------
        PenstockError
            If a rate is missing, unknown, negative or not finite.
        """
        _, capped = check_rates(self.network, rates)
        offered = np.array([float(rates[name]) for name in self.network.inputs])
        overloaded = self.flows.is_overloaded(offered)
        notes = capped if overloaded else ()
        if not np.any(self.flows.facts.costs) and not self.network.bandwidths:
            notes = (*notes, "no operator has a cost, so nothing is ever overloaded")
        notes = (*notes, *self._caveats(), *self._loose_ties)
        keep, more = self.shed(offered)
        return self._evaluate(offered, keep, overloaded=overloaded, notes=(*notes, *more))

    def _caveats(self) -> tuple[str, ...]:
        """Return notes for every plan of this planner."""
        return ()

    @cached_property
    def _loose_ties(self) -> tuple[str, ...]:
        """Notes on the locations that must share one keep, for methods that plan each location by itself."""
        groups = () if self._ties_keeps else derive_drops(self.network).ties.groups
        return tuple(f"{', '.join(group)} must have one keep to drop the same: they get the least of theirs" for group in groups)

    def shed(self, rates: Vector) -> tuple[Vector, tuple[str, ...]]:
        """Return the keep at each location of ``flows``, and what there is to say about it: ``plan`` without checks and names.

        ``rates`` are in the order of the inputs. A fragment that is not overloaded drops nothing.
        """
        keep, notes = np.ones(len(self.flows.locations)), []
        nodes, links = self.flows.find_overloaded(rates)
        if not (nodes.any() or links.any()):
            return keep, ()
        if not self.fragments:
            return self._shed_ahead(rates) if self._plans_ahead else self._keep_with_notes(rates)
        for fragment in self.fragments:
            if nodes[fragment.nodes].any() or fragment.planner.network.bandwidths:
                keep[fragment.locations], more = fragment.planner.shed(rates[fragment.inputs])
                notes += more
        return keep, tuple(notes)

    def _shed_ahead(self, rates: Vector) -> tuple[Vector, tuple[str, ...]]:
        """Return the keeps of a method that plans in advance: for rates up to ``max_rate``, and without floors."""
        planned = np.minimum(rates, [stream.max_rate for stream in self.network.inputs.values()])
        is_above = bool(np.any(rates > planned))
        if not self.network.has_floors and not is_above:
            return self._drop_worthless_first(rates), ()
        flow, notes = self._plan_flow(planned)
        return feasible_keep(self.flows, rates, self._fill(rates, flow) if is_above else flow), notes

    def _plan_flow(self, rates: Vector) -> tuple[Vector, tuple[str, ...]]:
        """Return the flow past each location by a method that plans in advance, and notes on floors."""
        if not self.network.has_floors:
            return self.flows.propagate(rates, self._drop_worthless_first(rates)), ()
        reserved, used = self._floor_reserve.flow(rates)
        if used >= 1.0:
            note = f"the floors overload a node by themselves: all are lowered to {1 / used:.1%} of what they ask for"
            return reserved / used, (note,) if used > 1.0 + _TOLERANCE else ()
        rest = np.maximum(rates - reserved[: rates.size], 0.0) / (1.0 - used)
        return reserved + (1.0 - used) * self.flows.propagate(rest, self._drop_worthless_first(rest)), ()

    @cached_property
    def _floor_reserve(self) -> FloorReserve:
        return FloorReserve(self.flows)

    def _fill(self, rates: Vector, flow: Vector) -> Vector:
        """Let more through at all locations, by the same share of what is missing, until a node or a link is full."""
        missing = self.flows.propagate(rates, np.ones(flow.size)) - flow
        limits = np.concatenate([self.flows.capacity, self.flows.bandwidths])
        used = np.concatenate([self.flows.loads @ flow, self.flows.links @ flow])
        more = np.concatenate([self.flows.loads @ missing, self.flows.links @ missing])
        room = np.divide(limits - used, more, out=np.full(limits.size, np.inf), where=more > 0)
        return flow + min(1.0, max(0.0, float(np.min(room)))) * missing

    def _drop_worthless_first(self, rates: Vector) -> Vector:
        """Return the keeps of a method that plans in advance, which first drops every input that adds nothing to the score.

        Such a method bounds the relative error. With scores near 0, no finite number of plans can.
        """
        if not self.flows.is_overloaded(rates):
            return np.ones(len(self.flows.locations))
        if self._has_worth.all():
            return self._keep(rates)
        worthwhile = np.where(self._has_worth, rates, 0.0)
        keep = self._keep(worthwhile) if self.flows.is_overloaded(worthwhile) else np.ones(len(self.flows.locations))
        keep[: rates.size][~self._has_worth] = 0.0
        return keep

    @cached_property
    def _has_worth(self) -> NDArray[np.bool_]:
        """By input: whether its tuples add to the score."""
        worth: NDArray[np.bool_] = self.flows.accumulate(self.flows.value)[: len(self.flows.inputs)] > 0
        return worth

    def _keep_with_notes(self, rates: Vector) -> tuple[Vector, tuple[str, ...]]:
        """Return the keep at each location, and what a user of this plan should know."""
        return self._keep(rates), ()

    @abstractmethod
    def _keep(self, rates: Vector) -> Vector:
        """Return the keep at each location of ``flows``, for rates that overload the network."""

    def _evaluate(self, rates: Vector, keep: Vector, *, overloaded: bool, notes: tuple[str, ...]) -> Plan:
        flows = self.flows
        y = flows.propagate(rates, keep)
        through = flows.through @ y
        return Plan(
            self.name,
            dict(zip(flows.inputs, rates.tolist(), strict=True)),
            dict(zip(flows.location_index, keep.tolist(), strict=True)),
            float(through @ flows.weights),
            dict(zip(flows.nodes, (flows.loads @ y).tolist(), strict=True)),
            dict(zip(flows.outputs, through.tolist(), strict=True)),
            dict(zip(flows.nodes, flows.capacity.tolist(), strict=True)),
            overloaded,
            dict(zip(self.network.bandwidths, (flows.links @ y).tolist(), strict=True)) if self.network.bandwidths else {},
            self.network.bandwidths,
            notes,
        )


class Fragment:
    """A part of a network with a planner of its own, and where it is in the whole."""

    def __init__(self, planner: Planner, inputs: Index, locations: Index, operators: Index, nodes: Index) -> None:
        self.planner: Any = planner  # of the same class as that of the whole
        network = planner.network
        self.inputs = _positions(network.inputs, inputs)
        self.locations = _positions(planner.flows.location_index, locations)
        self.nodes = _positions(network.nodes, nodes)
        self._operators = _positions(network.operators, operators)

    def select(self, facts: Facts) -> Facts:
        """Return the facts of this part."""
        return facts.select(self._operators, self.nodes)


def _index(names: Iterable[str]) -> Index:
    return {name: number for number, name in enumerate(names)}


def _positions(names: Iterable[str], index: Index) -> NDArray[np.int64]:
    return np.array([index[name] for name in names], dtype=np.int64)


def check_rates(network: Network, rates: Mapping[str, float]) -> tuple[Vector, tuple[str, ...]]:
    """Return the rates in the order of the inputs, each capped at its ``max_rate``, and a note for each that was capped."""
    unknown = [name for name in rates if name not in network.inputs]
    if unknown:
        raise PenstockError(f"rate of {unknown[0]!r}: there is no such input; inputs: {', '.join(network.inputs)}")
    missing = [name for name in network.inputs if name not in rates]
    if missing:
        raise PenstockError(f"no rate for input {missing[0]!r}: give a rate for each of {', '.join(network.inputs)}")
    values = [rates[name] for name in network.inputs]
    if {type(value) for value in values} <= {float, int}:  # the usual case, all at once
        planned = np.array(values, dtype=np.float64)
        limits = np.array([stream.max_rate for stream in network.inputs.values()])
        if np.all(np.isfinite(planned)) and np.all(planned >= 0) and np.all(planned <= limits):
            return planned, ()
    notes = []
    capped = np.empty(len(network.inputs))
    for number, (name, stream) in enumerate(network.inputs.items()):
        rate = rates[name]
        if isinstance(rate, bool) or not isinstance(rate, int | float | np.number) or not (math.isfinite(rate) and rate >= 0):
            raise PenstockError(f"rate of {name!r} must be finite and not negative, got {rate!r}")
        if rate > stream.max_rate:
            notes.append(f"the rate of {name!r} is {rate:g}, above its max_rate of {stream.max_rate:g}")
        capped[number] = min(float(rate), stream.max_rate)
    return capped, tuple(notes)


def check_epsilon(epsilon: float) -> float:
    """Return a relative error bound, or raise if it is not in (0, 1)."""
    if not (isinstance(epsilon, int | float) and 0 < epsilon < 1):
        raise PenstockError(f"epsilon must lie in (0, 1), got {epsilon!r}")
    return float(epsilon)
