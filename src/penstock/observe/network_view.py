"""A running network as a drawing: lanes of nodes, what flows along its arcs, the load of each node, and who decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.network.model import ARROW, arc_name

__all__ = ["Part", "Parts", "arrange", "draw_network", "read_parts"]


@dataclass(frozen=True, slots=True)
class Part:
    """An input, an operator or an output."""

    name: str
    kind: str
    node: str
    sources: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a network consists of, in an order in which sources come first."""

    nodes: Mapping[str, float]
    """Their capacities."""
    parts: Mapping[str, Part] = field(default_factory=dict)


def read_parts(description: Mapping[str, Mapping[str, Any]]) -> Parts:
    """Return the parts of a network from its ``network.json``.

    >>> parts = read_parts({
    ...     "node A": {"capacity": 1.0},
    ...     "input i": {},
    ...     "operator a": {"node": "A", "from": ["i"], "kind": "map"},
    ...     "output q": {"from": "a"},
    ... })
    >>> [(part.kind, part.name, part.node) for part in parts.parts.values()]
    [('input', 'i', 'A'), ('operator', 'a', 'A'), ('output', 'q', 'A')]
    """
    named = [(*key.partition(" ")[::2], value) for key, value in description.items()]
    nodes = {name: float(value.get("capacity", 1.0)) for kind, name, value in named if kind == "node"}
    operators = {name: value for kind, name, value in named if kind == "operator"}
    readers = {source: str(value["node"]) for value in reversed(operators.values()) for source in value["from"]}
    parts = {name: Part(name, "input", readers.get(name, "")) for kind, name, _ in named if kind == "input"}
    waiting = dict(operators)
    while waiting:
        ready = [name for name, value in waiting.items() if all(source in parts for source in value["from"])]
        for name in ready or list(waiting):  # a cycle can't be, but a damaged file may say so
            value = waiting.pop(name)
            parts[name] = Part(name, "operator", str(value["node"]), tuple(value["from"]), str(value.get("kind", "map")))
    for kind, name, value in named:
        if kind == "output":
            source = str(value["from"])
            parts[name] = Part(name, "output", parts[source].node if source in parts else "", (source,))
    return Parts(nodes, parts)


def arrange(parts: Parts) -> dict[str, tuple[int, int, int]]:
    """Return where each part stands: its column, the lane of its node, and its row in the lane.

    A part is one column to the right of the last of its sources, and in each lane as near to their rows as it can be.
    """
    lanes = {node: lane for lane, node in enumerate(parts.nodes)}
    columns: dict[str, int] = {}
    for name, part in parts.parts.items():
        columns[name] = max((columns[source] + 1 for source in part.sources if source in columns), default=0)
    places: dict[str, tuple[int, int, int]] = {}
    taken: set[tuple[int, int, int]] = set()
    for name, part in sorted(parts.parts.items(), key=lambda item: columns[item[0]]):
        lane = lanes.get(part.node, len(lanes))
        near = [places[source][2] for source in part.sources if source in places and places[source][1] == lane]
        row = min(near, default=0)
        while (columns[name], lane, row) in taken:
            row += 1
        places[name] = (columns[name], lane, row)
        taken.add(places[name])
    return places


def draw_network(
    parts: Parts,
    statuses: Mapping[str, Mapping[str, Any]],
    coordinator: Mapping[str, Any] | None,
    keeps: Mapping[str, float],
    now_s: float,
) -> dict[str, Any]:
    """Return the drawing as plain JSON values.

    Parameters
    ----------
    parts
        What the network consists of.
    statuses
        What each node last said of itself.
    coordinator
        What the coordinator last said of itself, if there is one.
    keeps
        The share that each gate kept lately, by its drop location.
    now_s
        The time.
    """
    places = arrange(parts)
    flows = _Flows(parts, statuses, keeps)
    nodes = [_describe_node(node, capacity, statuses.get(node), flows, now_s) for node, capacity in parts.nodes.items()]
    busiest = max(nodes, key=lambda node: node["load"] or 0.0, default=None)
    return {
        "nodes": nodes,
        "bottleneck": busiest["name"] if busiest is not None and (busiest["load"] or 0.0) > 0.0 else None,
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "node": part.node,
                "title": part.title,
                "column": places[name][0],
                "lane": places[name][1],
                "row": places[name][2],
                "rate": flows.into.get(name) if part.kind != "input" else flows.out.get(name),
                "cost_s": flows.costs.get(name),
                "selectivity": flows.selectivities.get(name),
            }
            for name, part in parts.parts.items()
        ],
        "arcs": flows.arcs,
        "outputs": {name: output for status in statuses.values() for name, output in status.get("outputs", {}).items()},
        "coordinator": None if coordinator is None else dict(coordinator),
    }


class _Flows:
    """Rows per second along every arc: as measured where rows enter a node, computed behind that."""

    def __init__(self, parts: Parts, statuses: Mapping[str, Mapping[str, Any]], keeps: Mapping[str, float]) -> None:
        measured = [status.get("measurements", {}) for status in statuses.values()]
        self.rates: dict[str, float] = {}
        self.costs: dict[str, float] = {}
        self.selectivities: dict[str, float] = {}
        for body in measured:
            self.rates |= body.get("rates", {})
            for name, values in body.get("operators", {}).items():
                self.costs[name], self.selectivities[name] = float(values[0]), float(values[2])
        self.into: dict[str, float] = {}
        self.out: dict[str, float] = {}
        self.arcs: list[dict[str, Any]] = []
        for name, part in parts.parts.items():
            if part.kind == "input":
                copies = [rate for entry, rate in self.rates.items() if entry.partition(ARROW)[0] == name]
                self.out[name] = max(copies, default=0.0)
                continue
            self.into[name] = sum(self._follow(source, name, parts, keeps) for source in part.sources)
            self.out[name] = self.into[name] * self.selectivities.get(name, 1.0)

    def _follow(self, source: str, name: str, parts: Parts, keeps: Mapping[str, float]) -> float:
        arc = arc_name(source, name)
        rate = self.rates.get(arc, self.out.get(source, 0.0))
        is_input = source in parts.parts and parts.parts[source].kind == "input"
        keep = keeps.get(arc, keeps.get(source) if is_input else None)
        self.arcs.append({"source": source, "target": name, "rate": rate, "keep": keep})
        return rate * (1.0 if keep is None else keep)

    def load_of(self, status: Mapping[str, Any]) -> float | None:
        """Return the share of a node's time that its operators need."""
        body = status.get("measurements", {})
        capacity = body.get("capacity")
        if not capacity:
            return None
        return sum(self.costs[name] * self.into.get(name, 0.0) for name in body.get("operators", {})) / float(capacity)


def _describe_node(name: str, capacity: float, status: Mapping[str, Any] | None, flows: _Flows, now_s: float) -> dict[str, Any]:
    if status is None:
        return {"name": name, "capacity": capacity, "load": None, "age_s": None}
    ignored = {reason: count for reason, count in status.get("ignored", {}).items() if count}
    if status.get("rejected"):
        ignored["unusable"] = status["rejected"]
    return {
        "name": name,
        "capacity": capacity,
        "left": status.get("measurements", {}).get("capacity"),
        "load": flows.load_of(status),
        "age_s": max(0.0, now_s - float(status.get("at_s", now_s))),
        "manager": status.get("manager", {}),
        "reason": status.get("reason") or "no limits",
        "limits": status.get("limits", {}),
        "queries": status.get("queries", {}),
        "cycles_s": status.get("cycles_s", {}),
        "silent_s": status.get("silent_s", {}),
        "ignored": ignored,
        "notes": status.get("notes", []),
        "batches": status.get("batches", {}),
    }
