"""The coordinator: plans for the whole network and tells the nodes which plan is in force."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.measurements import (
    Measurements,
    apply_measurements,
    compute_flows,
    entries_of,
    remove_rate_bounds,
)
from penstock.errors import PenstockError
from penstock.filesystem import write_atomically
from penstock.network.drops import derive_drops
from penstock.network.model import ARROW, Network, arc_name
from penstock.planning import PLANNERS, Plan, Planner, planner_named

__all__ = ["Coordinator"]

log = logging.getLogger("penstock")

_BOUNDED = ("solver", "solver-w", "fit", "early-fit")
_TOLERANCE = {"exact": 0.02, "greedy": 0.02}
_REPEAT_S = 1.0
_DIGITS = 3
_MOST_PLANS = 256


class Coordinator:
    """Collects what the nodes measure, plans, uploads numbered plans and announces which one is in force.

    It runs the four phases of Staying FIT:

    1. *Advance planning*: a planner for the network as measured. It is built again when a cost, a selectivity or a capacity has
       changed by more than 2% (``exact`` and ``greedy``, which plan at the moment) or 5% (those that plan in advance).
    2. *Load monitoring*: the nodes report the rates at their inputs.
    3. *Plan selection*: ``plan(rates)``.
    4. *Plan implementation*: each node gets a plan the first time it is chosen, and from then on its number.

    ``step`` does what there is to do and returns at once.

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
        self._mailbox, self._clock, self._state, self._options = mailbox, clock, state, options
        self._tolerance = _TOLERANCE.get(method, 0.05)
        self._nodes = tuple(node for node in network.nodes if any(o.node == node for o in network.operators.values()))
        self._entries = {node: entries_of(network, node) for node in self._nodes}
        self._tied = _find_tied_entries(network, self._entries)
        self.measurements: dict[str, Measurements] = {}
        self._planned_with: dict[str, Measurements] = {}
        self._planner = self._make_planner()
        self._numbers: dict[str, int] = {}  # by the plan's limits; the least recently used first
        self._last_number = 0
        self._plans: dict[int, Plan] = {}
        self._limits: dict[int, dict[str, Any]] = {}
        self._uploaded: dict[str, set[int]] = {node: set() for node in self._nodes}
        self.number: int | None = None
        """The number of the plan in force; 0 if nothing is overloaded, ``None`` before the first decision."""
        self.plans_computed = 0
        self._announced_s = 0.0
        self.rejected: Counter[str] = Counter()
        """Messages that made no sense, by sender."""
        self._restore()

    def _make_planner(self) -> Planner:
        """Return a planner for the network as measured."""
        network = apply_measurements(self.network, self.measurements)
        return planner_named(self.method, network if self.method in _BOUNDED else remove_rate_bounds(network), **self._options)

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
            if self.number is not None and self._clock() - self._announced_s > _REPEAT_S:
                self._announce(self._nodes)
        except OSError as error:  # a full disk passes
            log.warning("messages could not be exchanged: %s", error.strerror)
        return False

    def _receive(self, message: Message) -> None:
        if message.kind == "measurements":
            measurements = Measurements.from_body(message.body)
            if measurements.node != message.sender:
                raise PenstockError(f"these are the measurements of another node, {measurements.node!r}")
            self.measurements[measurements.node] = measurements
        elif message.kind == "hello":  # the node has just started and has no plan
            self._uploaded[message.sender].clear()
            if self.number is not None:
                self._announce((message.sender,))
        elif message.kind == "request":
            self._uploaded[message.sender].discard(int(message.body.get("number", 0)))
            self._announce((message.sender,))
        elif message.kind != "alive":
            raise PenstockError(f"a coordinator does not know messages of kind {message.kind!r}")

    # -- planning ------------------------------------------------------------------------------------------------------

    def _choose_plan(self) -> bool:
        """Plan for the rates of the moment and announce the plan if it is another one than before."""
        rates = self._rates()
        if rates is None:
            return False
        if self._is_outdated():
            self._planned_with = dict(self.measurements)
            self._planner = self._make_planner()
        plan = self._planner.plan(rates)
        self.plans_computed += 1
        number = self._register(plan) if plan.overloaded else 0
        if number == self.number:
            return False
        self.number = number
        self._announce(self._nodes)
        self._save()
        return True

    def _rates(self) -> dict[str, float] | None:
        """Return the rate of each input, or ``None`` until one of the nodes that read it has reported.

        Several nodes may read copies of an input: the greatest rate counts.
        """
        rates: dict[str, float] = {}
        for name in self.network.inputs:
            copies = (name, *(arc_name(name, consumer) for consumer in self.network.consumers[name]))
            reported = [node.rates[entry] for node in self.measurements.values() for entry in copies if entry in node.rates]
            if not reported:
                return None
            rates[name] = max(reported)
        return rates

    def _is_outdated(self) -> bool:
        """Return whether a node has measured something that the planner does not know."""
        for node, measurements in self.measurements.items():
            before = self._planned_with.get(node)
            if before is None or _differ(before.capacity, measurements.capacity, self._tolerance):
                return True
            for name, operator in measurements.operators.items():
                old = before.operators.get(name)
                if old is None or _differ(old.cost, operator.cost, self._tolerance):
                    return True
                if _differ(old.selectivity, operator.selectivity, self._tolerance):
                    return True
        return False

    def _register(self, plan: Plan) -> int:
        """Return the number of a plan: that of an earlier one if both let the same flow in, to a few digits."""
        flows = compute_flows(self._planner.network, plan.rates, plan.keep)
        limits = {
            node: {
                "flows": {entry: _round(flows[entry]) for entry in entries if entry not in self._tied},
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
        key = json.dumps(limits, sort_keys=True)
        if key not in self._numbers:
            self._last_number += 1
        number = self._numbers.pop(key, self._last_number)
        self._numbers[key] = number
        self._plans[number], self._limits[number] = plan, limits
        for old in list(self._numbers)[:-_MOST_PLANS]:
            forgotten = self._numbers.pop(old)
            self._plans.pop(forgotten, None)
            self._limits.pop(forgotten, None)
        return number

    def _announce(self, nodes: tuple[str, ...]) -> None:
        """Send the number of the plan in force, after the plan itself to a node that lacks it.

        The paper also sends the scaling from the rates of the moment to those of the plan. Our plans name flows, so each node
        finds the scaling by itself, for the rows that it really has.
        """
        number = self.number or 0
        for node in nodes:
            if number and number not in self._uploaded[node] and number in self._limits:
                self._mailbox.send(node, "plan", {"number": number, **self._limits[number][node]})
                self._uploaded[node].add(number)
            self._mailbox.send(node, "announce", {"number": number})
        self._announced_s = self._clock()

    # -- state ---------------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._state is None:
            return
        content = {
            "number": self.number,
            "next": self._last_number,
            "body": self._limits.get(self.number or 0),
            "measurements": [measurements.to_body() for measurements in self.measurements.values()],
        }
        try:
            write_atomically(self._state, json.dumps(content).encode())
        except OSError as error:
            log.warning("the coordinator's state could not be written to %s: %s", self._state, error.strerror)

    def _restore(self) -> None:
        """Continue with the saved plan and its number; a state that cannot be read is ignored."""
        if self._state is None or not self._state.exists():
            return
        try:
            content = json.loads(self._state.read_text())
            measurements = [Measurements.from_body(body) for body in content["measurements"]]
            number, limits, last_number = content["number"], content["body"], int(content["next"])
        except (OSError, ValueError, KeyError, TypeError, PenstockError) as error:
            log.warning("the coordinator's state in %s cannot be used and is ignored: %s", self._state, error)
            return
        self.measurements = {reported.node: reported for reported in measurements if reported.node in self._nodes}
        self.number = number
        if limits is not None:
            self._limits[number] = limits
            self._numbers[json.dumps(limits, sort_keys=True)] = number
        self._last_number = last_number

    def status(self) -> dict[str, Any]:
        """Return what a person may want to know, as plain JSON values."""
        plan = self._plans.get(self.number or 0)
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
        }


def _find_tied_entries(network: Network, entries: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return, by entry where an input comes in that shares its keep with others, the name of that input."""
    ties = derive_drops(network).ties
    tied = {name for group in ties.groups for name in group if name in network.inputs}
    copies = {entry: entry.partition(ARROW)[0] for of_node in entries.values() for entry in of_node}
    return {entry: source for entry, source in copies.items() if source in tied and (entry in tied or entry in ties.fixed)}


def _differ(before: float, now: float, tolerance: float) -> bool:
    return abs(before - now) > tolerance * max(abs(before), abs(now))


def _round(value: float) -> float:
    """Round to a few digits: plans that differ by less are the same plan."""
    return float(f"{value:.{_DIGITS}g}")
