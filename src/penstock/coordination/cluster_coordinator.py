"""The coordinator of a cluster: plans for its nodes as one, and takes part in D-FIT for them."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.coordination.announcements import Announcements
from penstock.coordination.dfit import DFit
from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.manager import Limits
from penstock.coordination.measurements import entries_of
from penstock.coordination.reports import Reports, read_rates
from penstock.coordination.saved_state import SavedState
from penstock.errors import PenstockError
from penstock.network.clusters import part_of_cluster
from penstock.network.coefficients import Coefficients
from penstock.network.model import ARROW, Network

__all__ = ["ClusterCoordinator"]

log = logging.getLogger("penstock")

_ALIVE_S = 2.0
_DIGITS = 6


class ClusterCoordinator:
    """Plans for the nodes of a cluster, whatever graph they form, and for all clusters and nodes below it.

    Towards its nodes it is a coordinator: they report what they measure, and follow its numbered plans. Towards the clusters and
    nodes above and below it is one node of D-FIT, with inequalities instead of a table (Staying FIT, section 10, proposes C-FIT
    inside a cluster and D-FIT between clusters). So the nodes need not form a tree, as long as the clusters do.

    ``step`` does what there is to do and returns at once. Until all that it depends on has reported, its nodes shed for
    themselves.

    Parameters
    ----------
    network
        The network.
    cluster
        The name of the cluster.
    mailbox
        Carries messages to and from ``peers``.
    epsilon
        The relative error that D-FIT may make.
    state
        A file from which a restarted coordinator continues.
    clock
        Returns the time in seconds.

    Raises
    ------
    PenstockError
        If there is no such cluster, or the clusters do not form a tree.

    References
    ----------
    N. Tatbul, U. Cetintemel, S. Zdonik, "Staying FIT", VLDB 2007, sections 4, 7 and 10.

    """

    def __init__(
        self,
        network: Network,
        cluster: str,
        mailbox: Mailbox,
        epsilon: float = 0.05,
        *,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cluster, self._mailbox, self._clock = cluster, mailbox, clock
        self._peer = _make_peer(network, cluster, epsilon)
        self._part = part_of_cluster(network, cluster)
        self._nodes = _members(network, cluster)
        self._entries = {
            node: [entry for entry in entries_of(self._part, node) if self._part.node_of(entry.partition(ARROW)[0]) is None]
            for node in self._nodes
        }
        self._node_of_gate = {location.name: location.node for location in Coefficients(self._part).locations}
        self._reports = Reports(mailbox)
        self._announcements = Announcements(mailbox, self._nodes, clock)
        self._reason = ""
        self.trouble: str | None = None
        """Why the last plan stays in force; ``None`` if all is well."""
        self.plans_computed = 0
        self._sent_s = dict.fromkeys(self._peer.peers, clock())
        self.rejected: Counter[str] = Counter()
        """Messages that made no sense, by sender."""
        self._saved = SavedState(state, self._announcements, self._reports)
        self._saved.restore(self._nodes)
        for node in self._reports.measurements:
            self._learn(node)

    @classmethod
    def peers_of(cls, network: Network, cluster: str) -> tuple[str, ...]:
        """Return those with whom the coordinator of a cluster exchanges messages: its nodes, its parent and its children."""
        return (*_members(network, cluster), *_make_peer(network, cluster, 0.5).peers)

    def step(self) -> bool:
        """Act on the messages that have arrived.

        Returns
        -------
        bool
            Whether another plan was announced.

        """
        has_news = has_announced = False
        try:
            for message in self._mailbox.receive():
                try:
                    has_news |= self._receive(message)
                except (PenstockError, KeyError, TypeError, ValueError) as error:
                    self.rejected[message.sender] += 1
                    log.warning("from %s: %s", message.sender, error)
            if has_news:
                has_announced = self._choose_plan()
            self._announcements.repeat()
            self._send()
        except OSError as error:  # a full disk passes
            log.warning("messages could not be exchanged: %s", error.strerror)
        return has_announced

    def _receive(self, message: Message) -> bool:
        """Act on a message, and return whether another plan may be due."""
        if message.sender not in self._nodes:
            self._peer.receive(message)
            return message.kind != "alive"
        if message.kind == "measurements":
            self._reports.take(message)
            self._learn(message.sender)
            return True
        if message.kind == "hello":
            self._announcements.greet(message.sender)
        elif message.kind == "request":
            self._announcements.upload_again(message.sender, int(message.body.get("number", 0)))
        elif message.kind != "alive":
            raise PenstockError(f"the coordinator of a cluster does not know messages of kind {message.kind!r} from its nodes")
        return False

    def _learn(self, node: str) -> None:
        """Let D-FIT know what a node has measured, with the rates of the whole cluster."""
        rates = self._rates() or {}
        self._peer.learn(replace(self._reports.measurements[node], rates=rates))

    def _rates(self) -> dict[str, float] | None:
        return read_rates(self._part, self._reports.measurements.values())

    # -- planning ------------------------------------------------------------------------------------------------------

    def _choose_plan(self) -> bool:
        """Plan for the rates of the moment and announce the plan if it is another one than before."""
        rates = self._rates()
        if rates is None:
            return False
        try:
            self._peer.refresh()
            if self._peer.reach is None or self._peer.status()["waiting_for"]:
                return False  # the nodes shed for themselves until those below have reported
            limits = self._peer.decide(rates)
        except Exception as error:  # whatever a planner runs into: the last plan stays in force
            if str(error) != self.trouble:
                log.warning("the planner failed, so the last plan stays in force: %s", error)
            self.trouble = str(error)
            return False
        self.trouble, self._reason = None, limits.reason
        self.plans_computed += 1
        number = self._announcements.register(self._divide(limits, rates)) if limits.flows or limits.keep else 0
        if not self._announcements.put_in_force(number):
            return False
        self._saved.save()
        return True

    def _divide(self, limits: Limits, rates: Mapping[str, float]) -> dict[str, Any]:
        """Return the limits of each node, of those of the cluster."""
        divided: dict[str, Any] = {}
        for node, entries in self._entries.items():
            flows = {}
            for entry in entries:  # an entry of the cluster, or a copy of an input that several of its nodes read
                name = entry if entry in rates else entry.partition(ARROW)[0]
                share = limits.keep.get(entry, 1.0)
                if name in limits.flows or share < 1.0:
                    flows[entry] = _round_down(min(limits.flows.get(name, math.inf), rates[name]) * share)
            keep = {
                name: _round_down(share)
                for name, share in limits.keep.items()
                if self._node_of_gate[name] == node and name not in entries
            }
            divided[node] = {"flows": flows, "keep": keep}
        return divided

    # -- messages ------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send what D-FIT has to say, and a sign of life to clusters and nodes that have received nothing for a while."""
        now_s = self._clock()
        messages = self._peer.take_messages()
        messages += [(peer, "alive", {}) for peer, sent_s in self._sent_s.items() if now_s - sent_s > _ALIVE_S]
        for to, kind, body in messages:
            if not self._mailbox.send(to, kind, body):
                self._peer.note_replaced(to, kind)
            self._sent_s[to] = now_s

    def status(self) -> dict[str, Any]:
        """Return what a person may want to know, as plain JSON values."""
        return {
            "method": self._peer.name,
            "cluster": self.cluster,
            "plan": self._announcements.number,
            "plans_computed": self.plans_computed,
            "reason": self._reason,
            "reporting": sorted(self._reports.measurements),
            "ignored": dict(self._mailbox.ignored),
            "rejected": sum(self.rejected.values()),
            "trouble": self.trouble,
            "d-fit": self._peer.status(),
        }


def _make_peer(network: Network, cluster: str, epsilon: float) -> DFit:
    if cluster not in network.clusters:
        known = ", ".join(network.clusters) or "none: list them in the network's file, such as clusters: {west: [A, B]}"
        raise PenstockError(f"there is no cluster {cluster!r}; there are {known}")
    return DFit(network, cluster, epsilon)


def _members(network: Network, cluster: str) -> tuple[str, ...]:
    """Return the nodes of a cluster that run something."""
    return tuple(node for node in network.clusters.get(cluster, ()) if network.by_node[node])


def _round_down(value: float) -> float:
    """Round down to a few digits: plans that differ by less are the same plan, and none overloads a node."""
    if value <= 0.0:
        return 0.0
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale
