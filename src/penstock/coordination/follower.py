"""A node under a coordinator: it reports, and does what the coordinator's plan says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager
from penstock.coordination.measurements import Measurements, entries_of
from penstock.errors import PenstockError
from penstock.network.model import Network

__all__ = ["COORDINATOR", "Follower"]

COORDINATOR = "coordinator"
_BOOK = 256


class Follower(Manager):
    """Plan implementation of paper 000, section 7: numbered plans are uploaded, and a number says which is in force.

    A plan says what flows into the node at the rates it was made for, and the scaling follows from that and from what really
    comes. It holds at the node's inputs; what other nodes let through is right already. Until it hears of a plan the node sheds
    for itself.
    """

    name: ClassVar[str] = "coordinator"

    def __init__(self, network: Network, node: str) -> None:
        super().__init__(network, node)
        self._local = Local(network, node)
        self._own = frozenset(name for name in entries_of(network, node) if name.partition("->")[0] in network.inputs)
        self._book: dict[int, Limits] = {}
        self._number: int | None = None
        self._measurements: Measurements | None = None
        self._wanted: int | None = None
        self._greeted = False

    @property
    def peers(self) -> tuple[str, ...]:
        """The coordinator."""
        return (COORDINATOR,)

    def learn(self, measurements: Measurements) -> None:
        """Report it, and keep it for the time without a plan."""
        self._measurements = measurements
        self._local.learn(measurements)

    def decide(self, demand: Mapping[str, float]) -> Limits:
        """Return what the plan in force lets in."""
        if self._number == 0:
            return Limits(reason="not overloaded")
        plan = self._book.get(self._number) if self._number is not None else None
        return plan if plan is not None else self._local.decide(demand)

    def receive(self, message: Message) -> None:
        """Take in a plan, or the number of the one that is in force from now on."""
        try:
            if message.kind == "plan":
                flows = {str(name): float(flow) for name, flow in message.body["flows"].items() if name in self._own}
                keep = {str(name): min(1.0, max(0.0, float(share))) for name, share in message.body["keep"].items()}
                number = int(message.body["number"])
                self._book.pop(number, None)
                self._book[number] = Limits(flows, keep, f"plan {number}")
                for old in list(self._book)[:-_BOOK]:  # those that were not used for longest
                    del self._book[old]
            elif message.kind == "announce":
                self._number = int(message.body["number"])
                if self._number in self._book:
                    self._book[self._number] = self._book.pop(self._number)
            elif message.kind != "alive":
                raise PenstockError(f"a message of kind {message.kind!r}, which a node doesn't know")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a {message.kind} that makes no sense: {error!r}") from error
        missing = self._number is not None and self._number > 0 and self._number not in self._book
        self._wanted = self._number if missing else None

    def take_messages(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Report the measurements; ask for a plan that was announced but never came."""
        found: list[tuple[str, str, Mapping[str, Any]]] = []
        if not self._greeted:
            found.append((COORDINATOR, "hello", {}))
            self._greeted = True
        if self._measurements is not None:
            found.append((COORDINATOR, "measurements", self._measurements.to_body()))
            self._measurements = None
        if self._wanted is not None:
            found.append((COORDINATOR, "request", {"number": self._wanted}))
            self._wanted = None
        return found

    def status(self) -> dict[str, Any]:
        """Return the plan in force."""
        return {"plan": self._number}
