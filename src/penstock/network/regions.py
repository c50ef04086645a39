"""The part of a network before an operator with state: which gates its rows pass, and what its columns are called there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.network.lineage import Untraceable, is_stateful, trace_columns
from penstock.network.model import Network, arc_name
from penstock.network.queries import queries_of

__all__ = ["Entry", "GateId", "Layer", "QueryIndex", "Region"]


@dataclass(frozen=True, slots=True, order=True)
class GateId:
    """A gate: the node that runs it, and its name there. An arc behind a split may have a gate at both of its ends."""

    node: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a gate sits: on what an input or operator puts out, for one of its consumers or for all of them."""

    gate: GateId
    source: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """Gates that rows pass side by side: where inputs enter, behind one split, or where rows enter a node from others."""

    name: str
    entries: tuple[Entry, ...]
    is_complete: bool
    """Whether each row passes exactly one of them on its way."""
    is_together: bool
    """Whether one query decides for all of them, so that they decide alike about a window."""


class QueryIndex:
    """What regions of one network share: the order of its parts, and the query of a node that reads an entry."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.rank = {name: number for number, name in enumerate((*network.inputs, *network.order))}
        self._queries: dict[str, dict[str, str]] = {}

    def find(self, gate: GateId) -> str:
        """Return the name of the query that a gate at an entry belongs to."""
        if gate.node not in self._queries:
            plans, _ = queries_of(self._network, gate.node)
            self._queries[gate.node] = {entry: plan.name for plan in plans for entry in plan.entries}
        return self._queries[gate.node][gate.name]


class Region:
    """All that is before an operator with state, up to the inputs or to other operators with state."""

    def __init__(self, network: Network, operator: str, queries: QueryIndex) -> None:
        self.network, self.operator, self._queries = network, network.operators[operator], queries
        self.arcs: dict[str, list[str]] = {}
        """By source: the consumers on the way to the operator."""
        self.states: list[str] = []
        """The operators with state that it reads from."""
        waiting = [operator]
        while waiting:
            name = waiting.pop()
            for source in network.operators[name].sources:
                if source in self.arcs:
                    self.arcs[source].append(name)
                    continue
                self.arcs[source] = [name]
                if is_stateful(network, source):
                    self.states.append(source)
                elif source in network.operators:
                    waiting.append(source)

    @cached_property
    def _downstream_first(self) -> list[str]:
        return sorted(self.arcs, key=lambda name: self._queries.rank[name], reverse=True)

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """All gates before the operator, those at inputs first."""
        groups: dict[str, list[Entry]] = {}
        for source in reversed(self._downstream_first):
            for name, entry in self._list_gates(source):
                groups.setdefault(name, []).append(entry)
        return tuple(
            Layer(name, tuple(entries), self._is_complete(entries), name.startswith("split") or self._share_query(entries))
            for name, entries in groups.items()
        )

    def _list_gates(self, source: str) -> list[tuple[str, Entry]]:
        network = self.network
        targets = [target for target in network.consumers[source] if target in self.arcs[source]]
        nodes = {network.node_of(target) for target in network.consumers[source]}
        home = network.node_of(source)
        gates = []
        if source in network.inputs and len(nodes) > 1:  # each node has its own copy
            return [
                ("inputs", Entry(GateId(str(network.node_of(target)), arc_name(source, target)), source, target))
                for target in targets
            ]
        if source in network.inputs:
            home = network.node_of(targets[0])
            gates.append(("inputs", Entry(GateId(str(home), source), source)))
        if len(network.consumers[source]) > 1:
            entries = [Entry(GateId(str(home), arc_name(source, target)), source, target) for target in targets]
            gates += [(f"split {source}", entry) for entry in entries]
        for target in targets:
            node = network.node_of(target)
            if node != home:
                gate = GateId(str(node), arc_name(source, target))
                gates.append((f"node {node}", Entry(gate, source, target)))
        return gates

    def _is_complete(self, entries: Collection[Entry]) -> bool:
        """Whether each way to the operator passes exactly one of these gates."""
        at_source = {entry.source for entry in entries if entry.target is None}
        on_arc = {(entry.source, entry.target) for entry in entries if entry.target is not None}
        counts: dict[str, set[int]] = {}  # how many of them are on the ways from here on
        for source in self._downstream_first:
            own = int(source in at_source)
            counts[source] = {
                own + int((source, target) in on_arc) + more for target in self.arcs[source] for more in counts.get(target, {0})
            }
        starts = [name for name in self.arcs if name in self.network.inputs or name in self.states]
        return all(counts[name] == {1} for name in starts)

    def _share_query(self, entries: Collection[Entry]) -> bool:
        """Whether one query of one node reads all of these entries."""
        if len(entries) < 2 or len({entry.gate.node for entry in entries}) > 1:
            return len(entries) < 2
        return len({self._queries.find(entry.gate) for entry in entries}) == 1

    def trace(self, columns: Mapping[str, tuple[str, ...]]) -> dict[tuple[str, str], tuple[str, ...] | Untraceable]:
        """Return what columns of the operator are called on each arc, or why that can't be said.

        ``columns`` are those at the operator, by source.
        """
        on_arc: dict[tuple[str, str], tuple[str, ...] | Untraceable] = {}
        is_asked = self.operator.drop is not None or self.operator.timed  # then whoever asked answers for functions
        for source in self._downstream_first:
            for target in self.arcs[source]:
                if target == self.operator.name:
                    on_arc[source, target] = columns[source]
                    continue
                behind = self.agree(on_arc, target)
                if isinstance(behind, Untraceable):
                    on_arc[source, target] = behind
                    continue
                try:
                    on_arc[source, target] = trace_columns(
                        self.network.operators[target], self.network.work.get(target, {}), behind, trusts_functions=is_asked
                    )
                except Untraceable as reason:
                    on_arc[source, target] = reason
        return on_arc

    def agree(
        self, on_arc: Mapping[tuple[str, str], tuple[str, ...] | Untraceable], source: str, target: str | None = None
    ) -> tuple[str, ...] | Untraceable:
        """Return what the columns are called on an arc or, without a target, on all arcs that leave a source."""
        if target is not None:
            return on_arc[source, target]
        names = [on_arc[source, each] for each in self.arcs[source]]
        reasons = [name for name in names if isinstance(name, Untraceable)]
        if reasons:
            return reasons[0]
        if len(set(names)) > 1:
            shown = " and ".join(", ".join(name) for name in dict.fromkeys(names))  # type: ignore[arg-type]  # no reasons here
            return Untraceable(f"it gets different columns of {source!r} on different ways ({shown})")
        return names[0]
