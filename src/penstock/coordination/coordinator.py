"""The coordinator: all four phases of paper 000, section 4, for planners that see the whole network."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.measurements import Measurements, apply_measurements, compute_flows, entries_of, remove_rate_bounds
from penstock.errors import PenstockError
from penstock.network.model import Network, arc_name
from penstock.planning import PLANNERS, Plan, Planner, planner_named

__all__ = ["Coordinator"]

log = logging.getLogger("penstock")

_BOUNDED = ("solver", "solver-w", "fit", "early-fit")
_TOLERANCE = {"exact": 0.02, "greedy": 0.02}
_SAY_AGAIN_S = 1.0
_DIGITS = 3
_BOOK = 256


class Coordinator:
    """Collects what the nodes measure, plans, uploads numbered plans and announces which one is in force.

    1. *Advance planning*: a planner for the network as measured; made anew when a cost, a selectivity or a capacity has changed
       by more than the planner cares (2% for ``exact``, which plans at the moment; 5% for those that plan in advance).
    2. *Load monitoring*: rates at the inputs, as the nodes report them.
    3. *Plan selection*: ``plan(rates)``.
    4. *Plan implementation*: a plan is uploaded to each node the first time it is chosen; then its number is enough.

    ``step`` does what there is to do and returns at once. With ``state`` a restarted coordinator takes up where it was.
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
        self.measurements: dict[str, Measurements] = {}
        self._planned_with: dict[str, Measurements] = {}
        self._planner: Planner = self._made({})
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        self._plans: dict[int, Plan] = {}
        self._bodies: dict[int, dict[str, Any]] = {}
        self._uploaded: dict[str, set[int]] = {node: set() for node in self._nodes}
        self.number: int | None = None
        """The plan in force; 0 for none, because nothing is overloaded."""
        self.plans_computed = 0
        self._said_s = 0.0
        self.rejected: Counter[str] = Counter()
        """Messages that made no sense, by sender."""
        self._take_up()

    def _made(self, measurements: Mapping[str, Measurements]) -> Planner:
        """A planner for the network as measured."""
        network = apply_measurements(self.network, measurements)
        return planner_named(self.method, network if self.method in _BOUNDED else remove_rate_bounds(network), **self._options)

    def step(self) -> bool:
        """Take in what has come and act on it; whether something was announced."""
        fresh = False
        try:
            for message in self._mailbox.receive():
                try:
                    fresh = self._receive(message) or fresh
                except (PenstockError, KeyError, TypeError, ValueError) as error:
                    self.rejected[message.sender] += 1
                    log.warning("from %s: %s", message.sender, error)
            announced = self._plan() if fresh else False
            if not announced and self._clock() - self._said_s > _SAY_AGAIN_S and self.number is not None:
                self._announce(self._nodes)
        except OSError as error:  # a full disk passes
            log.warning("messages could not be exchanged: %s", error.strerror)
            return False
        return announced

    def _receive(self, message: Message) -> bool:
        if message.kind == "measurements":
            measurements = Measurements.from_body(message.body)
            if measurements.node != message.sender:
                raise PenstockError(f"measurements of node {measurements.node!r}, which is another")
            self.measurements[measurements.node] = measurements
            return True
        if message.kind == "hello":  # a node that has just started knows no plan
            self._uploaded[message.sender].clear()
            if self.number is not None:
                self._announce((message.sender,))
            return False
        if message.kind == "request":
            self._uploaded[message.sender].discard(int(message.body.get("number", 0)))
            self._announce((message.sender,))
            return False
        if message.kind != "alive":
            raise PenstockError(f"a message of kind {message.kind!r}, which a coordinator doesn't know")
        return False

    def _plan(self) -> bool:
        rates = self._rates()
        if rates is None:
            return False
        if self._outdated():
            self._planned_with = dict(self.measurements)
            self._planner = self._made(self.measurements)
        plan = self._planner.plan(rates)
        self.plans_computed += 1
        number = self._number(plan)
        if number == self.number:
            return False
        self.number = number
        self._announce(self._nodes)
        self._save()
        return True

    def _rates(self) -> dict[str, float] | None:
        """What comes in at each input; ``None`` before every node behind an input has spoken. Of several copies, the greatest."""
        found: dict[str, float] = {}
        for name in self.network.inputs:
            seen = [
                measurements.rates[entry]
                for measurements in self.measurements.values()
                for entry in (name, *self._copies(name))
                if entry in measurements.rates
            ]
            if not seen:
                return None
            found[name] = max(seen)
        return found

    def _copies(self, name: str) -> list[str]:
        return [arc_name(name, consumer) for consumer in self.network.consumers[name]]

    def _outdated(self) -> bool:
        for node, measurements in self.measurements.items():
            before = self._planned_with.get(node)
            if before is None or _differ(before.capacity, measurements.capacity, self._tolerance):
                return True
            for name, now in measurements.operators.items():
                then = before.operators.get(name)
                if then is None or _differ(then.cost, now.cost, self._tolerance):
                    return True
                if _differ(then.selectivity, now.selectivity, self._tolerance):
                    return True
        return False

    def _number(self, plan: Plan) -> int:
        """The number of a plan: that of an earlier one that lets the same flow, to a few digits."""
        if not plan.overloaded:
            return 0
        flows = compute_flows(self._planner.network, plan.rates, plan.keep)
        body = {
            node: {
                "flows": {entry: _rounded(flows[entry]) for entry in entries},
                "keep": {
                    location.name: _rounded(plan.keep[location.name])
                    for location in self._planner.flows.locations
                    if location.node == node and location.name not in entries and location.target is not None
                },
            }
            for node, entries in self._entries.items()
        }
        key = json.dumps(body, sort_keys=True)
        if key not in self._numbers:
            self._last_number += 1
            self._numbers[key] = self._last_number
        number = self._numbers.pop(key)
        self._numbers[key] = number  # the last used come last
        self._plans[number], self._bodies[number] = plan, body
        for old in list(self._numbers)[:-_BOOK]:
            gone = self._numbers.pop(old)
            self._plans.pop(gone, None)
            self._bodies.pop(gone, None)
        return number

    def _announce(self, nodes: tuple[str, ...]) -> None:
        """Send the number of the plan in force, after the plan itself where a node lacks it.

        The paper also sends the scaling from the rates of the moment to those of the plan. Our plans name flows, so each node
        finds that by itself, for the rows it really has.
        """
        number = self.number or 0
        for node in nodes:
            if number and number not in self._uploaded[node] and number in self._bodies:
                self._mailbox.send(node, "plan", {"number": number, **self._bodies[number][node]})
                self._uploaded[node].add(number)
            self._mailbox.send(node, "announce", {"number": number})
        self._said_s = self._clock()

    def _save(self) -> None:
        if self._state is None:
            return
        content = {
            "number": self.number,
            "next": self._last_number,
            "body": self._bodies.get(self.number or 0),
            "measurements": [measurements.to_body() for measurements in self.measurements.values()],
        }
        temporary = self._state.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(content))
            temporary.replace(self._state)
        except OSError as error:
            log.warning("the coordinator's state could not be written to %s: %s", self._state, error.strerror)

    def _take_up(self) -> None:
        """Go on with the numbers and the plan of before; a state that can't be read is as none."""
        if self._state is None or not self._state.exists():
            return
        try:
            content = json.loads(self._state.read_text())
            measurements = [Measurements.from_body(body) for body in content["measurements"]]
            number, body, last = content["number"], content["body"], int(content["next"])
        except (OSError, ValueError, KeyError, TypeError, PenstockError) as error:
            log.warning("the coordinator's state in %s is of no use and is ignored: %s", self._state, error)
            return
        self.measurements = {own.node: own for own in measurements if own.node in self._nodes}
        self.number = number
        if body is not None:
            self._bodies[number] = body
            self._numbers[json.dumps(body, sort_keys=True)] = number
        self._last_number = last

    def status(self) -> dict[str, Any]:
        """Return what a person may want to see, as plain JSON values."""
        plan = self._plans.get(self.number or 0)
        return {
            "method": self.method,
            "plan": self.number,
            "plans_computed": self.plans_computed,
            "heard": sorted(self.measurements),
            "ignored": dict(self._mailbox.ignored),
            "rejected": sum(self.rejected.values()),
            "score": plan.score if plan is not None else None,
            "keep": dict(plan.keep) if plan is not None else {},
        }


def _differ(before: float, now: float, tolerance: float) -> bool:
    return abs(before - now) > tolerance * max(abs(before), abs(now))


def _rounded(value: float) -> float:
    """To a few digits: plans that differ by less are the same plan."""
    return float(f"{value:.{_DIGITS}g}")
