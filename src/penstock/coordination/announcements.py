"""Numbered plans: uploaded to each node once, announced by their number, and remembered over a restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.coordination.mailbox import Mailbox

__all__ = ["Announcements"]

_REPEAT_S = 1.0
_MOST_PLANS = 256


class Announcements:
    """Tells nodes which plan is in force (Staying FIT, section 4: plan implementation).

    Each node gets a plan the first time it is chosen, and from then on its number. The paper also sends the scaling from the
    rates of the moment to those of the plan. Our plans name flows, so each node finds the scaling by itself, for the rows that it
    really has.

    Parameters
    ----------
    mailbox
        Carries messages to the nodes.
    nodes
        The nodes.
    clock
        Returns the time in seconds.

    """

    def __init__(self, mailbox: Mailbox, nodes: Sequence[str], clock: Callable[[], float]) -> None:
        self._mailbox, self._nodes, self._clock = mailbox, tuple(nodes), clock
        self._numbers: dict[str, int] = {}  # by the plan's limits; the least recently used first
        self._last_number = 0
        self._limits: dict[int, Mapping[str, Any]] = {}
        self._uploaded: dict[str, set[int]] = {node: set() for node in self._nodes}
        self._announced_s = 0.0
        self.number: int | None = None
        """The number of the plan in force; 0 if nothing is overloaded, ``None`` before the first decision."""

    def register(self, limits: Mapping[str, Any]) -> int:
        """Return the number of a plan, given its limits by node: that of an earlier one if both have the same limits."""
        key = json.dumps(limits, sort_keys=True)
        if key not in self._numbers:
            self._last_number += 1
        number = self._numbers.pop(key, self._last_number)
        self._numbers[key] = number
        self._limits[number] = limits
        for old in list(self._numbers)[:-_MOST_PLANS]:
            self._limits.pop(self._numbers.pop(old), None)
        return number

    def put_in_force(self, number: int) -> bool:
        """Announce a plan, and return whether it is another one than before."""
        if number == self.number:
            return False
        self.number = number
        self._announce(self._nodes)
        return True

    def greet(self, node: str) -> None:
        """Tell a node that has just started, and has no plan."""
        self._uploaded[node].clear()
        if self.number is not None:
            self._announce((node,))

    def upload_again(self, node: str, number: int) -> None:
        """Send a node a plan that it lacks."""
        self._uploaded[node].discard(number)
        self._announce((node,))

    def repeat(self) -> None:
        """Announce the plan in force again if that is due."""
        if self.number is not None and self._clock() - self._announced_s > _REPEAT_S:
            self._announce(self._nodes)

    def _announce(self, nodes: Sequence[str]) -> None:
        number = self.number or 0
        for node in nodes:
            if number and number not in self._uploaded[node] and number in self._limits:
                self._mailbox.send(node, "plan", {"number": number, **self._limits[number][node]})
                self._uploaded[node].add(number)
            self._mailbox.send(node, "announce", {"number": number})
        self._announced_s = self._clock()

    def describe_in_force(self) -> dict[str, Any]:
        """Return the plan in force, as plain JSON values."""
        return {"number": self.number, "next": self._last_number, "body": self._limits.get(self.number or 0)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue with a plan that was saved.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the state is not one. Then nothing has changed.

        """
        number, limits, last_number = state["number"], state["body"], int(state["next"])
        self.number, self._last_number = number, last_number
        if limits is not None:
            self._limits[number] = limits
            self._numbers[json.dumps(limits, sort_keys=True)] = number
