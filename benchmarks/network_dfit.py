"""D-FIT of Staying FIT (Tatbul et al.) on a tree of 1,000 nodes: messages and bytes after one leaf's change.

Counts what is sent until all tables are current, at the start and after the cost of one leaf has changed. The nodes are
the same peers that run on Spark; the mailbox between them is a dictionary that counts messages and bytes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.support.protocol import Say
from benchmarks.support.results import Claim, Result, Row
from penstock.coordination import DFit, Message
from penstock.coordination.measurements import Measurements
from penstock.network import Network, NetworkBuilder
from penstock.planning.bounds import RateBounds
from penstock.simulation.plotting import bars

__all__ = ["TreeMailbox", "binary_tree", "plot", "run"]

_EPSILON = 0.2


def binary_tree(levels: int, seed: int = 1) -> Network:
    """Build a binary tree with one operator per node, which feeds those of both children, and an output at each leaf."""
    rng = random.Random(seed)  # noqa: S311 - not for security
    builder = NetworkBuilder().input("i", max_rate=4.0)
    count = 2**levels - 1
    for number in range(count):
        builder.node(f"n{number}")
        source = "i" if number == 0 else f"o{(number - 1) // 2}"
        inner = number < count // 2
        builder.operator(f"o{number}", f"n{number}", source, cost=rng.uniform(0.6, 1.4), selectivity=0.95)
        if not inner:
            builder.output(f"q{number}", f"o{number}")
    return builder.build()


class TreeMailbox:
    """Delivers messages between peers in one process and counts them."""

    def __init__(self, peers: Mapping[str, DFit]) -> None:
        self._peers = peers
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.senders: set[str] = set()

    def deliver(self, start: set[str]) -> None:
        """Let these nodes send, then those that they reach, until nobody has anything to send."""
        awake = set(start)
        while awake:
            reached: set[str] = set()
            for name in sorted(awake):
                for to, kind, body in self._peers[name].take_messages():
                    self._count(name, kind, body)
                    self._peers[to].receive(Message(name, to, 1, sum(self.messages.values()), kind, body, 0.0))
                    reached.add(to)
            awake = reached

    def _count(self, sender: str, kind: str, body: Mapping[str, Any]) -> None:
        name = "change" if "base" in body else kind
        self.messages[name] += 1
        self.bytes[name] += len(json.dumps(body))
        self.senders.add(sender)


def run(*, quick: bool, say: Say) -> Result:
    """Build the tree, let it settle, then change one leaf."""
    levels = 6 if quick else 10
    network = binary_tree(levels)
    say(f"{len(network.nodes):,} nodes")
    survey = RateBounds(network)
    peers = {node: DFit(network, node, _EPSILON, survey=survey) for node in network.nodes}
    rows: list[Row] = []
    start = TreeMailbox(peers)
    # Leaves first: a node that has its children's tables when it first sends builds its own table only once.
    for level in range(levels - 1, -1, -1):
        for number in range(2**level - 1, 2 ** (level + 1) - 1):
            start.deliver({f"n{number}"})
    rows.append(_row("at the start", start, {name: peer.tables_built for name, peer in peers.items()}))
    leaf = list(network.nodes)[-1]
    path = _path(len(network.nodes) - 1)
    is_only_path_touched = True
    for change in (1.02, 1.25, 2.0, 0.5):
        before = {name: peer.tables_built for name, peer in peers.items()}
        measurements = Measurements.from_declaration(network, leaf)
        operators = {name: replace(value, cost=value.cost * change) for name, value in measurements.operators.items()}
        peers[leaf].learn(replace(measurements, operators=operators))
        mailbox = TreeMailbox(peers)
        mailbox.deliver({leaf})
        rebuilt = {name: peer.tables_built - before[name] for name, peer in peers.items() if peer.tables_built > before[name]}
        is_only_path_touched &= set(rebuilt) <= path and mailbox.senders <= path
        rows.append(_row(f"a leaf's cost is {change:g} times the declared one", mailbox, rebuilt))
    claims = [
        Claim(
            "after a leaf's change only the path to the root is touched",
            "claimed (sections 6 and 8)",
            f"{max(float(row['tables built'] or 0) for row in rows[1:]):.0f} tables rebuilt at most, path of {len(path)}",
            is_only_path_touched,
        )
    ]
    return Result("network-dfit", rows, claims=claims)


def _path(number: int) -> set[str]:
    nodes = {f"n{number}"}
    while number:
        number = (number - 1) // 2
        nodes.add(f"n{number}")
    return nodes


def _row(what: str, mailbox: TreeMailbox, built: Mapping[str, int]) -> Row:
    return {
        "what": what,
        "messages": float(sum(mailbox.messages.values())),
        "whole tables": float(mailbox.messages["table"]),
        "changes": float(mailbox.messages["change"]),
        "bytes": float(sum(mailbox.bytes.values())),
        "tables built": float(sum(built.values())),
    }


def plot(result: Result, path: Path) -> None:
    """Draw the bytes after each change."""
    bars(
        [(str(row["what"]), float(row["bytes"] or 0.0)) for row in result.rows],
        path,
        title="D-FIT on a tree: bytes until all tables are current",
        label="bytes",
        log=True,
    )
