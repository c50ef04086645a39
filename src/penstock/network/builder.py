"""Build a query network in Python, one call per part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from penstock.errors import PenstockError
from penstock.network.model import ARROW, Drop, Input, Kind, Network, Node, Operator, Output
from penstock.network.transport_settings import TransportSettings

__all__ = ["NetworkBuilder"]


class NetworkBuilder:
    """Collect the parts of a network, then check and return it with ``build``.

    Every method except ``build`` returns the builder, so calls can be chained. ``line`` is the line in a YAML file; error
    messages start with it. ``does`` says what a part does when the network runs on Spark, with the same keys as in YAML. Plans
    do not need it.

    Examples
    --------
    Figure 1 of Staying FIT (Tatbul, Çetintemel, Zdonik):

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
        self._clusters: dict[str, tuple[str, ...]] = {}
        self._transport = TransportSettings()

    def node(self, name: str, capacity: float = 1.0, *, line: int | None = None) -> Self:
        """Add a node that provides ``capacity`` CPU seconds per second."""
        _check_name("node", name, self._nodes, line)
        self._nodes[name] = Node(name, capacity, line)
        return self

    def cluster(self, name: str, *nodes: str, line: int | None = None) -> Self:
        """Let D-FIT plan for some nodes as if they were one."""
        _check_name("cluster", name, self._clusters, line)
        self._clusters[name] = nodes
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
        """Add a stream from outside; ``does`` says how to read it."""
        _check_name("input", name, self._inputs, line)
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
        drop: Drop | None = None,
        line: int | None = None,
        does: Mapping[str, Any] | None = None,
    ) -> Self:
        """Add an operator with one source, or a union or join with several; ``does`` says what it does to its rows.

        ``drop`` says what is dropped whole before an aggregate or a join: rows, keys or windows. By default that follows from
        what the operator does.
        """
        _check_name("operator", name, self._operators, line)
        self.note_work(name, does)
        self._operators[name] = Operator(name, node, sources, cost, selectivity, kind, windows, timed, line, drop)
        return self

    def union(self, name: str, node: str, *sources: str, cost: float = 0.0) -> Self:
        """Add a union."""
        return self.operator(name, node, *sources, cost=cost, kind="union")

    def join(
        self,
        name: str,
        node: str,
        left: str,
        right: str,
        *,
        cost: float,
        selectivity: float,
        windows: tuple[float, float],
        timed: bool = False,
    ) -> Self:
        """Add a join whose windows are counted in tuples or, if it is ``timed``, in seconds."""
        return self.operator(
            name, node, left, right, cost=cost, selectivity=selectivity, kind="join", windows=windows, timed=timed
        )

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
        """Add an output whose tuples are worth ``weight`` each; ``does`` says where to write them."""
        _check_name("output", name, self._outputs, line)
        self.note_work(name, does)
        self._outputs[name] = Output(name, source, weight, floor, line)
        return self

    def link(self, source: str, target: str, bandwidth: float) -> Self:
        """Limit the arc from ``source`` to ``target`` to ``bandwidth`` tuples per second."""
        self._bandwidths[f"{source}{ARROW}{target}"] = bandwidth
        return self

    def transport(self, settings: TransportSettings) -> Self:
        """Say what carries rows and messages between nodes; a shared directory unless it is said."""
        self._transport = settings
        return self

    def note_work(self, name: str, does: Mapping[str, Any] | None) -> None:
        """Record what a part reads, does or writes; for an arc, how many of its micro-batches are read at once."""
        if does:
            self._work[name] = dict(does)

    def build(self) -> Network:
        """Check the parts and return the network.

        Raises
        ------
        PenstockError
            If a name is unknown or used twice, a number is out of range, the operators form a cycle, or a part is missing.
        """
        for name, members in (("inputs", self._inputs), ("operators", self._operators), ("outputs", self._outputs)):
            if not members:
                raise PenstockError(f"the network has no {name}")
        parts = (self._nodes, self._inputs, self._operators, self._outputs, self._bandwidths, self._work, self._clusters)
        copies: list[Any] = [dict(part) for part in parts]  # the builder may add more later
        return Network(*[*copies, self._transport])


def _check_name(kind: str, name: str, members: dict[str, object] | object, line: int | None) -> None:
    prefix = f"line {line}: " if line is not None else ""
    if not isinstance(name, str) or not name:
        raise PenstockError(f"{prefix}{kind}: its name must be text, got {name!r}")
    if isinstance(members, dict) and name in members:
        raise PenstockError(f"{prefix}{kind} {name!r}: this name is already in use")
    if ARROW in name:
        raise PenstockError(f"{prefix}{kind} {name!r}: a name must not contain '{ARROW}', which denotes an arc")
