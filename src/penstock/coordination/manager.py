"""The interface of those who decide what a node may let in, and the two simplest of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.coordination.mailbox import Message
from penstock.coordination.measurements import Measurements
from penstock.network.model import Network

__all__ = ["Fixed", "Limits", "Manager", "NoShedding", "Outgoing"]

Outgoing = tuple[str, str, Mapping[str, Any]]
"""A message to be sent: its receiver, its kind, its body."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may let in.

    The share that a gate keeps of a micro-batch follows from the flow and from the rows that the batch holds. So a plan stays
    right when rates change, and needs none of the scaling that Staying FIT (Tatbul, Cetintemel, Zdonik, section 7) sends with it.
    """

    flows: Mapping[str, float] = field(default_factory=dict)
    """Rows per second, by entry. An entry that is missing has no limit."""
    keep: Mapping[str, float] = field(default_factory=dict)
    """The keep of gates behind splits."""
    reason: str = ""
    """For a person: the plan or the table entry that the limits come from."""


class Manager(ABC):
    """Decides for one node what it may let in.

    A manager needs a ``name`` and ``decide``. Most also learn from measurements and exchange messages with peers.
    """

    name: ClassVar[str]
    is_guarded: ClassVar[bool] = True
    """Whether the agent cuts batches that would take much longer than a pace, whatever the manager decides."""

    def __init__(self, network: Network, node: str) -> None:
        self.network = network
        self.node = node

    @property
    def peers(self) -> tuple[str, ...]:
        """Those with whom it exchanges messages."""
        return ()

    @abstractmethod
    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return the limits for the rows per second that arrive at each entry."""

    def learn(self, measurements: Measurements) -> None:  # noqa: B027 - the simplest need no measurements
        """Learn from what the node has measured of itself."""

    def receive(self, message: Message) -> None:  # noqa: B027 - some have no peers
        """Act on a message.

        Raises
        ------
        PenstockError
            If the message makes no sense. The agent counts it.

        """

    def take_messages(self) -> list[Outgoing]:
        """Return the messages that are due and consider them sent."""
        return []

    def note_replaced(self, to: str, kind: str) -> None:  # noqa: B027 - only those who send changes need it
        """Note that the receiver has not read the previous message of this kind, and that the last one has replaced it."""

    def status(self) -> dict[str, Any]:
        """Return what a person may want to know, as plain JSON values."""
        return {}


class NoShedding(Manager):
    """Lets everything in."""

    name: ClassVar[str] = "none"
    is_guarded = False

    def decide(self, rates: Mapping[str, float]) -> Limits:  # noqa: ARG002 - the same for all rates
        """Return no limits."""
        return Limits()


class Fixed(Manager):
    """Keeps fixed shares at all rates: for measuring a given plan."""

    name: ClassVar[str] = "fixed"
    is_guarded = False

    def __init__(self, network: Network, node: str, keep: Mapping[str, float]) -> None:
        super().__init__(network, node)
        self._keep = dict(keep)

    def decide(self, rates: Mapping[str, float]) -> Limits:  # noqa: ARG002 - the same for all rates
        """Return the fixed shares."""
        return Limits(keep=self._keep, reason="fixed")
