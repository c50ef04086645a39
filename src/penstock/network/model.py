"""A query network: a directed acyclic graph of operators over nodes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from penstock.errors import PenstockError

__all__ = ["Input", "Kind", "Network", "Node", "Operator", "Output", "arc_name"]

Kind = Literal["map", "filter", "aggregate", "join", "union", "delay"]
"""What an operator is; of one input all are the same here: a cost and a selectivity."""

ARROW = "->"


def arc_name(source: str, target: str) -> str:
    """Name an arc, as drop locations and links are named.

    >>> arc_name("a1", "b1")
    'a1->b1'
    """
    # In the part of a network that one node runs, what leaves the node is an output that has the arc's name already.
    return target if target.startswith(source + ARROW) else f"{source}{ARROW}{target}"


@dataclass(frozen=True, slots=True)
class Node:
    """Where operators run: an application with ``capacity`` CPU seconds a second."""

    name: str
    capacity: float = 1.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (_is_number(self.capacity) and self.capacity > 0):
            raise _wrong(self, "node", f"capacity must be positive and finite, got {self.capacity!r}")


@dataclass(frozen=True, slots=True)
class Input:
    """A stream from outside. ``max_rate`` bounds what is planned for; ``floor`` is the least keep at its drop location."""

    name: str
    max_rate: float = math.inf
    floor: float = 0.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.max_rate, int | float | np.number) and self.max_rate > 0):
            raise _wrong(self, "input", f"max_rate must be positive, got {self.max_rate!r}")
        _check_share(self, "input", self.floor)


@dataclass(frozen=True, slots=True)
class Operator:
    """Takes tuples at ``cost`` CPU seconds each and makes ``selectivity`` tuples of each.

    A union has two sources or more. A join has two and their windows: ``selectivity`` is then the share of all pairs that match.
    Windows in tuples make its output linear in the rates (paper 000, equation 9): a tuple of one side meets the window of the
    other. Windows in seconds (``timed``) make it bilinear.
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

    def __post_init__(self) -> None:
        if not (_is_number(self.cost) and self.cost >= 0):
            raise _wrong(self, "operator", f"cost must be finite and not negative, got {self.cost!r}")
        if not (_is_number(self.selectivity) and self.selectivity >= 0):
            raise _wrong(self, "operator", f"selectivity must be finite and not negative, got {self.selectivity!r}")
        if self.kind not in get_args(Kind):
            raise _wrong(self, "operator", f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if len(set(self.sources)) != len(self.sources):
            raise _wrong(self, "operator", f"reads from the same source twice: {', '.join(self.sources)}")
        self._check_sources()

    def _check_sources(self) -> None:
        count = len(self.sources)
        if count == 0:
            raise _wrong(self, "operator", "reads from nothing: say with 'from' which input or operator feeds it")
        if self.kind == "join":
            if count != 2:
                raise _wrong(self, "operator", f"a join has two sources, got {count}")
            if self.windows is None or len(self.windows) != 2 or not all(_is_number(w) and w > 0 for w in self.windows):
                raise _wrong(self, "operator", f"a join needs two positive windows, such as [100, 50], got {self.windows!r}")
        elif self.windows is not None:
            raise _wrong(self, "operator", f"only a join has windows, and its kind is {self.kind}")
        elif self.kind == "union" and count < 2:
            raise _wrong(self, "operator", "a union has two sources or more, got one")
        elif self.kind != "union" and count > 1:
            raise _wrong(self, "operator", f"has {count} sources: its kind must be union or join, and is {self.kind}")

    def gain(self, source: str) -> float:
        """How many tuples one tuple from this source becomes (equation 9 for a join with windows in tuples).

        >>> Operator("j", "A", ("x", "y"), 1.0, 0.01, "join", windows=(100, 50)).gain("x")
        0.5
        """
        if self.windows is None:
            return self.selectivity
        return self.selectivity * self.windows[1 - self.sources.index(source)]


@dataclass(frozen=True, slots=True)
class Output:
    """Where a query's answers leave. ``weight`` is what a tuple is worth; ``floor`` the least share of its full throughput."""

    name: str
    source: str
    weight: float = 1.0
    floor: float = 0.0
    line: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not (_is_number(self.weight) and self.weight >= 0):
            raise _wrong(self, "output", f"weight must be finite and not negative, got {self.weight!r}")
        _check_share(self, "output", self.floor)


@dataclass(frozen=True, slots=True)
class Network:
    """Operators over nodes, checked: every name is known, nothing is cyclic, every number makes sense.

    ``bandwidths`` limits arcs between nodes, by the arc's name, in tuples a second. ``order`` has the operators so that each
    comes after its sources.

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
    """By input, operator or output: what it reads, does or writes, for whoever runs the network. Plans don't need it."""
    order: tuple[str, ...] = field(init=False)
    consumers: Mapping[str, tuple[str, ...]] = field(init=False, repr=False)
    """By input or operator: the operators and outputs that it feeds."""

    def __post_init__(self) -> None:
        self._check_names()
        consumers: dict[str, list[str]] = {name: [] for name in (*self.inputs, *self.operators)}
        for operator in self.operators.values():
            for source in operator.sources:
                consumers[source].append(operator.name)
        for output in self.outputs.values():
            consumers[output.source].append(output.name)
        object.__setattr__(self, "consumers", {name: tuple(found) for name, found in consumers.items()})
        object.__setattr__(self, "order", self._sorted())
        for name, value in self.inputs.items():
            if not consumers[name]:
                raise _wrong(value, "input", "feeds no operator and no output: remove it or use it")
        self._check_bandwidths()
        arcs = {arc_name(source, target) for source, targets in consumers.items() for target in targets}
        unknown = [name for name in self.work if name not in consumers and name not in self.outputs and name not in arcs]
        if unknown:
            raise PenstockError(f"{unknown[0]!r}: there is no input, operator, output or arc of that name; an arc is 'a1->b1'")

    def _check_names(self) -> None:
        taken: dict[str, str] = {}
        for kind, members in (("input", self.inputs), ("operator", self.operators), ("output", self.outputs)):
            for name, value in members.items():
                if name in taken:
                    raise _wrong(
                        value, kind, f"its name is taken by an {taken[name]}: names of inputs, operators and outputs differ"
                    )
                taken[name] = kind
        for operator in self.operators.values():
            if operator.node not in self.nodes:
                raise _wrong(
                    operator, "operator", f"runs on node {operator.node!r}, which is not among the nodes: {_some(self.nodes)}"
                )
            for source in operator.sources:
                if taken.get(source) not in ("input", "operator"):
                    raise _wrong(operator, "operator", f"reads from {source!r}, which is neither an input nor an operator")
        for output in self.outputs.values():
            if taken.get(output.source) not in ("input", "operator"):
                raise _wrong(
                    output, "output", f"has no path from an input: {output.source!r} is neither an input nor an operator"
                )

    def _sorted(self) -> tuple[str, ...]:
        """Order the operators by their sources, or name those in a cycle."""
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
            cycle = self._cycle({name for name, count in waiting.items() if count})
            raise _wrong(self.operators[cycle[0]], "operator", f"is part of a cycle: {' -> '.join((*cycle, cycle[0]))}")
        return tuple(order)

    def _cycle(self, left: set[str]) -> list[str]:
        """Walk upstream among operators that wait for each other until one comes again."""
        name, path = min(left), []
        while name not in path:
            path.append(name)
            name = next(source for source in self.operators[name].sources if source in left)
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
        """The joins with windows in seconds: their output is a product of two rates, which no linear plan covers."""
        return tuple(operator.name for operator in self.operators.values() if operator.timed)

    @property
    def has_floors(self) -> bool:
        """Whether some input or output must keep a share."""
        return any(stream.floor for stream in self.inputs.values()) or any(output.floor for output in self.outputs.values())

    def node_of(self, name: str) -> str | None:
        """The node of an operator; inputs and outputs are on none."""
        operator = self.operators.get(name)
        return operator.node if operator is not None else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def _check_share(value: Input | Output, kind: str, share: float) -> None:
    if not (_is_number(share) and 0 <= share <= 1):
        raise _wrong(value, kind, f"floor must lie in [0, 1], got {share!r}")


def _wrong(value: Node | Input | Operator | Output, kind: str, message: str) -> PenstockError:
    place = f"line {value.line}: " if value.line is not None else ""
    return PenstockError(f"{place}{kind} {value.name!r}: {message}")


def _some(names: Mapping[str, object]) -> str:
    shown = list(names)[:8]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "there are none"
