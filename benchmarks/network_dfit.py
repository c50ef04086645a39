"""D-FIT of Staying FIT (Tatbul et al.) on trees of up to 10,000 nodes: messages, bytes and time after changes.

Counts what is sent until all tables are current: at the start, after the cost of one leaf has changed, and after 1% of all
nodes have changed. The nodes are the same peers that run on Spark; the mailbox between them is a dictionary that counts
messages and bytes. After each change the plan is compared with the exact one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.support.dfit_trees import PeerTree, TreeMailbox, measure_at_random
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Claim, Result, Row
from penstock.coordination.measurements import Measurements, remove_rate_bounds
from penstock.network import Network, NetworkBuilder
from penstock.planning import Exact
from penstock.simulation.plotting import bars

__all__ = ["binary_tree", "heap_tree", "plot", "run"]

_EPSILON = 0.2
_RATES = {"i": 1.5}


def heap_tree(count: int, seed: int = 1) -> Network:
    """Build a binary tree with one operator per node, which feeds those of both children, and an output at each leaf."""
    rng = random.Random(seed)  # noqa: S311 - not for security
    builder = NetworkBuilder().input("i", max_rate=4.0)
    for number in range(count):
        builder.node(f"n{number}")
        source = "i" if number == 0 else f"o{(number - 1) // 2}"
        builder.operator(f"o{number}", f"n{number}", source, cost=rng.uniform(0.6, 1.4), selectivity=0.95)
        if 2 * number + 1 >= count:
            builder.output(f"q{number}", f"o{number}")
    return builder.build()


def binary_tree(levels: int, seed: int = 1) -> Network:
    """Build a binary tree in which all leaves are on the last level."""
    return heap_tree(2**levels - 1, seed)


class _Run:
    """One tree: measures changes of it, and checks each plan against the exact one."""

    def __init__(self, count: int) -> None:
        self.count = count
        started = time.perf_counter()
        self.tree = PeerTree(heap_tree(count), _EPSILON)
        self.rows: list[Row] = [self._describe("at the start", self.tree.started, {}, time.perf_counter() - started)]
        self.beyond: list[int] = []
        """After each change: nodes that built a table and are neither on a path to the root nor have got another scope."""

    def change(self, what: str, facts: Sequence[Measurements]) -> None:
        """Let nodes measure these facts."""
        before = {name: peer.tables_built for name, peer in self.tree.peers.items()}
        started = time.perf_counter()
        mailbox = self.tree.learn(facts)
        seconds = time.perf_counter() - started
        self.rows.append(self._describe(what, mailbox, before, seconds))
        built = {name for name, peer in self.tree.peers.items() if peer.tables_built > before[name]}
        self.beyond.append(len(built - _paths([reported.node for reported in facts]) - mailbox.receivers["scope"]))

    def _describe(self, what: str, mailbox: TreeMailbox, before: Mapping[str, int], seconds: float) -> Row:
        built = sum(peer.tables_built - before.get(name, 0) for name, peer in self.tree.peers.items())
        best = Exact(remove_rate_bounds(self.tree.measured)).plan(_RATES).score
        outcome = self.tree.shed(_RATES)
        return {
            "nodes": float(self.count),
            "what": what,
            "messages": float(sum(mailbox.messages.values())),
            "whole tables": float(mailbox.messages["table"]),
            "changes": float(mailbox.messages["change"]),
            "scopes": float(mailbox.messages["scope"]),
            "bytes": float(sum(mailbox.bytes.values())),
            "tables built": float(built),
            "s": seconds,
            "error": 1.0 - outcome.score / best,
            "greatest load": outcome.greatest_load,
        }


def run(*, quick: bool, say: Say) -> Result:
    """Build trees, let them settle, then change one leaf, and after that one in a hundred nodes."""
    rows: list[Row] = []
    beyond: list[int] = []
    for count in (63, 255) if quick else (1_023, 10_000):
        say(f"{count:,} nodes")
        tree = _Run(count)
        leaf = f"n{count - 1}"
        for times in (1.02, 1.25, 2.0, 0.5):
            tree.change(f"a leaf's cost is {times:g} times the declared one", [_with_cost(tree.tree.declared, leaf, times)])
        rng = np.random.default_rng(1)
        some = [str(node) for node in rng.choice(tree.tree.order, size=max(1, count // 100), replace=False)]
        facts = [measure_at_random(rng, tree.tree.declared, node, most=2.0) for node in some]
        tree.change(f"{len(some)} nodes: cost, selectivity and capacity up to twofold", facts)
        rows += tree.rows
        beyond += tree.beyond
    claims = [
        Claim(
            "after a change only the paths to the root are touched, and nodes whose range of rates has changed",
            "claimed (sections 6 and 8)",
            f"{max(beyond)} other nodes built a table",
            max(beyond) == 0,
        )
    ]
    limits = [
        Bar.at_most("greatest error, in epsilons", max(float(row["error"] or 0) for row in rows) / _EPSILON, 1.0 + 1e-6),
        Bar.at_most(
            "greatest load of a node, of its capacity", max(float(row["greatest load"] or 0) for row in rows), 1.0 + 1e-6
        ),
    ]
    return Result("network-dfit", rows, bars=limits, claims=claims)


def _with_cost(network: Network, node: str, times: float) -> Measurements:
    declared = Measurements.from_declaration(network, node)
    operators = {name: replace(value, cost=value.cost * times) for name, value in declared.operators.items()}
    return replace(declared, operators=operators)


def _paths(nodes: Collection[str]) -> set[str]:
    """Return the nodes and all nodes above them."""
    members: set[str] = set()
    for node in nodes:
        number = int(node[1:])
        members.add(node)
        while number:
            number = (number - 1) // 2
            members.add(f"n{number}")
    return members


def plot(result: Result, path: Path) -> None:
    """Draw the bytes after each change."""
    bars(
        [(f"{row['nodes']:.0f} nodes: {row['what']}", float(row["bytes"] or 0.0)) for row in result.rows],
        path,
        title="D-FIT on a tree: bytes until all tables are current",
        label="bytes",
        log=True,
    )
