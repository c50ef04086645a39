"""Who decides for a node what it lets in, and the simplest of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from penstock.coordination.mailbox import Message
from penstock.coordination.measurements import Measurements
from penstock.network.model import Network

__all__ = ["Fixed", "Limits", "Manager", "NoShedding"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may let in.

    ``flows`` are tuples a second, by entry; an entry without one is not limited. What a gate keeps of a micro-batch follows from
    it and from what the batch holds, so that a plan stays right when rates change: the scaling of paper 000, section 7. ``keep``
    is for gates behind splits.
    """

    flows: Mapping[str, float] = field(default_factory=dict)
    keep: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    """For a person: which plan or entry it comes from."""


class Manager(ABC):
    """Decides for one node. A way of managing is a class with ``decide`` and a ``name``; most hear and say something too."""

    name: ClassVar[str]
    is_guarded: ClassVar[bool] = True
    """Whether batches that would take too long are cut short, whatever it decides."""

    def __init__(self, network: Network, node: str) -> None:
        self.network = network
        self.node = node

    @property
    def peers(self) -> tuple[str, ...]:
        """With whom it exchanges messages."""
        return ()

    @abstractmethod
    def decide(self, demand: Mapping[str, float]) -> Limits:
        """Return the limits for these rates, by entry, in tuples a second."""

    def learn(self, measurements: Measurements) -> None:  # noqa: B027 - most need it, the simplest don't
        """Take in what was measured on the node."""

    def receive(self, message: Message) -> None:  # noqa: B027 - some hear nothing
        """Take in a message; one that makes no sense raises a ``PenstockError``, which is counted."""

    def take_messages(self) -> list[tuple[str, str, Mapping[str, Any]]]:
        """Return what there is to send: (to, kind, body)."""
        return []

    def note_replaced(self, to: str, kind: str) -> None:  # noqa: B027 - for those who send changes
        """Take in that an earlier message of that kind had not been taken and was replaced."""

    def status(self) -> dict[str, Any]:
        """Return what a person may want to see of it, as plain JSON values."""
        return {}


class NoShedding(Manager):
    """Lets everything in."""

    name: ClassVar[str] = "none"
    is_guarded = False

    def decide(self, demand: Mapping[str, float]) -> Limits:  # noqa: ARG002 - whatever comes
        """Return no limits."""
        return Limits()


class Fixed(Manager):
    """Keeps fixed shares, whatever comes: to measure a given plan."""

    name: ClassVar[str] = "fixed"
    is_guarded = False

    def __init__(self, network: Network, node: str, keep: Mapping[str, float]) -> None:
        super().__init__(network, node)
        self._keep = dict(keep)

    def decide(self, demand: Mapping[str, float]) -> Limits:  # noqa: ARG002 - whatever comes
        """Return the shares."""
        return Limits(keep=self._keep, reason="fixed")
