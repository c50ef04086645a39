"""Planning at any size: new costs, the whole command, and the agent's share of a batch.

Measures how long a plan of the exact planner takes after every cost of 26,000 operators has changed, on chains, on a
tree and on splits over all nodes, with the optimum checked against a planner that is built anew; how long ``penstock
plan`` takes for 10,000 operators on 1,000 nodes, from the start of the process to its end; and how long a node's agent
takes for one batch: what it learns from the last one, its decision for the next, and its messages. Medians of several.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.support.fit_networks import fan_out, overloaded_rates, random_chains, random_tree
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from benchmarks.support.scale_networks import (
    many_queries,
    spread_queries,
    two_disjoint_networks,
    union_then_split,
    write_yaml,
)
from benchmarks.support.timing import time_call
from penstock.coordination import COORDINATOR, DirectoryMailbox, Follower, Local
from penstock.coordination.agent import Agent
from penstock.coordination.manager import Manager
from penstock.network import Network, load_network
from penstock.network.facts import Facts
from penstock.network.queries import queries_of
from penstock.planning import Exact, Greedy, Planner, Solver
from penstock.planning.flows import Flows

__all__ = ["run"]

_PACE_S = 1.0


def run(*, quick: bool, say: Say) -> Result:
    """Measure the planners, the command and the agent."""
    rows: list[Row] = []
    bars: list[Bar] = []
    claims: list[Claim] = []
    for measure in (_time_new_costs, _time_command, _time_agents, _time_others):
        more_rows, more_bars, more_claims = measure(quick=quick, say=say)
        rows += more_rows
        bars += more_bars
        claims += more_claims
    return Result("plan-scale", rows, bars=bars, claims=claims)


Measured = tuple[list[Row], list[Bar], list[Claim]]


class _Stopwatch:
    """Seconds by the clock and of CPU. On a busy machine the two differ, and only the second says what the code costs."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.cpu_s: list[float] = []

    @contextlib.contextmanager
    def measure(self) -> Iterator[None]:
        """Measure what is done within."""
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        yield
        self.times_s.append(time.perf_counter() - start_s)
        self.cpu_s.append(time.process_time() - start_cpu_s)


def _row(what: str, network: Network, times_s: Sequence[float], cpu_s: Sequence[float] = ()) -> Row:
    return {
        "what": what,
        "operators": len(network.operators),
        "nodes": len(network.nodes),
        "inputs": len(network.inputs),
        "median ms": 1e3 * float(np.median(times_s)),
        "longest ms": 1e3 * max(times_s),
        "median CPU ms": 1e3 * float(np.median(cpu_s)) if cpu_s else None,
    }


def _time_new_costs(*, quick: bool, say: Say) -> Measured:
    """Change every cost by up to 2%, which is what makes a coordinator plan anew, then plan for twice the capacity."""
    rows: list[Row] = []
    bars: list[Bar] = []
    worst = 0.0
    size = 10 if quick else 1
    for label, network in (
        ("chains", random_chains(1000 // size, 2000 // size, length=13)),
        ("a tree with splits", random_tree(3280 // size, 2600 // size)),
        ("splits over all nodes", spread_queries(2000 // size, nodes=1000 // size)),
    ):
        say(f"exact, {label}, {len(network.operators):,} operators")
        exact, build_s = time_call(partial(Exact, network))
        rates = _overload(exact, 2.0)
        rows.append(_row(f"exact, first plan, {label}", network, [build_s + time_call(partial(exact.plan, rates))[1]]))
        for most, count in ((0.02, 15), (0.3, 5)):
            watch, difference = _time_changes(exact, rates, most=most, count=5 if quick else count)
            worst = max(worst, difference)
            what = f"exact, after all costs changed by up to {most:.0%}, {label}"
            rows.append(_row(what, network, watch.times_s, watch.cpu_s))
            if most == 0.02:
                limit = Bar.at_most(
                    f"exact, {label}, after a change of costs, median ms", float(rows[-1]["median ms"] or 0), 100.0
                )
                bars.append(limit)
    claim = Claim("a plan after a change of costs is that of a new planner", "-", f"worst difference {worst:.1e}", worst < 1e-6)
    return rows, bars, [claim]


def _overload(planner: Planner, times: float) -> dict[str, float]:
    """Return random rates that load the nodes to this many times their capacity, in the mean of the nodes that do something."""
    flows = planner.flows
    rates = np.random.default_rng(1).random(len(flows.inputs)) + 0.1
    loads = (flows.loads @ flows.propagate(rates, np.ones(len(flows.locations)))) / flows.capacity
    rates *= times / float(np.mean(loads[loads > 0]))
    return dict(zip(flows.inputs, rates.tolist(), strict=True))


def _time_changes(exact: Exact, rates: dict[str, float], *, most: float, count: int) -> tuple[_Stopwatch, float]:
    """Return the times for new numbers and a plan, and how far the score of the last is from that of a new planner."""
    rng, watch = np.random.default_rng(2), _Stopwatch()
    for _ in range(count):
        facts = _change(Facts.from_declaration(exact.network), rng, most)
        with watch.measure():
            exact.update(facts)
            plan = exact.plan(rates)
    flows = Flows(exact.network)
    flows.update(facts)
    anew = Exact(exact.network, flows).plan(rates).score
    return watch, abs(plan.score - anew) / anew


def _change(facts: Facts, rng: np.random.Generator, most: float) -> Facts:
    return Facts(facts.costs * rng.uniform(1.0 - most, 1.0 + most, facts.costs.size), facts.selectivities, facts.capacities)


def _time_command(*, quick: bool, say: Say) -> Measured:
    """Run ``penstock plan`` in a process of its own."""
    nodes, inputs = (100, 100) if quick else (1000, 1000)
    network = random_chains(nodes, inputs, length=10)
    rates = overloaded_rates(network, 1, seed=1, most=2.0)[0]
    option = ",".join(f"{name}={rate:.6g}" for name, rate in zip(network.inputs, rates.tolist(), strict=True))
    times_s, inside_s = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.yaml"
        path.write_text(write_yaml(network))
        command = [sys.executable, "-m", "penstock", "plan", str(path), "--rates", option]
        requested = dict(zip(network.inputs, rates.tolist(), strict=True))
        for number in range(3 if quick else 7):
            say(f"penstock plan, run {number + 1}")
            times_s.append(time_call(lambda: subprocess.run(command, check=True, capture_output=True))[1])  # noqa: S603 - ours
            inside_s.append(time_call(lambda: Exact(load_network(path)).plan(requested))[1])
    rows = [_row("penstock plan, whole command", network, times_s), _row("load, derive and plan", network, inside_s)]
    bars = [Bar.at_most("penstock plan, 10,000 operators, whole command, median s", float(np.median(times_s)), 1.5)]
    bars += [Bar.at_most("load, derive and plan, 10,000 operators, median s", float(np.median(inside_s)), 1.0)]
    return rows, bars, []


def _time_agents(*, quick: bool, say: Say) -> Measured:
    """Let agents run batches of one query after the other, in simulated time."""
    batches = 20 if quick else 100
    rows: list[Row] = []
    bars: list[Bar] = []
    for label, network, limit_ms in (
        ("fan-out 1,024", fan_out(1024), 5.0),
        ("13,000 operators on one node", many_queries(1000, nodes=1), 20.0),
        ("13,000 operators on 100 nodes", many_queries(1000, nodes=100), 20.0),
    ):
        for name, make in (("local", Local), ("coordinator", Follower)):
            say(f"agent, {name}, {label}")
            watch = _run_batches(network, make, batches)
            rows.append(_row(f"agent's share of a batch, {name}, {label}", network, watch.times_s, watch.cpu_s))
            bars.append(Bar.at_most(f"agent, {name}, {label}, median ms", float(rows[-1]["median ms"] or 0), limit_ms))
    return rows, bars, []


def _run_batches(network: Network, make: Callable[[Network, str], Manager], batches: int) -> _Stopwatch:
    """Return the times that the agent of the first node took for each batch."""
    node = next(iter(network.nodes))
    queries = {query.name: query for query in queries_of(network, node)[0]}
    rng, watch = np.random.default_rng(1), _Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        manager = make(network, node)
        mailbox = DirectoryMailbox(folder, node, manager.peers, "benchmark") if manager.peers else None
        names = {query: parts.operators for query, parts in queries.items()}
        agent = Agent(network, node, manager, mailbox, _PACE_S, queries=names, clock=lambda: 0.0)
        coordinator = DirectoryMailbox(folder, COORDINATOR, (node,), "benchmark")
        for turn in range(batches):
            query = list(queries)[turn % len(queries)]
            rows = {entry: int(rng.integers(20_000, 40_000)) for entry in queries[query].entries}
            into = {name: int(rng.integers(10_000, 20_000)) for name in names[query]}
            out = {name: int(count * rng.uniform(0.3, 0.9)) for name, count in into.items()}
            busy_s = float(rng.uniform(0.3, 0.9))
            with watch.measure():
                agent.decide_batch(query, rows, turn * _PACE_S)
                agent.end_batch(query)
                agent.learn(query, into, out, busy_s)
            coordinator.receive()
    return watch


def _time_others(*, quick: bool, say: Say) -> Measured:
    """The greedy planner and the solver, on what they were slow on."""
    rows: list[Row] = []
    say("greedy and solver")
    for label, network in (("fan-out 1,024", fan_out(1024)), ("a union of 150 inputs, then a split", union_then_split(150, 50))):
        greedy, build_s = time_call(partial(Greedy, network))
        rng, watch = np.random.default_rng(3), _Stopwatch()
        rates = dict.fromkeys(network.inputs, 60.0)
        for _ in range(5 if quick else 20):
            facts = _change(Facts.from_declaration(network), rng, 0.02)
            with watch.measure():
                greedy.update(facts)
                greedy.plan(rates)
        rows += [
            _row(f"greedy, built, {label}", network, [build_s]),
            _row(f"greedy, new costs and a plan, {label}", network, watch.times_s, watch.cpu_s),
        ]
    disjoint = two_disjoint_networks()
    solver, solver_s = time_call(lambda: Solver(disjoint, 0.05))
    rows.append(_row("solver at 5%, two disjoint networks", disjoint, [solver_s]))
    claim = Claim(
        "independent fragments are planned apart (section 8.2.4)",
        "yes",
        f"{solver_s:.2f} s",
        solver.error <= 0.05 and solver_s < 5.0,
    )
    return rows, [], [claim]
