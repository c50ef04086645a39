"""A query network: a directed acyclic graph of operators over nodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from penstock.errors import PenstockError
from penstock.network.transport_settings import TransportSettings

__all__ = ["Drop", "Input", "Kind", "Network", "Node", "Operator", "Output", "arc_name"]

Kind = Literal["map", "filter", "aggregate", "join", "union", "delay"]
"""What an operator does. Planners treat all kinds with one source alike: a cost and a selectivity."""

Drop = Literal["rows", "keys", "windows"]
"""What the gates before an operator with state keep or drop as a whole."""

ARROW = "->"


def arc_name(source: str, target: str) -> str:
    """Return the name of an arc, which drop locations and links share.

    >>> arc_name("a1", "b1")
    'a1->b1'
    """
    # In the part of a network that runs on one node, a stream to another node is an output that already has the arc's name.
    return target if target.startswith(source + ARROW) else f"{source}{ARROW}{target}"


@dataclass(frozen=True, slots=True)
class Node:
    """An application that runs operators, with ``capacity`` CPU seconds per second."""

    name: str
    capacity: float = 1.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (_is_number(self.capacity) and self.capacity > 0):
            raise _error_at(self, "node", f"capacity must be positive and finite, got {self.capacity!r}")


@dataclass(frozen=True, slots=True)
class Input:
    """A stream from outside. ``max_rate`` bounds the rates to plan for; ``floor`` is the minimum keep where it enters."""

    name: str
    max_rate: float = math.inf
    floor: float = 0.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.max_rate, int | float | np.number) and self.max_rate > 0):
            raise _error_at(self, "input", f"max_rate must be positive, got {self.max_rate!r}")
        _check_floor(self, "input", self.floor)


@dataclass(frozen=True, slots=True)
class Operator:
    """Processes tuples at ``cost`` CPU seconds each and emits ``selectivity`` tuples per tuple.

    A union has at least two sources. A join has exactly two, with a window for each: its ``selectivity`` is the share of all
    pairs that match. With windows in tuples, its output is linear in the rates, because each tuple meets the whole window of the
    other side (Staying FIT, equation 9). With windows in seconds (``timed``), it is a product of both rates. If whole keys are
    dropped, with one keep for both sides, a tuple that is kept still meets all of its partners, so the output is linear in that
    keep. How many partners that are depends on ``side_rates``, the tuples per second that reach each side if nothing is dropped.

    ``drop`` says what the gates before an aggregate or a join keep or drop as a whole; ``None`` leaves that to what it does.
    """

    name: str
    node: str
    sources: tuple[str, ...]
    cost: float
    selectivity: float = 1.0
    kind: Kind = "map"
    windows: tuple[float, float] | None = None
    timed: bool = False
    line: int | None = field(default=None, compare=False, repr=False)
    drop: Drop | None = None
    side_rates: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if not (_is_number(self.cost) and self.cost >= 0):
            raise _error_at(self, "operator", f"cost must be finite and not negative, got {self.cost!r}")
        if not (_is_number(self.selectivity) and self.selectivity >= 0):
            raise _error_at(self, "operator", f"selectivity must be finite and not negative, got {self.selectivity!r}")
        if self.kind not in get_args(Kind):
            raise _error_at(self, "operator", f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if len(set(self.sources)) != len(self.sources):
            raise _error_at(self, "operator", f"reads from the same source twice: {', '.join(self.sources)}")
        self._check_sources()
        self._check_drop()

    def _check_drop(self) -> None:
        units = {"aggregate": get_args(Drop), "join": ("rows", "keys")}.get(self.kind, ())
        if self.drop is None or self.drop in units:
            return
        if self.drop not in get_args(Drop):
            raise _error_at(self, "operator", f"drop must be one of {', '.join(get_args(Drop))}, got {self.drop!r}")
        if self.kind == "join":
            raise _error_at(self, "operator", "a join can't drop whole windows, since its rows meet across windows: drop keys")
        raise _error_at(
            self, "operator", f"drop says what is dropped before an operator with state: aggregate or join, got {self.kind}"
        )

    def _check_sources(self) -> None:
        count = len(self.sources)
        if count == 0:
            raise _error_at(self, "operator", "has no source: name the input or operator that feeds it in 'from'")
        if self.kind == "join":
            if count != 2:
                raise _error_at(self, "operator", f"a join needs two sources, got {count}")
            if self.windows is None or len(self.windows) != 2 or not all(_is_number(w) and w > 0 for w in self.windows):
                raise _error_at(self, "operator", f"a join needs two positive windows, such as [100, 50], got {self.windows!r}")
        elif self.windows is not None:
            raise _error_at(self, "operator", f"only a join has windows, but its kind is {self.kind}")
        elif self.kind == "union" and count < 2:
            raise _error_at(self, "operator", "a union needs at least two sources, got one")
        elif self.kind != "union" and count > 1:
            raise _error_at(self, "operator", f"has {count} sources: its kind must be union or join, got {self.kind}")

    def gain(self, source: str) -> float:
        """Return the tuples emitted per tuple from this source (Staying FIT, equation 9, for a join).

        With windows in seconds, the window of the other side holds what reaches that side meanwhile if nothing is dropped: a
        tuple of a key that is kept meets all of its partners.

        >>> Operator("j", "A", ("x", "y"), 1.0, 0.01, "join", windows=(100, 50)).gain("x")
        0.5
        >>> Operator("j", "A", ("x", "y"), 1.0, 0.01, "join", windows=(10, 5), timed=True, side_rates=(3, 10)).gain("x")
        0.5
        """
        return self.selectivity * self.gain_factor(source)

    def gain_factor(self, source: str) -> float:
        """Return the gain per unit of selectivity: for a join, the tuples in the window of the other side."""
        if self.windows is None:
            return 1.0
        other = 1 - self.sources.index(source)
        return self.windows[other] if self.side_rates is None else self.windows[other] * self.side_rates[other]


@dataclass(frozen=True, slots=True)
class Output:
    """Where results leave. ``weight`` is the worth of a tuple; ``floor`` is the minimum share of the full throughput to keep."""

    name: str
    source: str
    weight: float = 1.0
    floor: float = 0.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (_is_number(self.weight) and self.weight >= 0):
            raise _error_at(self, "output", f"weight must be finite and not negative, got {self.weight!r}")
        _check_floor(self, "output", self.floor)


@dataclass(frozen=True, slots=True)
class Network:
    """Operators spread over nodes. Construction checks that names are known and unique, numbers in range, and the graph acyclic.

    ``bandwidths`` limits arcs, by name, in tuples per second. ``order`` lists the operators so that each comes after its sources.

    Raises
    ------
    PenstockError
        If a check fails. The message names the part and, if the network comes from a file, its line.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=1.0).output("q", "a").build()
    >>> network.order
    ('a',)
    """

    nodes: Mapping[str, Node]
    inputs: Mapping[str, Input]
    operators: Mapping[str, Operator]
    outputs: Mapping[str, Output]
    bandwidths: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By input, operator, output or arc: what it reads, does or writes when the network runs. Planners ignore it."""
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By name: nodes that D-FIT plans for as one. Other planners ignore it."""
    transport: TransportSettings = field(default_factory=TransportSettings)
    """What carries rows and messages between nodes when the network runs."""
    order: tuple[str, ...] = field(init=False)
    consumers: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)
    """By input and operator: the operators and outputs that it feeds."""
    by_node: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)
    """By node: its operators, each after its sources."""

    def __post_init__(self) -> None:
        self._check_names()
        consumers: dict[str, list[str]] = {name: [] for name in (*self.inputs, *self.operators)}
        for operator in self.operators.values():
            for source in operator.sources:
                consumers[source].append(operator.name)
        for output in self.outputs.values():
            consumers[output.source].append(output.name)
        object.__setattr__(self, "consumers", {name: tuple(targets) for name, targets in consumers.items()})
        object.__setattr__(self, "order", self._sort_operators())
        by_node: dict[str, list[str]] = {name: [] for name in self.nodes}
        for name in self.order:
            by_node[self.operators[name].node].append(name)
        object.__setattr__(self, "by_node", {name: tuple(operators) for name, operators in by_node.items()})
        for name, value in self.inputs.items():
            if not consumers[name]:
                raise _error_at(value, "input", "feeds no operator and no output: connect it or remove it")
        self._check_bandwidths()
        arcs = {arc_name(source, target) for source, targets in consumers.items() for target in targets}
        unknown = [name for name in self.work if name not in consumers and name not in self.outputs and name not in arcs]
        if unknown:
            raise PenstockError(f"there is no input, operator, output or arc {unknown[0]!r}; an arc is written 'a1->b1'")
        self._check_clusters()

    def _check_clusters(self) -> None:
        taken: dict[str, str] = {}
        for name, members in self.clusters.items():
            if name in self.nodes:
                raise PenstockError(f"cluster {name!r}: its name is that of a node: clusters and nodes need distinct names")
            if not members:
                raise PenstockError(f"cluster {name!r} has no nodes: list them, such as [{_list_names(self.nodes)}]")
            for node in members:
                if node not in self.nodes:
                    raise PenstockError(f"cluster {name!r}: there is no node {node!r}; nodes: {_list_names(self.nodes)}")
                if node in taken:
                    twice = "twice" if taken[node] == name else f"in cluster {taken[node]!r} too"
                    raise PenstockError(f"cluster {name!r}: node {node!r} is {twice}: a node is in one cluster at most, once")
                taken[node] = name

    def _check_names(self) -> None:
        taken: dict[str, str] = {}
        for kind, members in (("input", self.inputs), ("operator", self.operators), ("output", self.outputs)):
            for name, value in members.items():
                if name in taken:
                    raise _error_at(
                        value, kind, f"its name is taken by an {taken[name]}: inputs, operators and outputs need distinct names"
                    )
                taken[name] = kind
        for operator in self.operators.values():
            if operator.node not in self.nodes:
                known = _list_names(self.nodes)
                raise _error_at(operator, "operator", f"runs on node {operator.node!r}, which does not exist; nodes: {known}")
            for source in operator.sources:
                if taken.get(source) not in ("input", "operator"):
                    raise _error_at(operator, "operator", f"reads from {source!r}, which is neither an input nor an operator")
        for output in self.outputs.values():
            if taken.get(output.source) not in ("input", "operator"):
                raise _error_at(output, "output", f"reads from {output.source!r}, which is neither an input nor an operator")

    def _sort_operators(self) -> tuple[str, ...]:
        """Sort the operators topologically, or name those that form a cycle."""
        waiting = {name: sum(source in self.operators for source in value.sources) for name, value in self.operators.items()}
        ready = deque(name for name, count in waiting.items() if count == 0)
        order: list[str] = []
        while ready:
            name = ready.popleft()
            order.append(name)
            for consumer in self.consumers[name]:
                if consumer in waiting:
                    waiting[consumer] -= 1
                    if waiting[consumer] == 0:
                        ready.append(consumer)
        if len(order) < len(self.operators):
            cycle = self._find_cycle({name for name, count in waiting.items() if count})
            raise _error_at(self.operators[cycle[0]], "operator", f"is part of a cycle: {' -> '.join((*cycle, cycle[0]))}")
        return tuple(order)

    def _find_cycle(self, blocked: set[str]) -> list[str]:
        """Walk upstream among the blocked operators until one repeats."""
        name, path = min(blocked), []
        while name not in path:
            path.append(name)
            name = next(source for source in self.operators[name].sources if source in blocked)
        return list(reversed(path[path.index(name) :]))

    def _check_bandwidths(self) -> None:
        for name, limit in self.bandwidths.items():
            source, _, target = name.partition(ARROW)
            if target not in self.consumers.get(source, ()):
                raise PenstockError(f"link {name!r}: there is no arc of that name; an arc is written 'a1->b1'")
            if not (_is_number(limit) and limit > 0):
                raise PenstockError(f"link {name!r}: bandwidth must be positive and finite, got {limit!r}")

    @property
    def bilinear(self) -> tuple[str, ...]:
        """The joins with windows in seconds: their output is a product of two rates, linear only in one keep of both sides."""
        return tuple(operator.name for operator in self.operators.values() if operator.timed)

    @property
    def has_floors(self) -> bool:
        """Whether any input or output has a floor."""
        return any(stream.floor for stream in self.inputs.values()) or any(output.floor for output in self.outputs.values())

    def node_of(self, name: str) -> str | None:
        """Return the node of an operator, or ``None`` for an input or an output."""
        operator = self.operators.get(name)
        return operator.node if operator is not None else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def _check_floor(value: Input | Output, kind: str, floor: float) -> None:
    if not (_is_number(floor) and 0 <= floor <= 1):
        raise _error_at(value, kind, f"floor must lie in [0, 1], got {floor!r}")


def _error_at(value: Node | Input | Operator | Output, kind: str, message: str) -> PenstockError:
    prefix = f"line {value.line}: " if value.line is not None else ""
    return PenstockError(f"{prefix}{kind} {value.name!r}: {message}")


def _list_names(names: Mapping[str, object]) -> str:
    first = list(names)[:8]
    return ", ".join(first) + (", ..." if len(names) > len(first) else "") if first else "none"
