"""Build a query network in Python, a line for each part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from penstock.errors import PenstockError
from penstock.network.model import ARROW, Input, Kind, Network, Node, Operator, Output

__all__ = ["NetworkBuilder"]


class NetworkBuilder:
    """Collects the parts of a network; ``build`` checks the whole.

    Figure 1 of paper 000:

    >>> network = (
    ...     NetworkBuilder()
    ...     .node("A").node("B")
    ...     .input("i1", max_rate=1.0).input("i2", max_rate=1.0)
    ...     .operator("a1", "A", "i1", cost=1.0).operator("a2", "A", "i2", cost=2.0)
    ...     .operator("b1", "B", "a1", cost=3.0).operator("b2", "B", "a2", cost=1.0)
    ...     .output("q1", "b1").output("q2", "b2")
    ...     .build()
    ... )
    >>> list(network.operators)
    ['a1', 'a2', 'b1', 'b2']
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._inputs: dict[str, Input] = {}
        self._operators: dict[str, Operator] = {}
        self._outputs: dict[str, Output] = {}
        self._bandwidths: dict[str, float] = {}
        self._work: dict[str, Mapping[str, Any]] = {}

    def node(self, name: str, capacity: float = 1.0, *, line: int | None = None) -> Self:
        """Add a node with its CPU seconds a second."""
        _check_new("node", name, self._nodes, line)
        self._nodes[name] = Node(name, capacity, line)
        return self

    def input(
        self,
        name: str,
        max_rate: float = math.inf,
        *,
        floor: float = 0.0,
        line: int | None = None,
        does: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add a stream from outside; ``does`` says how it is read."""
        _check_new("input", name, self._inputs, line)
        self.note_work(name, does)
        self._inputs[name] = Input(name, max_rate, floor, line)
        return self

    def operator(
        self,
        name: str,
        node: str,
        *sources: str,
        cost: float = 0.0,
        selectivity: float = 1.0,
        kind: Kind = "map",
        windows: tuple[float, float] | None = None,
        timed: bool = False,
        line: int | None = None,
        does: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add an operator of one source, or a union or a join of several; ``does`` says what it does to its rows."""
        _check_new("operator", name, self._operators, line)
        self.note_work(name, does)
        self._operators[name] = Operator(name, node, sources, cost, selectivity, kind, windows, timed, line)
        return self

    def union(self, name: str, node: str, *sources: str, cost: float = 0.0) -> Self:
        """Add a union."""
        return self.operator(name, node, *sources, cost=cost, kind="union")

    def join(
        self, name: str, node: str, left: str, right: str, *, cost: float, selectivity: float, windows: tuple[float, float]
    ) -> Self:
        """Add a join with windows in tuples."""
        return self.operator(name, node, left, right, cost=cost, selectivity=selectivity, kind="join", windows=windows)

    def output(
        self,
        name: str,
        source: str,
        weight: float = 1.0,
        *,
        floor: float = 0.0,
        line: int | None = None,
        does: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add an output and what a tuple of it is worth; ``does`` says where it is written."""
        _check_new("output", name, self._outputs, line)
        self.note_work(name, does)
        self._outputs[name] = Output(name, source, weight, floor, line)
        return self

    def link(self, source: str, target: str, bandwidth: float) -> Self:
        """Limit an arc between two nodes to so many tuples a second."""
        self._bandwidths[f"{source}{ARROW}{target}"] = bandwidth
        return self

    def note_work(self, name: str, does: Mapping[str, Any] | None) -> None:
        """Say what a part reads, does or writes; of an arc, how many of its micro-batches are read at once."""
        if does:
            self._work[name] = dict(does)

    def build(self) -> Network:
        """Check the whole and return it."""
        for name, members in (("inputs", self._inputs), ("operators", self._operators), ("outputs", self._outputs)):
            if not members:
                raise PenstockError(f"the network has no {name}")
        parts = (self._nodes, self._inputs, self._operators, self._outputs, self._bandwidths, self._work)
        return Network(*(dict(part) for part in parts))  # type: ignore[arg-type]  # the builder may go on


def _check_new(kind: str, name: str, members: dict[str, object] | object, line: int | None) -> None:
    place = f"line {line}: " if line is not None else ""
    if not isinstance(name, str) or not name:
        raise PenstockError(f"{place}{kind}: its name must be text, got {name!r}")
    if isinstance(members, dict) and name in members:
        raise PenstockError(f"{place}{kind} {name!r}: there is one of that name already")
    if ARROW in name:
        raise PenstockError(f"{place}{kind} {name!r}: a name must not contain '{ARROW}', which writes an arc")
