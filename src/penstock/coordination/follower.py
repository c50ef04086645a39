"""A node under a coordinator: it reports its measurements and follows the coordinator's plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager, Outgoing
from penstock.coordination.measurements import Measurements, entries_of
from penstock.errors import PenstockError
from penstock.network.model import Network

__all__ = ["COORDINATOR", "Follower"]

COORDINATOR = "coordinator"
_MOST_PLANS = 256


class Follower(Manager):
    """Puts a coordinator's plans into effect.

    The coordinator uploads numbered plans and announces the number of the plan in force. A plan limits what enters at the node's
    inputs; what arrives from other nodes has been limited there. Until the first plan arrives the node sheds for itself.

    References
    ----------
    N. Tatbul, U. Cetintemel, S. Zdonik, "Staying FIT", VLDB 2007, sections 4 and 7.

    """

    name: ClassVar[str] = "coordinator"

    def __init__(self, network: Network, node: str) -> None:
        super().__init__(network, node)
        self._local = Local(network, node)
        self._inputs = frozenset(name for name in entries_of(network, node) if name.partition("->")[0] in network.inputs)
        self._plans: dict[int, Limits] = {}  # the least recently used first
        self._number: int | None = None
        self._unsent: Measurements | None = None
        self._requested: int | None = None
        self._has_greeted = False

    @property
    def peers(self) -> tuple[str, ...]:
        """The coordinator."""
        return (COORDINATOR,)

    def learn(self, measurements: Measurements) -> None:
        """Report the measurements, and use them as long as there is no plan."""
        self._unsent = measurements
        self._local.learn(measurements)

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return what the plan in force lets in."""
        if self._number == 0:
            return Limits(reason="not overloaded")
        plan = self._plans.get(self._number) if self._number is not None else None
        return plan if plan is not None else self._local.decide(rates)

    def receive(self, message: Message) -> None:
        """Store a plan, or put the one that is announced into force."""
        try:
            if message.kind == "plan":
                self._store(message.body)
            elif message.kind == "announce":
                self._number = int(message.body["number"])
                if self._number in self._plans:
                    self._plans[self._number] = self._plans.pop(self._number)
            elif message.kind != "alive":
                raise PenstockError(f"a node does not know messages of kind {message.kind!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a message of kind {message.kind!r} makes no sense: {error!r}") from error
        is_missing = self._number is not None and self._number > 0 and self._number not in self._plans
        self._requested = self._number if is_missing else None

    def _store(self, body: Mapping[str, Any]) -> None:
        number = int(body["number"])
        flows = {str(name): float(flow) for name, flow in body["flows"].items() if name in self._inputs}
        keep = {str(name): min(1.0, max(0.0, float(share))) for name, share in body["keep"].items()}
        self._plans.pop(number, None)
        self._plans[number] = Limits(flows, keep, f"plan {number}")
        for old in list(self._plans)[:-_MOST_PLANS]:
            del self._plans[old]

    def take_messages(self) -> list[Outgoing]:
        """Return a greeting at the start, new measurements, and a request for a plan that was announced but never arrived."""
        messages: list[Outgoing] = []
        if not self._has_greeted:
            messages.append((COORDINATOR, "hello", {}))
            self._has_greeted = True
        if self._unsent is not None:
            messages.append((COORDINATOR, "measurements", self._unsent.to_body()))
            self._unsent = None
        if self._requested is not None:
            messages.append((COORDINATOR, "request", {"number": self._requested}))
            self._requested = None
        return messages

    def status(self) -> dict[str, Any]:
        """Return the number of the plan in force."""
        return {"plan": self._number}
