"""Shedding in concert: what nodes tell each other and a coordinator, and who decides what a node lets in."""

from __future__ import annotations

from penstock.coordination.coordinator import Coordinator
from penstock.coordination.facts import Facts, OperatorFacts
from penstock.coordination.follower import COORDINATOR, Follower
from penstock.coordination.local import Local
from penstock.coordination.manager import Fixed, Limits, Manager, Open
from penstock.coordination.managers import CENTRAL, MANAGERS, manager_named
from penstock.coordination.peer import Peer
from penstock.coordination.post import DirectoryPost, Message, Post

__all__ = [
    "CENTRAL",
    "COORDINATOR",
    "Coordinator",
    "DirectoryPost",
    "Facts",
    "Fixed",
    "Follower",
    "Limits",
    "Local",
    "MANAGERS",
    "Manager",
    "Message",
    "Open",
    "OperatorFacts",
    "Peer",
    "Post",
    "manager_named",
]
