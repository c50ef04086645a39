"""Group the operators of one node into streaming queries."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.network.coefficients import part_of
from penstock.network.model import Network, Operator, arc_name

__all__ = ["NodeQuery", "queries_of"]

_STATEFUL = ("aggregate", "join")


@dataclass(slots=True)
class NodeQuery:
    """Operators of one node that run as one streaming query.

    A streaming query has one result, so its operators merge into one stream that ends at the ``tip``. If the stream splits after
    the tip, the stateless operators of the branches run on each micro-batch. A stateful operator needs a stream of its own, so
    it starts another query. The arc to it is a *cut*: its rows pass through the transport, like rows to another node.
    """

    entries: list[str] = field(default_factory=list)
    """Where rows enter: inputs, arcs from other nodes, and cuts."""
    stream: list[str] = field(default_factory=list)
    """The operators of the stream, each after its sources."""
    tip: str = ""
    """The input or operator whose rows form the micro-batches."""
    branches: list[str] = field(default_factory=list)
    """The operators that run on each micro-batch, each after its sources."""
    ends: list[tuple[str, str]] = field(default_factory=list)
    """(source, target) of each stream that leaves; the target is an output, or the name of an arc to another node or a cut."""

    @property
    def name(self) -> str:
        """The name of the query, which is the name of its tip."""
        return self.tip

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators, each after its sources."""
        return (*self.stream, *self.branches)


def queries_of(network: Network, node: str) -> tuple[tuple[NodeQuery, ...], Network]:
    """Return the queries that run the operators of a node, and the part of the network that the node runs.

    Examples
    --------
    A stateless branch runs on the micro-batches of ``s``; the aggregate is a query of its own, behind the cut ``s->count``:

    >>> from penstock.network import NetworkBuilder
    >>> network = (
    ...     NetworkBuilder().node("A").input("i").operator("s", "A", "i").operator("top", "A", "s")
    ...     .operator("count", "A", "s", kind="aggregate").output("q1", "top").output("q2", "count").build()
    ... )
    >>> [(query.tip, query.branches, query.ends) for query in queries_of(network, "A")[0]]
    [('s', ['top'], [('s', 's->count'), ('top', 'q1')]), ('count', [], [('count', 'q2')])]
    """
    part = part_of(network, node)
    grouping = _Grouping(part)
    for name in part.order:
        grouping.add(part.operators[name])
    for name in (*part.inputs, *part.order):
        for consumer in part.consumers[name]:
            if consumer in part.outputs:
                grouping.add_end(name, consumer)
    return grouping.queries(), part


class _Grouping:
    """The queries under construction, and which of them each input and operator belongs to."""

    def __init__(self, part: Network) -> None:
        self._part = part
        self._query_of: dict[str, NodeQuery] = {name: NodeQuery(entries=[name], tip=name) for name in part.inputs}
        self._on_batches: set[str] = set()

    def add(self, operator: Operator) -> None:
        """Add an operator whose sources have been added."""
        if all(self._is_unshared_stream(source) for source in operator.sources):
            self._append(self._merge([self._query_of[source] for source in operator.sources]), operator.name)
        elif self._can_run_on_batches(operator):
            query = self._query_of[operator.sources[0]]
            query.branches.append(operator.name)
            self._query_of[operator.name] = query
            self._on_batches.add(operator.name)
        else:
            queries = [
                self._query_of[source] if self._is_unshared_stream(source) else self._cut(source, operator.name)
                for source in operator.sources
            ]
            self._append(self._merge(queries), operator.name)

    def add_end(self, source: str, output: str) -> None:
        """Let the query of a source write to an output."""
        self._query_of[source].ends.append((source, output))

    def queries(self) -> tuple[NodeQuery, ...]:
        """Return the distinct queries."""
        return tuple({id(query): query for query in self._query_of.values()}.values())

    def _can_run_on_batches(self, operator: Operator) -> bool:
        """Whether all sources are available in each micro-batch of one query, and the operator keeps no state between them."""
        queries = {id(self._query_of[source]) for source in operator.sources}
        available = all(source in self._on_batches or self._is_split(source) for source in operator.sources)
        return operator.kind not in _STATEFUL and len(queries) == 1 and available

    def _is_unshared_stream(self, source: str) -> bool:
        """Whether a source is a stream with one consumer."""
        return source not in self._on_batches and not self._is_split(source)

    def _is_split(self, source: str) -> bool:
        return len(self._part.consumers[source]) > 1

    def _append(self, query: NodeQuery, name: str) -> None:
        query.stream.append(name)
        query.tip = name
        self._query_of[name] = query

    def _cut(self, source: str, target: str) -> NodeQuery:
        """End the query of the source at the arc, and start a query that reads from it."""
        arc = arc_name(source, target)
        self._query_of[source].ends.append((source, arc))
        return NodeQuery(entries=[arc])

    def _merge(self, queries: list[NodeQuery]) -> NodeQuery:
        """Merge all queries into the first."""
        first = queries[0]
        for other in queries[1:]:
            first.entries += other.entries
            first.stream += other.stream
            for name, query in self._query_of.items():
                if query is other:
                    self._query_of[name] = first
        return first
