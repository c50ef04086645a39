"""From the operators of one node to queries: which of them run as one, and where one must be cut in two."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.network.coefficients import part_of
from penstock.network.model import Network, Operator, arc_name

__all__ = ["NodeQuery", "queries_of"]

_STATEFUL = ("aggregate", "join")


@dataclass(slots=True)
class NodeQuery:
    """Operators that run as one streaming query.

    A query has one result, so its operators merge until there is one stream, the ``tip``. What splits behind the tip is done to
    each micro-batch of it in turn, which an operator without memory doesn't mind. One with memory begins a piece of its own, and
    the arc to it is a ``cut``: it passes through the transport, as an arc to another node does.
    """

    entries: list[str] = field(default_factory=list)
    """Where rows come in: inputs, arcs from other nodes, and cuts."""
    stream: list[str] = field(default_factory=list)
    """The operators of the streaming query, each after its sources."""
    tip: str = ""
    """The input or operator whose rows make the micro-batches."""
    branches: list[str] = field(default_factory=list)
    """The operators that run on each micro-batch, each after its sources."""
    ends: list[tuple[str, str]] = field(default_factory=list)
    """(source, target) of what leaves: outputs, arcs to other nodes (by the arc's name), and cuts."""

    @property
    def name(self) -> str:
        """What to call the query: the name of its tip."""
        return self.tip

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators, each after its sources."""
        return (*self.stream, *self.branches)


def queries_of(network: Network, node: str) -> tuple[tuple[NodeQuery, ...], Network]:
    """Return the queries of a node, and what the node runs as a network in which each cut is an input and an output.

    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i").operator("top", "A", "s")
    ...     .operator("count", "A", "s", kind="aggregate").output("q1", "top").output("q2", "count").build()
    ... )
    >>> [(piece.tip, piece.branches, piece.ends) for piece in queries_of(network, "A")[0]]
    [('s', ['top'], [('s', 's->count'), ('top', 'q1')]), ('count', [], [('count', 'q2')])]
    """
    part = part_of(network, node)
    found = _Pieces(part)
    for name in part.order:
        found.place(part.operators[name])
    for name in (*part.inputs, *part.order):
        for consumer in part.consumers[name]:
            if consumer in part.outputs:
                found.of(name).ends.append((name, consumer))
    return tuple(found.finished()), part


class _Pieces:
    def __init__(self, part: Network) -> None:
        self._part = part
        self._home: dict[str, NodeQuery] = {}
        self._on_batches: set[str] = set()
        for name in part.inputs:
            self._home[name] = NodeQuery(entries=[name], tip=name)

    def of(self, name: str) -> NodeQuery:
        return self._home[name]

    def place(self, operator: Operator) -> None:
        """Put one operator into a piece; its sources are placed already."""
        if all(self._goes_on(source) for source in operator.sources):
            piece = self._merged([self._home[source] for source in operator.sources])
            self._append(piece, operator.name)
            return
        homes = {id(self._home[source]) for source in operator.sources}
        on_batches = all(source in self._on_batches or self._is_split(source) for source in operator.sources)
        if operator.kind not in _STATEFUL and len(homes) == 1 and on_batches:
            piece = self._home[operator.sources[0]]
            piece.branches.append(operator.name)
            self._home[operator.name] = piece
            self._on_batches.add(operator.name)
            return
        parts = [self._home[source] if self._goes_on(source) else self._cut(source, operator.name) for source in operator.sources]
        self._append(self._merged(parts), operator.name)

    def _goes_on(self, source: str) -> bool:
        """Whether a source is a stream that nobody else reads."""
        return source not in self._on_batches and not self._is_split(source)

    def _is_split(self, source: str) -> bool:
        return len(self._part.consumers[source]) > 1

    def _append(self, piece: NodeQuery, name: str) -> None:
        piece.stream.append(name)
        piece.tip = name
        self._home[name] = piece

    def _cut(self, source: str, target: str) -> NodeQuery:
        arc = arc_name(source, target)
        self._home[source].ends.append((source, arc))
        return NodeQuery(entries=[arc])

    def _merged(self, pieces: list[NodeQuery]) -> NodeQuery:
        first = pieces[0]
        for piece in pieces[1:]:
            first.entries += piece.entries
            first.stream += piece.stream
            for name, home in self._home.items():
                if home is piece:
                    self._home[name] = first
        return first

    def finished(self) -> list[NodeQuery]:
        unique = {id(piece): piece for piece in self._home.values()}
        return list(unique.values())
