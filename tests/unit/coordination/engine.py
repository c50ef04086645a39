"""Figure 1 of Staying FIT on a simulated micro-batch engine, for tests of agents, coordinator and managers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.coordination import (
    COORDINATOR,
    Coordinator,
    DFit,
    DirectoryMailbox,
    Follower,
    Manager,
)
from penstock.coordination.agent import Agent
from penstock.coordination.measurements import (
    remove_rate_bounds,
)
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact

UNIT = 0.004

PACE = 2.0


def figure1(unit: float = UNIT) -> Network:
    return (
        NetworkBuilder()
        .node("A")
        .node("B")
        .input("i1", max_rate=8 / unit)
        .input("i2", max_rate=8 / unit)
        .operator("a1", "A", "i1", cost=unit)
        .operator("a2", "A", "i2", cost=2 * unit)
        .operator("b1", "B", "a1", cost=3 * unit)
        .operator("b2", "B", "a2", cost=unit)
        .output("q1", "b1")
        .output("q2", "b2")
        .build()
    )


class Engine:
    """Figure 1 in micro-batches: each query takes what has come, the agent decides, the time follows from the true costs."""

    def __init__(self, root: Path, make: Callable[[Network, str], Manager], method: str | None = None) -> None:
        self.root, self.make, self.method = root, make, method
        self.network = figure1()
        self.now = 1_000.0
        self.costs = {"a1": UNIT, "a2": 2 * UNIT, "b1": 3 * UNIT, "b2": UNIT}
        self.rates = {"i1": 1 / UNIT, "i2": 1 / UNIT}
        self.flow: dict[str, float] = {}
        self.agents = {node: self.agent(node) for node in ("A", "B")}
        self.coordinator = self.coordinate() if method is not None else None

    def agent(self, node: str) -> Agent:
        manager = self.make(self.network, node)
        mailbox = DirectoryMailbox(self.root, node, manager.peers, "x") if manager.peers else None
        queries = {"A": {"a1": ["a1"], "a2": ["a2"]}, "B": {"b1": ["b1"], "b2": ["b2"]}}[node]
        return Agent(self.network, node, manager, mailbox, PACE, queries=queries, clock=lambda: self.now)

    def coordinate(self) -> Coordinator:
        assert self.method is not None
        mailbox = DirectoryMailbox(self.root, COORDINATOR, ["A", "B"], "x")
        options = {} if self.method == "exact" else {"epsilon": 0.05}
        state = self.root / "state.json"
        return Coordinator(self.network, mailbox, self.method, state=state, clock=lambda: self.now, **options)

    def step(self) -> None:
        self.now += PACE
        for node, query, entry, source in (
            ("A", "a1", "i1", None),
            ("A", "a2", "i2", None),
            ("B", "b1", "a1->b1", "a1"),
            ("B", "b2", "a2->b2", "a2"),
        ):
            if node not in self.agents:
                self.flow[query] = 0.0
                continue
            offered = int(self.rates[entry] * PACE if source is None else self.flow[source])
            kept = int(offered * self.agents[node].decide_batch(query, {entry: offered})[entry])
            self.agents[node].learn(query, {query: kept}, {query: kept}, 0.1 + self.costs[query] * kept)
            self.flow[query] = float(kept)
            if self.coordinator is not None:
                self.coordinator.step()
        for agent in self.agents.values():
            agent.exchange_messages()
        if self.coordinator is not None:
            self.coordinator.step()

    def settle(self, steps: int = 14) -> dict[str, float]:
        """Tuples a second at each operator, over the last six batches."""
        sums: dict[str, float] = {}
        for number in range(steps):
            self.step()
            if number >= steps - 6:
                for name, rows in self.flow.items():
                    sums[name] = sums.get(name, 0.0) + rows / 6 / PACE
        return sums

    def optimum(self, capacity: float = 0.9) -> float:
        """The best score; of each node a tenth goes to its two batches."""
        operators = {name: replace(self.network.operators[name], cost=cost) for name, cost in self.costs.items()}
        nodes = {name: replace(node, capacity=capacity) for name, node in self.network.nodes.items()}
        network = Network(nodes, self.network.inputs, operators, self.network.outputs)
        return Exact(remove_rate_bounds(network)).plan(self.rates).score


MANAGERS: dict[str, tuple[Callable[[Network, str], Manager], str | None]] = {
    "exact": (Follower, "exact"),
    "solver": (Follower, "solver"),
    "fit": (Follower, "fit"),
    "d-fit": (DFit, None),
}
