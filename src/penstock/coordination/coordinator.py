"""The coordinator: plans for the whole network and tells the nodes which plan is in force."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.coordination.announcements import Announcements
from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.measurements import (
    FactsOfNode,
    Measurements,
    apply_measurements,
    compute_flows,
    entries_of,
    remove_rate_bounds,
)
from penstock.coordination.reports import Reports, read_rates
from penstock.coordination.saved_state import SavedState
from penstock.errors import PenstockError
from penstock.network.drops import derive_drops
from penstock.network.facts import Facts
from penstock.network.model import ARROW, Network
from penstock.planning import PLANNERS, Plan, Planner, planner_named
from penstock.planning.flows import Flows

__all__ = ["Coordinator"]

log = logging.getLogger("penstock")

_BOUNDED = ("solver", "solver-w", "fit", "early-fit")
_TOLERANCE = {"exact": 0.02, "greedy": 0.02}
_DIGITS = 3


class Coordinator:
    """Collects what the nodes measure, plans, uploads numbered plans and announces which one is in force.

    It runs the four phases of Staying FIT:

    1. *Advance planning*: a planner for the network as measured. When a cost, a selectivity or a capacity has changed by more
       than 2%, ``exact`` and ``greedy``, which plan at the moment, take the new numbers in place; those that plan in advance are
       built again after 5%.
    2. *Load monitoring*: the nodes report the rates at their inputs.
    3. *Plan selection*: ``plan(rates)``.
    4. *Plan implementation*: each node gets a plan the first time it is chosen, and from then on its number.

    ``step`` does what there is to do and returns at once. A planner that fails leaves the last plan in force; ``status`` says
    why.

    Parameters
    ----------
    network
        The network, with declared costs and selectivities.
    mailbox
        Carries messages to and from the nodes.
    method
        The name of a planner.
    state
        A file from which a restarted coordinator continues.
    clock
        Returns the time in seconds.
    options
        Options of the planner, such as ``epsilon``.

    Raises
    ------
    PenstockError
        If there is no planner of that name, or it refuses the network or its options.

    References
    ----------
    N. Tatbul, U. Cetintemel, S. Zdonik, "Staying FIT", VLDB 2007, sections 4 and 7.

    """

    def __init__(
        self,
        network: Network,
        mailbox: Mailbox,
        method: str = "exact",
        *,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
        **options: Any,
    ) -> None:
        if method not in PLANNERS:
            raise PenstockError(f"there is no planner {method!r}; there are {', '.join(PLANNERS)}")
        self.network = network
        self.method = method
        self._mailbox, self._options = mailbox, options
        self._tolerance = _TOLERANCE.get(method, 0.05)
        self._nodes = tuple(node for node, operators in network.by_node.items() if operators)
        self._entries = {node: entries_of(network, node) for node in self._nodes}
        self._tied = _find_tied_entries(network, self._entries)
        self._reports = Reports(mailbox)
        index = {name: number for number, name in enumerate(network.operators)}
        self._facts_of_nodes = {node: FactsOfNode(network, node, index) for node in self._nodes}
        self._facts = Facts.from_declaration(network)  # as measured
        self._planned_with = self._facts
        self._planner = self._make_planner()
        # What a join with windows in seconds puts out depends on the rates, so flows differ by more than their numbers, until it
        # has been measured.
        self._entry_flows = None if network.bilinear else Flows(network, entries=True)
        self._refusal: str | None = None
        self._failure: str | None = None
        self._announcements = Announcements(mailbox, self._nodes, clock)
        self._in_force: Plan | None = None
        self.plans_computed = 0
        self.rejected: Counter[str] = Counter()
        """Messages that made no sense, by sender."""
        self._saved = SavedState(state, self._announcements, self._reports)
        self._saved.restore(self._nodes)
        for node, reported in self.measurements.items():
            self._facts = self._facts_of_nodes[node].enter(reported, self._facts)

    def _make_planner(self) -> Planner:
        """Return a planner for the network as measured."""
        network = apply_measurements(self.network, self.measurements)
        return planner_named(self.method, network if self.method in _BOUNDED else remove_rate_bounds(network), **self._options)

    def _update_planner(self) -> None:
        """Let the planner plan for the network as measured: one that plans at the moment takes new numbers, others start anew."""
        if self.method in _BOUNDED or self._entry_flows is None:
            self._planner = self._make_planner()
            if self._entry_flows is None:
                network = apply_measurements(self.network, self.measurements)
                if all(network.operators[name].side_rates is not None for name in network.bilinear):
                    self._entry_flows = Flows(network, entries=True)
        else:
            self._planner.update(self._facts)
        if self._entry_flows is not None:
            self._entry_flows.update(self._facts)

    @property
    def measurements(self) -> dict[str, Measurements]:
        """By node: all that it has reported."""
        return self._reports.measurements

    @property
    def number(self) -> int | None:
        """The number of the plan in force; 0 if nothing is overloaded, ``None`` before the first decision."""
        return self._announcements.number

    def step(self) -> bool:
        """Act on the messages that have arrived.

        Returns
        -------
        bool
            Whether another plan was announced.

        """
        has_measurements = False
        try:
            for message in self._mailbox.receive():
                try:
                    self._receive(message)
                    has_measurements |= message.kind == "measurements"
                except (PenstockError, KeyError, TypeError, ValueError) as error:
                    self.rejected[message.sender] += 1
                    log.warning("from %s: %s", message.sender, error)
            if has_measurements and self._choose_plan():
                return True
            self._announcements.repeat()
        except OSError as error:  # a full disk passes
            log.warning("messages could not be exchanged: %s", error.strerror)
        return False

    def _receive(self, message: Message) -> None:
        if message.kind == "measurements":
            self._facts = self._facts_of_nodes[message.sender].enter(self._reports.take(message), self._facts)
        elif message.kind == "hello":  # the node has just started and has no plan
            self._announcements.greet(message.sender)
        elif message.kind == "request":
            self._announcements.upload_again(message.sender, int(message.body.get("number", 0)))
        elif message.kind != "alive":
            raise PenstockError(f"a coordinator does not know messages of kind {message.kind!r}")

    # -- planning ------------------------------------------------------------------------------------------------------

    def _choose_plan(self) -> bool:
        """Plan for the rates of the moment and announce the plan if it is another one than before."""
        rates = read_rates(self.network, self.measurements.values())
        if rates is None:
            return False
        plan = self._plan(rates)
        if plan is None:
            return False
        self._in_force = plan if plan.overloaded else None
        if not self._announcements.put_in_force(self._register(plan) if plan.overloaded else 0):
            return False
        self._saved.save()
        return True

    def _plan(self, rates: Mapping[str, float]) -> Plan | None:
        """Return the plan for these rates, or ``None`` with the reason noted: then the last plan stays in force.

        A planner that refuses new measurements goes on planning with those before them.
        """
        if self._is_outdated():
            self._planned_with = self._facts  # a planner that refuses these would refuse them again
            try:
                self._update_planner()
                self._refusal = None
            except Exception as error:  # whatever a planner runs into: the one before goes on
                self._refusal = f"the last measurements cannot be used: {error}"
                log.warning("%s; those before them are", self._refusal)
        try:
            plan = self._planner.plan(rates)
        except Exception as error:  # as above
            if str(error) != self._failure:
                log.warning("the planner failed, so the last plan stays in force: %s", error)
            self._failure = str(error)
            return None
        self._failure = None
        self.plans_computed += 1
        return plan

    @property
    def trouble(self) -> str | None:
        """Why the last plan stays in force, or why it was computed with older measurements; ``None`` if all is well."""
        return self._failure or self._refusal

    def _is_outdated(self) -> bool:
        """Return whether a node has measured something that the planner does not know."""
        before, now = self._planned_with, self._facts
        pairs = ((before.costs, now.costs), (before.selectivities, now.selectivities), (before.capacities, now.capacities))
        return before is not now and any(_differ(old, new, self._tolerance) for old, new in pairs)

    def _register(self, plan: Plan) -> int:
        """Return the number of a plan: that of an earlier one if both let the same flow in, to a few digits."""
        passing = self._find_flows(plan)
        limits = {
            node: {
                "flows": {entry: _round(passing[entry]) for entry in entries if entry not in self._tied},
                "keep": {
                    location.name: _round(plan.keep[location.name])
                    for location in self._planner.flows.locations
                    if location.node == node and location.name not in entries and location.target is not None
                }
                # Entries that must decide alike, perhaps on other nodes, get the share itself: batches differ in size.
                | {entry: _round(plan.keep[self._tied[entry]]) for entry in entries if entry in self._tied},
            }
            for node, entries in self._entries.items()
        }
        return self._announcements.register(limits)

    def _find_flows(self, plan: Plan) -> Mapping[str, float]:
        """Return the rows per second that a plan lets pass at each entry."""
        if self._entry_flows is None:
            return compute_flows(self._planner.network, plan.rates, plan.keep)
        flows, index = self._entry_flows, self._entry_flows.location_index
        keep = np.ones(len(index))
        keep[[index[name] for name in plan.keep]] = list(plan.keep.values())
        passing = flows.propagate(np.array([plan.rates[name] for name in flows.inputs]), keep).tolist()
        return dict(zip(index, passing, strict=True))

    def status(self) -> dict[str, Any]:
        """Return what a person may want to know, as plain JSON values."""
        plan = self._in_force
        keep: Mapping[str, float] = plan.keep if plan is not None else {}
        return {
            "method": self.method,
            "plan": self.number,
            "plans_computed": self.plans_computed,
            "reporting": sorted(self.measurements),
            "ignored": dict(self._mailbox.ignored),
            "rejected": sum(self.rejected.values()),
            "score": plan.score if plan is not None else None,
            "keep": dict(keep),
            "trouble": self.trouble,
            "notes": list(plan.notes) if plan is not None else [],
        }


def _find_tied_entries(network: Network, entries: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return, by entry where an input comes in that shares its keep with others, the name of that input."""
    ties = derive_drops(network).ties
    tied = {name for group in ties.groups for name in group if name in network.inputs}
    copies = {entry: entry.partition(ARROW)[0] for of_node in entries.values() for entry in of_node}
    return {entry: source for entry, source in copies.items() if source in tied and (entry in tied or entry in ties.fixed)}


def _differ(before: NDArray[np.float64], now: NDArray[np.float64], tolerance: float) -> bool:
    return bool(np.any(np.abs(before - now) > tolerance * np.maximum(np.abs(before), np.abs(now))))


def _round(value: float) -> float:
    """Round to a few digits: plans that differ by less are the same plan."""
    return float(f"{value:.{_DIGITS}g}")
